//! Compiled schemas by content: agents announce the same few schemas again and again.

use std::sync::Arc;

use moka::sync::Cache;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::{DEEPEST, Schema, SchemaError, deeper_than};

/// A bounded set of compiled schemas, keyed by the SHA-256 of the schema with sorted keys.
/// Clones share it. Schemas that do not compile are not kept.
#[derive(Clone, Debug)]
pub struct SchemaCache {
    schemas: Cache<[u8; 32], Arc<Schema>>,
}

impl Default for SchemaCache {
    /// Room for 512 schemas.
    fn default() -> Self {
        Self::new(512)
    }
}

impl SchemaCache {
    /// Room for this many schemas; the least used make way.
    pub fn new(schemas: u64) -> Self {
        Self { schemas: Cache::new(schemas) }
    }

    /// The compiled schema, from the cache where it has been seen before.
    pub fn get(&self, schema: &Value) -> Result<Arc<Schema>, SchemaError> {
        if deeper_than(schema, DEEPEST) {
            return Err(SchemaError::TooDeep);
        }
        let mut hash = Sha256::new();
        digest(&mut hash, schema);
        let key = hash.finalize().into();
        if let Some(found) = self.schemas.get(&key) {
            return Ok(found);
        }
        let compiled = Arc::new(Schema::compile(schema)?);
        self.schemas.insert(key, compiled.clone());
        Ok(compiled)
    }
}

/// Hashes a value so that only the order of keys does not matter: every part is framed by its kind and length.
fn digest(hash: &mut Sha256, value: &Value) {
    match value {
        Value::Array(items) => {
            hash.update([b'a']);
            hash.update(items.len().to_le_bytes());
            for item in items {
                digest(hash, item);
            }
        }
        Value::Object(members) => {
            let mut sorted: Vec<_> = members.iter().collect();
            sorted.sort_unstable_by_key(|(key, _)| *key);
            hash.update([b'o']);
            hash.update(sorted.len().to_le_bytes());
            for (key, value) in sorted {
                hash.update(key.len().to_le_bytes());
                hash.update(key);
                digest(hash, value);
            }
        }
        leaf => {
            let text = leaf.to_string();
            hash.update([b'l']);
            hash.update(text.len().to_le_bytes());
            hash.update(text);
        }
    }
}

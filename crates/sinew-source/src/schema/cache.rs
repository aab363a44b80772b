//! Cache of compiled schemas by content: agents announce the same few schemas repeatedly.

use std::sync::Arc;

use moka::sync::Cache;
use serde_json::{Number, Value};
use sha2::{Digest, Sha256};

use super::cost::ValueSize;
use super::{DEEPEST, Schema, SchemaError};

/// Size of a typical compiled schema, in bytes.
const USUAL_SCHEMA_BYTES: u64 = 128 << 10;

/// Bounded cache of compiled schemas, keyed by the SHA-256 of the schema with sorted keys. Clones
/// share it. Invalid schemas are not cached.
#[derive(Clone, Debug)]
pub struct SchemaCache {
    pub(super) schemas: Cache<[u8; 32], Arc<Schema>>,
}

impl Default for SchemaCache {
    /// Creates a cache for 512 schemas.
    fn default() -> Self {
        Self::new(512)
    }
}

impl SchemaCache {
    /// Creates a cache for this many schemas of typical size. Evicts the least used; a large schema
    /// counts as many.
    pub fn new(schemas: u64) -> Self {
        let bytes = |_: &[u8; 32], schema: &Arc<Schema>| {
            u32::try_from(schema.cost.compiled_bytes).unwrap_or(u32::MAX)
        };
        let room = schemas.saturating_mul(USUAL_SCHEMA_BYTES);
        Self { schemas: Cache::builder().max_capacity(room).weigher(bytes).build() }
    }

    /// Returns the compiled schema, from the cache if possible.
    pub fn get(&self, schema: &Value) -> Result<Arc<Schema>, SchemaError> {
        if ValueSize::within(schema, DEEPEST).is_none() {
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

/// Returns a digest that is equal for values that JSON Schema considers equal: `1` is `1.0`, and
/// the order of properties is irrelevant.
pub(super) fn value_digest(value: &Value) -> [u8; 32] {
    let mut hash = Sha256::new();
    digest_with(&mut hash, value, &equal_number_text);
    hash.finalize().into()
}

/// Returns the same string for all spellings of a number: a float without a fraction is formatted
/// as that integer.
fn equal_number_text(number: &Number) -> String {
    /// Every such float below this one fits an `i128`.
    const MAX_WHOLE: f64 = 1e38;
    match number.as_f64() {
        Some(float) if number.is_f64() && float.fract() == 0.0 && float.abs() < MAX_WHOLE => {
            #[expect(clippy::cast_possible_truncation, reason = "the float is whole and fits")]
            let whole = float as i128;
            whole.to_string()
        }
        _ => number.to_string(),
    }
}

/// Hashes a value so that only the order of keys is irrelevant: every part is framed by its kind
/// and length.
fn digest(hash: &mut Sha256, value: &Value) {
    digest_with(hash, value, &Number::to_string);
}

fn digest_with(hash: &mut Sha256, value: &Value, number_text: &impl Fn(&Number) -> String) {
    match value {
        Value::Array(items) => {
            hash.update([b'a']);
            hash.update(items.len().to_le_bytes());
            for item in items {
                digest_with(hash, item, number_text);
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
                digest_with(hash, value, number_text);
            }
        }
        leaf => {
            let text = match leaf {
                Value::Number(number) => number_text(number),
                leaf => leaf.to_string(),
            };
            hash.update([b'l']);
            hash.update(text.len().to_le_bytes());
            hash.update(text);
        }
    }
}

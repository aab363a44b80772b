//! The size of a schema after following its references.
//!
//! A few lines can nest `allOf: [next, next]` forty times and keep a validator busy for years, and
//! a chain of ten thousand references exhausts its stack. Both are refused before they are
//! compiled.

use std::collections::BTreeMap;

use percent_encoding::percent_decode_str;
use serde_json::Value;

/// Subschemas visited, each reference followed once per place it stands at; a loop counts once.
const MOST: usize = 50_000;
/// Steps down from the root, into subschemas and along references.
const DEEPEST: usize = 300;
/// The most subschemas with an `$id` of their own.
const MAX_DOCUMENTS: usize = 64;
/// The most subschemas with the same `$anchor` or `$id`: each reference to that name looks at all of them.
const MAX_SUBSCHEMAS_PER_NAME: usize = 64;

/// The subschemas that follow from a schema's references; `None` where there are too many, or the way is too long.
pub(super) fn expanded_size(schema: &Value, references: &References<'_>) -> Option<usize> {
    let mut walk = ExpansionWalk { references, sizes: BTreeMap::new(), too_deep: false };
    let count = walk.size(schema, 0).count;
    (count <= MOST && !walk.too_deep).then_some(count)
}

/// The subschemas that references within a document may name.
pub(super) struct References<'s> {
    /// The document, and the subschemas with an `$id` or `id` of their own: a fragment belongs to one of them.
    documents: Vec<&'s Value>,
    /// Subschemas by `$anchor`, `$dynamicAnchor`, `$id` and `id`. A name may be there for several documents.
    names: BTreeMap<&'s str, Vec<&'s Value>>,
}

impl<'s> References<'s> {
    /// Collects the names in a schema; `None` where it has more `$id`s, or one name more often, than a schema may have.
    pub(super) fn of_schema(root: &'s Value) -> Option<Self> {
        let mut references = Self { documents: vec![root], names: BTreeMap::new() };
        references.collect(root);
        let repeated = references.names.values().any(|named| named.len() > MAX_SUBSCHEMAS_PER_NAME);
        (references.documents.len() <= MAX_DOCUMENTS && !repeated).then_some(references)
    }

    fn collect(&mut self, schema: &'s Value) {
        match schema {
            Value::Array(items) => items.iter().for_each(|item| self.collect(item)),
            Value::Object(members) => {
                for key in ["$anchor", "$dynamicAnchor", "$id", "id"] {
                    if let Some(Value::String(name)) = members.get(key) {
                        self.names.entry(name).or_default().push(schema);
                        if key.ends_with("id") && !std::ptr::eq(schema, self.documents[0]) {
                            self.documents.push(schema);
                        }
                    }
                }
                members.values().for_each(|value| self.collect(value));
            }
            _ => {}
        }
    }

    /// The subschemas that a reference within the document may name: more than one where only the validator knows which
    /// document it is read in.
    pub(super) fn resolve(&self, reference: &str) -> Vec<&'s Value> {
        if let Some(found) = self.names.get(reference) {
            return found.clone();
        }
        let Some((base, fragment)) = reference.split_once('#') else { return Vec::new() };
        let bases = match base {
            "" => Some(&self.documents),
            base => self.names.get(base),
        };
        let fragment = percent_decode_str(fragment).decode_utf8_lossy();
        let pointed = bases.into_iter().flatten().filter_map(|base| base.pointer(&fragment));
        let named = self.names.get(&*fragment).into_iter().flatten().copied();
        pointed.chain(named).collect()
    }
}

/// Size of the expansion below one subschema.
#[derive(Clone, Copy, Default)]
struct ExpansionSize {
    count: usize,
    height: usize,
}

struct ExpansionWalk<'r, 's> {
    references: &'r References<'s>,
    /// Sizes of targets by address; zero while being counted, so that a loop ends.
    sizes: BTreeMap<*const Value, ExpansionSize>,
    too_deep: bool,
}

impl<'s> ExpansionWalk<'_, 's> {
    fn size(&mut self, schema: &'s Value, depth: usize) -> ExpansionSize {
        let mut size = ExpansionSize { count: 1, height: 0 };
        if depth > DEEPEST {
            self.too_deep = true;
            return size;
        }
        match schema {
            Value::Array(items) => {
                for item in items {
                    size.add(self.size(item, depth + 1));
                    if size.count > MOST {
                        break;
                    }
                }
            }
            Value::Object(members) => {
                for (key, value) in members {
                    match (key.as_str(), value) {
                        ("$ref" | "$dynamicRef" | "$recursiveRef", Value::String(target)) => {
                            size.add(self.follow(target, depth + 1));
                        }
                        // Definitions count where they are used.
                        ("$defs" | "definitions" | "enum" | "const" | "examples" | "default", _) => {}
                        _ => size.add(self.size(value, depth + 1)),
                    }
                    if size.count > MOST {
                        break;
                    }
                }
            }
            _ => {}
        }
        size
    }

    fn follow(&mut self, reference: &str, depth: usize) -> ExpansionSize {
        let mut size = ExpansionSize::default();
        for target in self.references.resolve(reference) {
            let below = self.size_of_target(target, depth);
            size.count = size.count.saturating_add(below.count);
            size.height = size.height.max(below.height);
        }
        size
    }

    fn size_of_target(&mut self, target: &'s Value, depth: usize) -> ExpansionSize {
        let address = std::ptr::from_ref(target);
        let known = self.sizes.get(&address).copied();
        let size = known.unwrap_or_else(|| {
            self.sizes.insert(address, ExpansionSize::default());
            let size = self.size(target, depth);
            self.sizes.insert(address, size);
            size
        });
        self.too_deep |= depth + size.height > DEEPEST;
        size
    }
}

impl ExpansionSize {
    fn add(&mut self, below: Self) {
        self.count = self.count.saturating_add(below.count);
        self.height = self.height.max(below.height + 1);
    }
}

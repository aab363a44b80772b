//! The size of a schema after following its references.
//!
//! A few lines can nest `allOf: [next, next]` forty times and occupy a validator for years, and a
//! chain of ten thousand references exhausts its stack. Both are rejected before compilation.

use std::collections::BTreeMap;

use percent_encoding::percent_decode_str;
use serde_json::Value;

/// Maximum number of visited subschemas. Each reference is followed at every occurrence; a loop
/// counts once.
const MOST: usize = 50_000;
/// Maximum depth from the root, into subschemas and along references.
const DEEPEST: usize = 300;
/// Maximum number of subschemas with an `$id`.
const MAX_DOCUMENTS: usize = 64;
/// Maximum number of subschemas with the same `$anchor` or `$id`, because each reference to the
/// name visits all of them.
const MAX_SUBSCHEMAS_PER_NAME: usize = 64;

/// Returns the number of subschemas after following all references; `None` if there are too many or
/// they are too deep.
pub(super) fn expanded_size(schema: &Value, references: &References<'_>) -> Option<usize> {
    let mut walk = ExpansionWalk { references, sizes: BTreeMap::new(), too_deep: false };
    let count = walk.size(schema, 0).count;
    (count <= MOST && !walk.too_deep).then_some(count)
}

/// Possible targets of references within a document.
pub(super) struct References<'s> {
    /// The document, and the subschemas with an `$id` or `id`; a fragment belongs to one of them.
    documents: Vec<&'s Value>,
    /// Subschemas by `$anchor`, `$dynamicAnchor`, `$id` and `id`. Several documents may use a name.
    names: BTreeMap<&'s str, Vec<&'s Value>>,
}

impl<'s> References<'s> {
    /// Collects the names in a schema; `None` if it exceeds a limit on `$id`s or on uses of a name.
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

    /// Returns the possible targets of a reference within the document: several if only the
    /// validator knows the document that it is resolved in.
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
    /// Sizes of targets by address; zero while being counted, which terminates loops.
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
                        // Definitions are counted at their references.
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

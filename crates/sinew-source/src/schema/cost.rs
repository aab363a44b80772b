//! Prices: the work of the validator between two accesses to a value, and the size of a value.
//!
//! [`super::budget`] counts accesses to values. A schema with ten thousand alternatives that access
//! nothing, or with a pattern of ten thousand states, does more work per access, so each access
//! costs more.

use std::collections::BTreeMap;

use regex_syntax::hir::{Class, Hir, HirKind};
use serde_json::{Map, Value};

use super::expansion::References;

/// Number of boolean schemas per step.
const BOOLEANS_PER_STEP: u64 = 8;
/// Number of references and lists before an access to the value that are included in its price.
const MAX_FREE_DISTANCE: usize = 3;
/// Maximum number of states in the price of a pattern; the size of compiled patterns is limited.
const MAX_PATTERN_STATES: u64 = 16_384;
/// Maximum number of patterns in a schema; a compiled pattern keeps its memory.
const MAX_PATTERNS: usize = 1_000;
/// Maximum number of lists and objects in the `enum`s of a schema: older drafts compare all of an
/// `enum` with each other.
const MAX_ENUM_TREES: usize = 1_000;
/// Steps of an exact division by a fraction.
const FRACTION_STEPS: u64 = 16;
/// Steps of an exact division by a fraction below [`SMALL_DIVISOR`], whose digits fill a large
/// integer.
const SMALL_FRACTION_STEPS: u64 = 512;
/// Divisors below this one have more digits than a machine word.
const SMALL_DIVISOR: f64 = 1e-12;
/// Maximum number of nested subschemas without an access to the value.
const MAX_SILENT_DEPTH: usize = 300;
/// Approximate size of one compiled subschema, in bytes.
const SUBSCHEMA_BYTES: usize = 1 << 10;
/// Size of one violation without its strings, in bytes.
const ERROR_BYTES: u64 = 512;
/// Size of one value or name in memory without its string, in bytes.
const VALUE_BYTES: usize = 64;
/// Keywords that access the value before any other work.
const LOOKING_KEYWORDS: [&str; 24] = [
    "type",
    "const",
    "enum",
    "properties",
    "patternProperties",
    "additionalProperties",
    "required",
    "propertyNames",
    "minProperties",
    "maxProperties",
    "items",
    "prefixItems",
    "contains",
    "minItems",
    "maxItems",
    "uniqueItems",
    "minLength",
    "maxLength",
    "pattern",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
];

/// Prices of one validation step of a schema, and sizes of the compiled schema.
#[derive(Clone, Copy, Debug)]
pub(super) struct SchemaCost {
    /// Price of an access, in steps.
    pub(super) step_price: u64,
    /// Price of a character that a pattern may read, in steps of sixteen characters.
    pub(super) character_price: u64,
    /// Price of a character of a property name, in steps of sixteen characters.
    pub(super) name_price: u64,
    /// Price of a number that may be divided exactly, in steps.
    pub(super) number_price: u64,
    /// Bytes that one violation copies from the schema.
    pub(super) error_bytes: u64,
    /// Patterns in the schema.
    pub(super) patterns: usize,
    /// Approximate maximum size of the compiled schema, in bytes; see [`Self::add_patterns`].
    pub(super) compiled_bytes: usize,
    /// Length of the longest pointer into the schema, in bytes.
    pub(super) longest_pointer: usize,
}

impl SchemaCost {
    /// Returns the prices of a schema; `None` if it has too many patterns or lists in `enum`.
    pub(super) fn of_schema(schema: &Value, references: &References<'_>, subschemas: usize) -> Option<Self> {
        let mut survey = SchemaSurvey::default();
        survey.walk(schema, 0);
        if survey.patterns > MAX_PATTERNS || survey.enum_trees > MAX_ENUM_TREES {
            return None;
        }
        let mut widths =
            SilentWidths { references, widths: BTreeMap::new(), distances: BTreeMap::new(), too_deep: false };
        let silent = widths.largest(schema);
        if widths.too_deep {
            return None;
        }
        Some(Self {
            step_price: 1 + silent / BOOLEANS_PER_STEP,
            character_price: survey.pattern_states,
            name_price: survey.name_states,
            number_price: survey.number_price,
            error_bytes: ERROR_BYTES + survey.largest_copy as u64 + 8 * survey.longest_pointer as u64,
            patterns: survey.patterns,
            compiled_bytes: subschemas * SUBSCHEMA_BYTES,
            longest_pointer: survey.longest_pointer,
        })
    }

    /// Adds the size of the patterns, compiled with this limit: each may hold a program, and retain
    /// as much memory again between its uses.
    pub(super) fn add_patterns(&mut self, pattern_bytes: usize) {
        let bytes = self.patterns.saturating_mul(2).saturating_mul(pattern_bytes);
        self.compiled_bytes = self.compiled_bytes.saturating_add(bytes);
    }
}

/// Counts of one traversal of a schema.
#[derive(Default)]
struct SchemaSurvey {
    patterns: usize,
    /// States of the largest `pattern`.
    pattern_states: u64,
    /// States of all patterns of the largest `patternProperties`.
    name_states: u64,
    number_price: u64,
    enum_trees: usize,
    longest_pointer: usize,
    /// Bytes of the largest part of the schema that a violation copies.
    largest_copy: usize,
}

impl SchemaSurvey {
    /// Counts the contents of a subschema, and returns the approximate size of a copy, in bytes.
    fn walk(&mut self, schema: &Value, pointer: usize) -> usize {
        self.longest_pointer = self.longest_pointer.max(pointer);
        match schema {
            Value::Array(items) => {
                items.iter().map(|item| self.walk(item, pointer + 8)).fold(VALUE_BYTES, usize::saturating_add)
            }
            Value::Object(members) => {
                let mut bytes = VALUE_BYTES;
                for (key, value) in members {
                    let size = self.walk(value, pointer + key.len() + 1);
                    self.keyword(key, value, size);
                    bytes += key.len() + VALUE_BYTES + size;
                }
                bytes
            }
            Value::String(text) => text.len() + VALUE_BYTES,
            _ => VALUE_BYTES,
        }
    }

    fn keyword(&mut self, key: &str, value: &Value, bytes: usize) {
        match (key, value) {
            ("pattern", Value::String(pattern)) => {
                self.patterns += 1;
                self.pattern_states = self.pattern_states.max(pattern_states(pattern));
                self.largest_copy = self.largest_copy.max(bytes);
            }
            ("patternProperties", Value::Object(patterns)) => {
                self.patterns += patterns.len();
                let states = patterns.keys().map(|pattern| 1 + pattern_states(pattern)).sum();
                self.name_states = self.name_states.max(states);
            }
            ("multipleOf" | "divisibleBy", Value::Number(divisor)) => {
                let price = match divisor.as_f64() {
                    Some(divisor) if divisor.fract() == 0.0 => 1,
                    Some(divisor) if divisor >= SMALL_DIVISOR => FRACTION_STEPS,
                    _ => SMALL_FRACTION_STEPS,
                };
                self.number_price = self.number_price.max(price);
            }
            ("enum", Value::Array(options)) => {
                self.enum_trees += options.iter().filter(|one| one.is_array() || one.is_object()).count();
            }
            ("not" | "required" | "format" | "contentMediaType" | "contentEncoding", _) => {
                self.largest_copy = self.largest_copy.max(bytes);
            }
            _ => {}
        }
    }
}

/// Returns the maximum number of simultaneously active states of a pattern.
fn pattern_states(pattern: &str) -> u64 {
    fn states(hir: &Hir) -> u64 {
        match hir.kind() {
            HirKind::Empty | HirKind::Look(_) | HirKind::Class(Class::Bytes(_)) => 1,
            HirKind::Literal(literal) => literal.0.len() as u64,
            HirKind::Class(Class::Unicode(class)) => {
                if class.is_ascii() {
                    1
                } else {
                    4
                }
            }
            HirKind::Repetition(repetition) => {
                let times = repetition.max.unwrap_or(repetition.min).max(1);
                states(&repetition.sub).saturating_mul(u64::from(times)).saturating_add(1)
            }
            HirKind::Capture(capture) => states(&capture.sub),
            HirKind::Concat(parts) | HirKind::Alternation(parts) => {
                parts.iter().map(states).fold(1, u64::saturating_add)
            }
        }
    }
    // A pattern with ECMA syntax that this parser does not support has the maximum price.
    regex_syntax::parse(pattern).map_or(MAX_PATTERN_STATES, |hir| states(&hir)).min(MAX_PATTERN_STATES)
}

/// Subschemas applied to the same value in sequence without an access to it, counted in booleans.
struct SilentWidths<'r, 's> {
    references: &'r References<'s>,
    /// Widths by address; zero while being counted, which terminates loops: every loop contains an
    /// access.
    widths: BTreeMap<*const Value, u64>,
    /// Number of subschemas before the first access, by address; `None` without an access, or in a
    /// loop.
    distances: BTreeMap<*const Value, Option<usize>>,
    too_deep: bool,
}

impl SilentWidths<'_, '_> {
    /// Returns the maximum width of all subschemas.
    fn largest(&mut self, schema: &Value) -> u64 {
        let own = if schema.is_object() { self.width(schema, 0) } else { 0 };
        let below = match schema {
            Value::Array(items) => items.iter().map(|item| self.largest(item)).max(),
            Value::Object(members) => members.values().map(|value| self.largest(value)).max(),
            _ => None,
        };
        own.max(below.unwrap_or_default())
    }

    fn width(&mut self, schema: &Value, depth: usize) -> u64 {
        if depth > MAX_SILENT_DEPTH {
            self.too_deep = true;
            return 0;
        }
        let address = std::ptr::from_ref(schema);
        if let Some(known) = self.widths.get(&address) {
            return *known;
        }
        self.widths.insert(address, 0);
        let width = match schema {
            Value::Bool(_) => 1,
            Value::Object(members) => self.width_of_members(members, depth + 1),
            _ => 0,
        };
        self.widths.insert(address, width);
        width
    }

    fn width_of_members(&mut self, members: &Map<String, Value>, depth: usize) -> u64 {
        let mut below = 0_u64;
        for (key, value) in members {
            let width = match (key.as_str(), value) {
                ("allOf" | "anyOf" | "oneOf", Value::Array(branches)) => {
                    branches.iter().map(|branch| self.width(branch, depth)).fold(0, u64::saturating_add)
                }
                ("not" | "if" | "then" | "else", branch) => self.width(branch, depth),
                ("$ref" | "$dynamicRef" | "$recursiveRef", Value::String(target)) => {
                    let targets = self.references.resolve(target).into_iter();
                    targets.map(|target| self.width(target, depth)).max().unwrap_or_default()
                }
                _ => 0,
            };
            below = below.saturating_add(width);
        }
        match self.distance_of_members(members, depth) {
            Some(..=MAX_FREE_DISTANCE) => below,
            _ => below.saturating_add(BOOLEANS_PER_STEP),
        }
    }

    /// Returns the number of subschemas before the first access to the value, for any order of
    /// keywords.
    fn distance(&mut self, schema: &Value, depth: usize) -> Option<usize> {
        let Value::Object(members) = schema else { return None };
        let address = std::ptr::from_ref(schema);
        if depth > MAX_SILENT_DEPTH {
            return None;
        }
        if let Some(known) = self.distances.get(&address) {
            return *known;
        }
        self.distances.insert(address, None);
        let distance = self.distance_of_members(members, depth + 1);
        self.distances.insert(address, distance);
        distance
    }

    fn distance_of_members(&mut self, members: &Map<String, Value>, depth: usize) -> Option<usize> {
        if members.keys().any(|key| LOOKING_KEYWORDS.contains(&key.as_str())) {
            return Some(0);
        }
        let mut longest = None;
        for (key, value) in members {
            let first = match (key.as_str(), value) {
                ("allOf" | "anyOf" | "oneOf", Value::Array(branches)) => branches.first(),
                ("not" | "if", branch) => Some(branch),
                ("$ref" | "$dynamicRef" | "$recursiveRef", Value::String(target)) => {
                    self.references.resolve(target).first().copied()
                }
                _ => continue,
            };
            longest = longest.max(Some(1 + self.distance(first?, depth)?));
        }
        longest
    }
}

/// Size of a value.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ValueSize {
    /// Number of values; a string counts as one per 64 bytes.
    pub(super) values: u64,
    /// Length of the longest pointer into the value, in bytes.
    pub(super) longest_pointer: usize,
}

impl ValueSize {
    /// Returns the size of a value; `None` if it has more levels than `limit`. Never recurses
    /// deeper.
    pub(super) fn within(value: &Value, limit: usize) -> Option<Self> {
        let mut size = Self::default();
        size.add(value, limit, 0).then_some(size)
    }

    fn add(&mut self, value: &Value, limit: usize, pointer: usize) -> bool {
        self.values += 1;
        self.longest_pointer = self.longest_pointer.max(pointer);
        match value {
            Value::Array(items) => {
                items.is_empty()
                    || (limit > 0 && items.iter().all(|item| self.add(item, limit - 1, pointer + 8)))
            }
            Value::Object(members) => {
                members.is_empty()
                    || (limit > 0
                        && members.iter().all(|(name, member)| {
                            self.values += name.len() as u64 / 64;
                            self.add(member, limit - 1, pointer + name.len() + 1)
                        }))
            }
            Value::String(text) => {
                self.values += text.len() as u64 / 64;
                true
            }
            _ => true,
        }
    }
}

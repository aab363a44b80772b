//! Paths into data, and checks of their values.

use serde_json::Value;
use sinew_protocol::Fault;

use super::model::{MatchTest, OutputMatch};
use crate::js;
use crate::pattern::{MatchBudget, MatchPattern};

/// `all:a.b[*].c` or `any:a.b[*].c`; `all` by default.
pub(super) struct Path {
    any: bool,
    segments: Vec<PathSegment>,
}

struct PathSegment {
    name: String,
    wildcard: bool,
}

impl Path {
    /// Parses a path; `None` if it is not valid.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (any, path) = match (text.strip_prefix("any:"), text.strip_prefix("all:")) {
            (Some(path), _) => (true, path),
            (None, path) => (false, path.unwrap_or(text)),
        };
        let segments: Option<Vec<PathSegment>> = path.split('.').map(segment).collect();
        Some(Self { any, segments: segments? })
    }

    /// Returns the first segment.
    pub(super) fn root(&self) -> &str {
        &self.segments[0].name
    }

    fn expands(&self) -> bool {
        self.segments.iter().any(|segment| segment.wildcard)
    }

    /// Returns the values at the path, or the first segment without a value. Under `any:`, an
    /// element may lack fields of the others.
    fn values<'a>(&self, root: &'a Value) -> Result<Vec<Option<&'a Value>>, String> {
        let mut values = vec![Some(root)];
        let mut expanded = false;
        for PathSegment { name, wildcard } in &self.segments {
            let mut next = Vec::with_capacity(values.len());
            for value in values {
                let member = value.and_then(|value| value.get(name.as_str()));
                match (member, wildcard) {
                    (Some(Value::Array(items)), true) => next.extend(items.iter().map(Some)),
                    (Some(value), false) => next.push(Some(value)),
                    _ if self.any && expanded => next.push(None),
                    (Some(_), true) => return Err(format!("{name}[*]")),
                    (None, _) => return Err(name.clone()),
                }
            }
            values = next;
            expanded |= wildcard;
        }
        Ok(values)
    }
}

fn segment(text: &str) -> Option<PathSegment> {
    let (name, wildcard) = text.strip_suffix("[*]").map_or((text, false), |name| (name, true));
    let mut letters = name.chars();
    let first = letters.next().is_some_and(|letter| letter.is_ascii_alphabetic() || letter == '_');
    let rest = letters.all(|letter| letter.is_ascii_alphanumeric() || letter == '_');
    (first && rest).then(|| PathSegment { name: name.to_owned(), wildcard })
}

/// Returns the reason why a path has no value; `None` if it has one.
pub(super) fn required(text: &str, root: &Value) -> Option<String> {
    let problem = |what: String| Some(format!("output_required: '{text}' {what}"));
    let Some(path) = Path::parse(text) else { return problem("is not a valid path".into()) };
    let values = match path.values(root) {
        Ok(values) => values,
        Err(segment) => return problem(format!("missing segment '{segment}'")),
    };
    if values.is_empty() && path.expands() {
        return problem("resolved to no elements (empty wildcard expansion)".into());
    }
    let present = |value: Option<&Value>| value.is_some_and(|value| !value.is_null());
    if path.any && !values.iter().copied().any(present) {
        problem("resolved to null for every element".into())
    } else if !path.any && !values.iter().copied().all(present) {
        problem("resolved to null".into())
    } else {
        None
    }
}

/// Returns the reason why the values at a path do not match; `None` if they do. Fails if the
/// comparison exceeds the budget.
pub(super) fn matches(
    check: &OutputMatch,
    root: &Value,
    budget: &mut MatchBudget,
) -> Result<Option<String>, Fault> {
    let text = &check.path;
    let problem = |what: String| Ok(Some(format!("output_matches: '{text}' {what}")));
    let Some(path) = Path::parse(text) else { return problem("is not a valid path".into()) };
    let values = match path.values(root) {
        Ok(values) => values,
        Err(segment) => return problem(format!("missing segment '{segment}'")),
    };
    // The file was checked: a pattern that does not compile matches nothing.
    let pattern = match &check.test {
        MatchTest::Matches(pattern) => MatchPattern::of(pattern).ok(),
        MatchTest::Equals(_) | MatchTest::In(_) => None,
    };
    let mut holds = |value: Option<&Value>| {
        let Some(value) = value else { return Ok(false) };
        match &check.test {
            MatchTest::Equals(wanted) => Ok(js::equal(value, wanted)),
            MatchTest::In(wanted) => {
                budget.pay(wanted.len() as u64 * STEPS_PER_COMPARISON)?;
                Ok(wanted.iter().any(|wanted| js::equal(value, wanted)))
            }
            MatchTest::Matches(_) => match &pattern {
                Some(pattern) => pattern.is_match(&js::string(value), budget),
                None => Ok(false),
            },
        }
    };
    let mut fine = !path.any;
    for value in values.iter().copied() {
        // Under `any:`, the first value that holds decides, otherwise the first that does not.
        fine = holds(value)?;
        if fine == path.any {
            break;
        }
    }
    if fine {
        return Ok(None);
    }
    let wanted = match &check.test {
        MatchTest::Equals(wanted) => format!("equals {}", js::json_text(wanted)),
        MatchTest::In(wanted) => format!("in {}", list(wanted.iter())),
        MatchTest::Matches(pattern) => format!("matches /{pattern}/"),
    };
    problem(format!("{wanted}, got {}", list(values.into_iter().map(|value| value.unwrap_or(&Value::Null)))))
}

/// Cost of comparing two values in steps of a rule's budget.
const STEPS_PER_COMPARISON: u64 = 32;

/// Formats values in brackets for people.
fn list<'a>(values: impl Iterator<Item = &'a Value>) -> String {
    let values: Vec<String> = values.map(js::json_text).collect();
    format!("[{}]", values.join(", "))
}

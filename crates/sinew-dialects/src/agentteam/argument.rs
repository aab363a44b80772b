//! The argument of conversion functions: fields that contain the payload, and fields that a
//! function reads.

use serde_json::Value;

use super::convert::parameter;

/// Fields of the argument that contain the payload, in every form of the argument.
const WRAPPER_MEMBERS: [&str; 3] = ["value", "output", "data"];
/// Path in the recorded argument that contains the payload one level deeper.
const RECORDED_DATA: &str = "data.result";
/// Path that represents the fields of the payload itself.
const PAYLOAD_MEMBERS: &str = "";

/// Form of the argument of a workflow's conversion functions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ConversionArgument {
    /// Exactly `{value, output, data: {result}}`, as recorded. The form of plans that do not name
    /// one.
    Wrapper,
    /// `{value, output, data}` and, for functions that read fields of the payload, those fields
    /// next to it.
    #[default]
    Payload,
}

impl ConversionArgument {
    /// Reads the form by its name in a file or plan.
    pub(super) fn of_word(word: &str) -> Option<Self> {
        match word {
            "wrapper" => Some(Self::Wrapper),
            "payload" => Some(Self::Payload),
            _ => None,
        }
    }

    /// Returns the name of the form.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Wrapper => "wrapper",
            Self::Payload => "payload",
        }
    }

    /// Returns the fields of the argument for one function and payload: paths that contain the
    /// payload, or the empty path for the fields of the payload.
    pub(super) fn members(self, reads: &ArgumentReads, payload: &Value) -> Vec<String> {
        let owned = |paths: &[&str]| paths.iter().map(|path| (*path).to_owned()).collect();
        let [value, output, data] = WRAPPER_MEMBERS;
        if self == Self::Wrapper {
            return owned(&[value, output, RECORDED_DATA]);
        }
        // The recorded argument has the payload at `data.result`, unless the payload itself has a
        // field `result`.
        let data = if reads.data_result && payload.get("result").is_none() { RECORDED_DATA } else { data };
        if reads.wrapper && reads.payload.is_empty() {
            owned(&[value, output, data])
        } else {
            owned(&[PAYLOAD_MEMBERS, value, output, data])
        }
    }
}

/// Fields of its argument that a conversion function names.
#[derive(Debug, Default)]
pub(super) struct ArgumentReads {
    /// Whether it names `value`, `output` or `data`.
    wrapper: bool,
    /// Whether it reads `result` in `data`.
    data_result: bool,
    /// Other fields of the argument itself.
    pub(super) payload: Vec<String>,
    /// Fields of the payload, read in any way.
    pub(super) members: Vec<String>,
}

/// Read of one field: `name['key']` or `name.get('key'`.
const MEMBER_READ: &str = r#"\s*(?:\.get\(\s*|\[\s*)['"](\w+)['"]"#;

impl ArgumentReads {
    /// Analyzes the source of a function; detects only reads through the parameter and simple
    /// copies of it.
    pub(super) fn of(source: &str) -> Self {
        let mut reads = Self::default();
        let Some(parameter) = parameter(source) else { return reads };
        let parameter = regex::escape(parameter);
        let each = |pattern: String, take: &mut dyn FnMut(&str)| {
            if let Ok(pattern) = regex::Regex::new(&pattern) {
                pattern.captures_iter(source).for_each(|found| take(&found[1]));
            }
        };
        each(format!(r"\b{parameter}{MEMBER_READ}"), &mut |key| {
            if WRAPPER_MEMBERS.contains(&key) {
                reads.wrapper = true;
            } else {
                reads.payload.push(key.to_owned());
            }
        });
        let after = r"\s*(?:,[^()\[\]]*)?[\])]";
        let wrapped = format!(r#"\b{parameter}\s*(?:\.get\(\s*|\[\s*)['"](?:value|output|data)['"]{after}"#);
        reads.members.clone_from(&reads.payload);
        each(format!("{wrapped}{MEMBER_READ}"), &mut |key| reads.members.push(key.to_owned()));
        // `reply = d['value']`, followed by `reply['key']`.
        let mut copies = Vec::new();
        each(format!(r"(?m)(\w+)\s*=\s*{wrapped}\s*(?:or\b.*)?$"), &mut |name| copies.push(name.to_owned()));
        for name in copies {
            let name = regex::escape(&name);
            each(format!(r"\b{name}{MEMBER_READ}"), &mut |key| reads.members.push(key.to_owned()));
        }
        each(format!(r#"['"](data)['"]{after}\s*(?:\.get\(\s*|\[\s*)['"]result['"]"#), &mut |_| {
            reads.data_result = true;
        });
        reads
    }
}

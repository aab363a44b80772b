//! The argument of conversion functions: which members hold the payload, and which members a function reads.

use serde_json::Value;

use super::convert::parameter;

/// Members of the argument that hold the payload, in every form of the argument.
const WRAPPER_MEMBERS: [&str; 3] = ["value", "output", "data"];
/// The member of the recorded argument that holds the payload one level deeper.
const RECORDED_DATA: &str = "data.result";
/// Stands for the members of the payload itself.
const PAYLOAD_MEMBERS: &str = "";

/// The argument that conversion functions of a workflow are called with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ConversionArgument {
    /// Exactly `{value, output, data: {result}}`, as recorded. Plans without a word about it mean this one.
    Wrapper,
    /// `{value, output, data}` and, for functions that read members of the payload, those members beside it.
    #[default]
    Payload,
}

impl ConversionArgument {
    /// Reads the form from its word in a file or plan.
    pub(super) fn of_word(word: &str) -> Option<Self> {
        match word {
            "wrapper" => Some(Self::Wrapper),
            "payload" => Some(Self::Payload),
            _ => None,
        }
    }

    /// Returns the word of the form.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Wrapper => "wrapper",
            Self::Payload => "payload",
        }
    }

    /// Returns the members of the argument for one function and payload: paths that hold the payload, or the empty path
    /// for the members of the payload.
    pub(super) fn members(self, reads: &ArgumentReads, payload: &Value) -> Vec<String> {
        let owned = |paths: &[&str]| paths.iter().map(|path| (*path).to_owned()).collect();
        let [value, output, data] = WRAPPER_MEMBERS;
        if self == Self::Wrapper {
            return owned(&[value, output, RECORDED_DATA]);
        }
        // The recorded argument has the payload below `data.result`; a payload with such a member of its own keeps it.
        let data = if reads.data_result && payload.get("result").is_none() { RECORDED_DATA } else { data };
        if reads.wrapper && reads.payload.is_empty() {
            owned(&[value, output, data])
        } else {
            owned(&[PAYLOAD_MEMBERS, value, output, data])
        }
    }
}

/// Members of its argument that a conversion function names.
#[derive(Debug, Default)]
pub(super) struct ArgumentReads {
    /// Whether it names `value`, `output` or `data`.
    wrapper: bool,
    /// Whether it reads `result` of `data`.
    data_result: bool,
    /// Other members of the argument itself.
    pub(super) payload: Vec<String>,
    /// Members of the payload, by whatever way.
    pub(super) members: Vec<String>,
}

/// Reads of one member: `name['key']` or `name.get('key'`.
const MEMBER_READ: &str = r#"\s*(?:\.get\(\s*|\[\s*)['"](\w+)['"]"#;

impl ArgumentReads {
    /// Looks at the text of a function; reads through other names than the parameter and simple copies are not seen.
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
        // `reply = d['value']` and then `reply['key']`.
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

//! `${NAME}` and `${NAME, default}` in values.
//!
//! Substitution works on scalars after parsing, so a variable can never add keys or structure.
//! `$${NAME}` results in the string `${NAME}`; braces around anything except a name are unchanged.

use std::borrow::Cow;
use std::collections::BTreeSet;

use serde_json::Value;
use sinew_codes as code;

/// First words of variables that configure the connection of a process. Files cannot read these
/// variables.
const RESERVED_FIRST_WORDS: [&str; 2] = ["NATS", "SINEW"];
/// Parts of a name that mark the value of a variable as secret.
const SECRET_PARTS: [&str; 6] = ["TOKEN", "KEY", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL"];
/// Words of a name, separated by `_`, that mark the value of a variable as secret.
const SECRET_WORDS: [&str; 17] = [
    "PASS",
    "PASSPHRASE",
    "PWD",
    "PAT",
    "PATS",
    "AUTH",
    "DSN",
    "COOKIE",
    "COOKIES",
    "SESSION",
    "SESSIONS",
    "PRIVATE",
    "CERT",
    "CERTS",
    "CREDS",
    "OAUTH",
    "JWT",
];

/// Treatment of `${NAME}` in the strings of a file.
#[derive(Clone, Copy)]
pub enum Variables<'a> {
    /// Strings are kept as written.
    Kept,
    /// The lookup returns the result for each name.
    Replaced(&'a dyn Fn(&str) -> Variable),
}

/// Result of a lookup for the name in one `${NAME}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Variable {
    /// The value replaces the reference.
    Value(String),
    /// The value is secret: the reference is kept, and an agent resolves it at the call.
    Secret,
    /// The variable has no value here: the default replaces the reference; without one the reference
    /// is kept.
    Absent,
    /// The variable is allowed, but not set.
    Unset,
    /// The name is not on the allow-list.
    NotAllowed,
    /// The name is reserved: see [`is_reserved_variable`].
    Reserved,
}

/// Returns whether files can never read a variable, even if it is on an allow-list: `NATS_*` and
/// `SINEW_*`.
pub fn is_reserved_variable(name: &str) -> bool {
    name.split_once('_')
        .is_some_and(|(first, _)| RESERVED_FIRST_WORDS.iter().any(|word| first.eq_ignore_ascii_case(word)))
}

/// Returns whether a string is valid as the name in `${NAME}`.
pub fn is_variable_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// Returns whether the name of a variable marks its value as secret.
fn is_secret_name(name: &str) -> bool {
    let upper = name.to_ascii_uppercase();
    SECRET_PARTS.iter().any(|part| upper.contains(part))
        || upper.split('_').any(|word| SECRET_WORDS.contains(&word))
}

/// Returns whether a value contains an address with a password, such as
/// `scheme://user:secret@host`.
fn holds_password(value: &str) -> bool {
    value.match_indices("://").any(|(at, separator)| {
        let rest = &value[at + separator.len()..];
        let address = rest.split(char::is_whitespace).next().unwrap_or_default();
        // A later `@` belongs to the path if a host with a port precedes it.
        let Some((user, (password, host))) =
            address.split_once(':').and_then(|(user, rest)| rest.rsplit_once('@').map(|rest| (user, rest)))
        else {
            return false;
        };
        let begins_path = |c| matches!(c, '/' | '?' | '#');
        let first = password.split(begins_path).next().unwrap_or_default();
        let is_port = first.len() < password.len() && first.bytes().all(|byte| byte.is_ascii_digit());
        !user.contains(begins_path) && !password.is_empty() && !host.is_empty() && !is_port
    })
}

/// Allow-list of the environment variables that a file may reference.
#[derive(Clone, Debug, Default)]
pub struct VariableRules {
    allowed: BTreeSet<String>,
    secret: BTreeSet<String>,
}

impl VariableRules {
    /// Allows a name. Its value is secret if the name contains TOKEN, KEY, SECRET, PASSWORD, AUTH,
    /// DSN or similar.
    pub fn allow(&mut self, name: &str) -> Result<(), VariableError> {
        if !is_variable_name(name) {
            return Err(VariableError::Name(name.chars().take(60).collect()));
        }
        if is_reserved_variable(name) {
            return Err(VariableError::Reserved(name.to_owned()));
        }
        self.allowed.insert(name.to_owned());
        if is_secret_name(name) {
            self.secret.insert(name.to_owned());
        }
        Ok(())
    }

    /// Allows a name whose value is secret.
    pub fn allow_secret(&mut self, name: &str) -> Result<(), VariableError> {
        self.allow(name)?;
        self.secret.insert(name.to_owned());
        Ok(())
    }

    /// Looks up one name. Reads the environment for allowed names only, and never for secret ones.
    /// A value that contains an address with a password is secret too.
    pub fn look_up(&self, name: &str, environment: &dyn Fn(&str) -> Option<String>) -> Variable {
        if is_reserved_variable(name) {
            Variable::Reserved
        } else if !self.allowed.contains(name) {
            Variable::NotAllowed
        } else if self.secret.contains(name) {
            Variable::Secret
        } else {
            match environment(name) {
                Some(value) if holds_password(&value) => Variable::Secret,
                Some(value) => Variable::Value(value),
                None => Variable::Unset,
            }
        }
    }
}

/// Reason why a variable cannot be used. The message contains the name and never a value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VariableError {
    /// The string is not a valid variable name.
    #[error("'{0}' is not a valid name of an environment variable")]
    Name(String),
    /// Files cannot read this variable.
    #[error("environment variable {0} is reserved: files never read NATS_* and SINEW_*")]
    Reserved(String),
    /// The name is not on the allow-list.
    #[error("environment variable {0} is not allowed here")]
    NotAllowed(String),
    /// The variable is allowed, is not set, and has no default.
    #[error("environment variable {0} is not set")]
    Unset(String),
}

impl VariableError {
    /// Returns the operator code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unset(_) => code::ENVIRONMENT_VARIABLE_NOT_SET.as_str(),
            Self::NotAllowed(_) => code::ENVIRONMENT_VARIABLE_NOT_ALLOWED.as_str(),
            Self::Name(_) | Self::Reserved(_) => code::ENVIRONMENT_VARIABLE_CANNOT_BE_USED.as_str(),
        }
    }
}

/// Resolves `${NAME}` in every string of a value at the call: in an agent, from its own
/// environment.
///
/// Names outside `allowed` fail; reserved names fail even inside it. Keys of objects are unchanged.
/// `on_secret` receives each substituted value, so that the caller can redact it in logs and
/// errors.
pub(crate) fn resolve_references(
    value: &Value,
    allowed: &[String],
    environment: &dyn Fn(&str) -> Option<String>,
    on_secret: &mut dyn FnMut(&str),
) -> Result<Value, VariableError> {
    Ok(match value {
        Value::String(text) => Value::String(resolve_text(text, allowed, environment, on_secret)?),
        Value::Array(items) => Value::Array(
            items
                .iter()
                .map(|item| resolve_references(item, allowed, environment, on_secret))
                .collect::<Result<_, _>>()?,
        ),
        Value::Object(members) => Value::Object(
            members
                .iter()
                .map(|(key, value)| {
                    Ok((key.clone(), resolve_references(value, allowed, environment, on_secret)?))
                })
                .collect::<Result<_, VariableError>>()?,
        ),
        other => other.clone(),
    })
}

fn resolve_text(
    text: &str,
    allowed: &[String],
    environment: &dyn Fn(&str) -> Option<String>,
    on_secret: &mut dyn FnMut(&str),
) -> Result<String, VariableError> {
    let read = std::cell::RefCell::new(Vec::new());
    let look_up = |name: &str| {
        if is_reserved_variable(name) {
            Variable::Reserved
        } else if !allowed.iter().any(|allowed| allowed == name) {
            Variable::NotAllowed
        } else {
            environment(name).map_or(Variable::Unset, |value| {
                read.borrow_mut().push(value.clone());
                Variable::Value(value)
            })
        }
    };
    let resolved = substitute(text, &look_up)?.text.into_owned();
    read.take().iter().for_each(|value| on_secret(value));
    Ok(resolved)
}

/// String after substitution.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SubstitutedText<'t> {
    pub(crate) text: Cow<'t, str>,
    /// Whether the whole string was one substitution, so that its type may come from the variable.
    pub(crate) whole: bool,
    /// Number of bytes that came from variables.
    pub(crate) added: usize,
}

impl<'t> SubstitutedText<'t> {
    /// Returns a string without substitutions.
    pub(crate) fn kept(text: &'t str) -> Self {
        Self { text: Cow::Borrowed(text), whole: false, added: 0 }
    }
}

/// Replaces every substitution in `text`.
pub(crate) fn substitute<'t>(
    text: &'t str,
    look_up: &dyn Fn(&str) -> Variable,
) -> Result<SubstitutedText<'t>, VariableError> {
    let mut out = String::new();
    let mut done = 0; // everything before this byte is in `out`
    let mut from = 0; // where to look for the next `${`
    let (mut whole, mut added) = (false, 0);
    while let Some(at) = text[from..].find("${").map(|at| from + at) {
        let Some(found) = VariableReference::parse(&text[at..]) else {
            from = at + 2;
            continue;
        };
        let end = at + found.length;
        if at > done && text.as_bytes()[at - 1] == b'$' {
            out.push_str(&text[done..at - 1]);
            out.push_str(&text[at..end]);
        } else {
            let value = match look_up(found.name) {
                Variable::Value(value) => value,
                kept if kept == Variable::Secret || kept == Variable::Absent && found.default.is_none() => {
                    from = end;
                    continue;
                }
                missing => found.default_or(&missing)?.to_owned(),
            };
            out.push_str(&text[done..at]);
            added += value.len();
            out.push_str(&value);
            whole = at == 0 && end == text.len();
        }
        (done, from) = (end, end);
    }
    if done == 0 {
        return Ok(SubstitutedText::kept(text));
    }
    out.push_str(&text[done..]);
    Ok(SubstitutedText { text: Cow::Owned(out), whole, added })
}

/// A `${NAME}` or `${NAME, default}` at the start of a string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VariableReference<'t> {
    /// Name of the variable.
    pub name: &'t str,
    /// Default for a variable that is not set.
    pub default: Option<&'t str>,
    /// Length of the whole reference in bytes.
    pub length: usize,
}

impl<'t> VariableReference<'t> {
    /// Parses the reference at the start of a string.
    pub fn parse(text: &'t str) -> Option<Self> {
        let inner = text.strip_prefix("${")?;
        let inner = &inner[..inner.find('}')?];
        let (name, default) = match inner.split_once(',') {
            Some((name, default)) => (name, Some(default.trim())),
            None => (inner, None),
        };
        let name = name.trim();
        is_variable_name(name).then_some(Self { name, default, length: inner.len() + 3 })
    }

    /// Returns the default, or the reason why there is no value.
    fn default_or(&self, missing: &Variable) -> Result<&'t str, VariableError> {
        let name = || self.name.to_owned();
        self.default.ok_or_else(|| match missing {
            Variable::Reserved => VariableError::Reserved(name()),
            Variable::NotAllowed => VariableError::NotAllowed(name()),
            _ => VariableError::Unset(name()),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Result and whether it was one whole substitution, or the error.
    type Expected = Result<(&'static str, bool), &'static str>;

    #[test]
    fn substitution() {
        let look_up = |name: &str| match name {
            "A" => Variable::Value("1".to_owned()),
            "TRICK" => Variable::Value("${A}".to_owned()),
            "EMPTY" => Variable::Value(String::new()),
            "TOKEN" => Variable::Secret,
            "OTHER" => Variable::NotAllowed,
            "NATS_URL" => Variable::Reserved,
            _ => Variable::Unset,
        };
        let cases: &[(&str, Expected)] = &[
            ("plain", Ok(("plain", false))),
            ("${A}", Ok(("1", true))),
            ("${ A }", Ok(("1", true))),
            ("x${A}y${A}", Ok(("x1y1", false))),
            ("${A}${A}", Ok(("11", false))),
            ("${NO, ws://localhost:8008}", Ok(("ws://localhost:8008", true))),
            ("${NO,}", Ok(("", true))),
            ("${EMPTY, x}", Ok(("", true))),
            ("${NO}", Err("environment variable NO is not set")),
            ("${TRICK}", Ok(("${A}", true))),
            ("$${A}", Ok(("${A}", false))),
            ("x$${A}${A}", Ok(("x${A}1", false))),
            ("${A", Ok(("${A", false))),
            ("${a.b}", Ok(("${a.b}", false))),
            ("${{ x }}", Ok(("${{ x }}", false))),
            ("${}${A}", Ok(("${}1", false))),
            ("${1A}", Ok(("${1A}", false))),
            ("$A", Ok(("$A", false))),
            ("${TOKEN}", Ok(("${TOKEN}", false))),
            ("${TOKEN, x}${A}$${TOKEN}", Ok(("${TOKEN, x}1${TOKEN}", false))),
            ("${OTHER}", Err("environment variable OTHER is not allowed here")),
            ("${OTHER, x}", Ok(("x", true))),
            ("${NATS_URL, x}", Ok(("x", true))),
            (
                "${NATS_URL}",
                Err("environment variable NATS_URL is reserved: files never read NATS_* and SINEW_*"),
            ),
        ];
        for (text, expected) in cases {
            let got = substitute(text, &look_up);
            let got = match &got {
                Ok(found) => Ok((&*found.text, found.whole)),
                Err(error) => Err(error.to_string()),
            };
            assert_eq!(got, expected.map_err(str::to_owned), "{text}");
        }
    }

    #[test]
    fn rules_ask_for_allowed_names_only() {
        let mut rules = VariableRules::default();
        for name in ["REGION", "UNSET", "API_KEY", "my_password"] {
            rules.allow(name).unwrap();
        }
        rules.allow_secret("HARMLESS_NAME").unwrap();
        for (name, code) in [("NATS_CREDS", 1018), ("Sinew_X", 1018), ("A-B", 1018), ("", 1018), ("1A", 1018)]
        {
            assert_eq!(rules.allow(name).unwrap_err().code(), format!("SINEW-{code}"), "{name}");
        }
        let environment = |name: &str| match name {
            "REGION" => Some("eu".to_owned()),
            "UNSET" => None,
            other => panic!("{other} was read"),
        };
        for (name, expected) in [
            ("REGION", Variable::Value("eu".to_owned())),
            ("UNSET", Variable::Unset),
            ("API_KEY", Variable::Secret),
            ("my_password", Variable::Secret),
            ("HARMLESS_NAME", Variable::Secret),
            ("HOME", Variable::NotAllowed),
            ("NATS_CREDS", Variable::Reserved),
            ("SINEW_NAMESPACE", Variable::Reserved),
        ] {
            assert_eq!(rules.look_up(name, &environment), expected, "{name}");
        }
    }

    #[test]
    fn secrets_are_known_by_words_and_by_addresses_with_passwords() {
        for (name, secret) in [
            ("DB_PASS", true),
            ("smtp_pwd", true),
            ("GITHUB_PAT", true),
            ("BASIC_AUTH", true),
            ("SENTRY_DSN", true),
            ("COOKIE", true),
            ("SESSION_ID", true),
            ("PRIVATE_PEM", true),
            ("TLS_CERT", true),
            ("AWS_CREDS", true),
            ("APIKEY", true),
            ("PATH", false),
            ("AUTHOR", false),
            ("COMPASS", false),
            ("CERTAINTY", false),
            ("REGION", false),
        ] {
            assert_eq!(is_secret_name(name), secret, "{name}");
        }
        for (value, secret) in [
            ("postgres://app:hunter2@db/orders", true),
            ("redis://:hunter2@cache:6379", true),
            ("https://user:p/a@ss@host", true),
            ("first=http://a.example second=amqp://a:b@mq", true),
            ("https://example.com:8443/a", false),
            ("https://example.com:8443/@scope/a", false),
            ("https://example.com/a:b@c", false),
            ("https://user@example.com/", false),
            ("https://user:@example.com/", false),
            ("mail me@example.com", false),
            ("https://example.com user:x@y", false),
        ] {
            let mut rules = VariableRules::default();
            rules.allow("ADDRESS").unwrap();
            let found = rules.look_up("ADDRESS", &|_| Some(value.to_owned()));
            let expected = if secret { Variable::Secret } else { Variable::Value(value.to_owned()) };
            assert_eq!(found, expected, "{value}");
        }
    }

    #[test]
    fn references_are_resolved_by_an_allow_list() {
        let environment = |name: &str| match name {
            "TOKEN" => Some("s3cret".to_owned()),
            "UNSET" => None,
            other => panic!("{other} was read"),
        };
        let allowed = ["TOKEN", "UNSET", "NATS_CREDS"].map(str::to_owned);
        let mut secrets = Vec::new();
        let value = json!({"headers": {"${TOKEN}": ["Bearer ${TOKEN}", 1, "$${TOKEN}", "${UNSET, x}"]}});
        let mut resolve = |value: &Value| {
            resolve_references(value, &allowed, &environment, &mut |secret| secrets.push(secret.to_owned()))
        };
        let resolved = resolve(&value).unwrap();
        assert_eq!(resolved, json!({"headers": {"${TOKEN}": ["Bearer s3cret", 1, "${TOKEN}", "x"]}}));
        for (text, code) in
            [("${HOME}", "SINEW-1017"), ("${UNSET}", "SINEW-1016"), ("${NATS_CREDS}", "SINEW-1018")]
        {
            assert_eq!(resolve(&json!([text])).unwrap_err().code(), code, "{text}");
        }
        assert_eq!(secrets, ["s3cret"]);
    }
}

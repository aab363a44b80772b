//! The result marker that a language model writes: `«result:artifact=NAME[:vN] status=… message="…"»`.

use crate::artifact::{ArtifactName, ArtifactRef, BadArtifact};

/// Result that a model embeds in its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResultEmbed {
    /// Name of the artifact as written; empty if absent.
    pub artifact: String,
    /// Version, if present.
    pub version: Option<u32>,
    /// Whether the status is a failure (`error`, `failure`, `failed`); every other status is a
    /// success.
    pub failed: bool,
    /// Explanation of the status.
    pub message: Option<String>,
}

impl ResultEmbed {
    /// Parses the last complete marker in a model's text; earlier ones are drafts.
    ///
    /// ```
    /// # use sinew_protocol::embed::ResultEmbed;
    /// let embed = ResultEmbed::last("Done. «result:artifact=o.json:v2 status=success»").unwrap();
    /// assert_eq!((embed.artifact.as_str(), embed.version, embed.failed), ("o.json", Some(2), false));
    /// ```
    pub fn last(text: &str) -> Option<Self> {
        text.rmatch_indices(OPEN).find_map(|(at, _)| {
            let fields = fields(&text[at + OPEN.len()..])?;
            Some(Self::of(&fields))
        })
    }

    fn of(fields: &[(&str, String)]) -> Self {
        let field = |name| fields.iter().rev().find(|(key, _)| *key == name).map(|(_, value)| value.as_str());
        let written = field("artifact").unwrap_or_default();
        // A version that is not a number (`o.json:latest`) is ignored; the name is the part before
        // it.
        let (artifact, suffix) = match split_version(written) {
            (name, None) => (name.rsplit_once(':').map_or(name, |(name, _)| name), None),
            named => named,
        };
        Self {
            artifact: artifact.to_owned(),
            version: field("version").and_then(version).or(suffix),
            failed: matches!(field("status"), Some("error" | "failure" | "failed")),
            message: field("message").map(str::to_owned),
        }
    }

    /// Returns `success` or `error`.
    pub fn status(&self) -> &'static str {
        if self.failed { "error" } else { "success" }
    }

    /// Returns the reference to the artifact, or `None` if the marker has no artifact.
    pub fn reference(&self) -> Option<Result<ArtifactRef, BadArtifact>> {
        let named = |name| ArtifactRef { name, version: self.version };
        (!self.artifact.is_empty()).then(|| ArtifactName::parse(&self.artifact).map(named))
    }
}

const OPEN: &str = "«result:";

/// Splits `NAME:2` or `NAME:v2` into name and version.
pub fn split_version(text: &str) -> (&str, Option<u32>) {
    match text.rsplit_once(':').map(|(name, suffix)| (name, version(suffix))) {
        Some((name, Some(version))) => (name, Some(version)),
        _ => (text, None),
    }
}

fn version(text: &str) -> Option<u32> {
    text.strip_prefix('v').unwrap_or(text).parse().ok()
}

/// Parses the `key=value` pairs up to the closing `»`. Values may be quoted; `\` escapes inside
/// quotes. Returns `None` without a closing `»`.
fn fields(text: &str) -> Option<Vec<(&str, String)>> {
    let mut found = Vec::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches([' ', '\t', '\n', '\r', ',']);
        if rest.starts_with('»') {
            return Some(found);
        }
        let end = rest.find(|c: char| c == '=' || c == '»' || c.is_whitespace())?;
        let key = &rest[..end];
        rest = &rest[end..];
        if let Some(value) = rest.strip_prefix('=') {
            let (value, after) = take_value(value)?;
            found.push((key, value));
            rest = after;
        }
    }
}

fn take_value(text: &str) -> Option<(String, &str)> {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find(|c: char| c == '»' || c.is_whitespace())?;
        return Some((text[..end].trim_end_matches(',').to_owned(), &text[end..]));
    };
    let mut value = String::new();
    let mut characters = quoted.char_indices();
    while let Some((at, c)) = characters.next() {
        match c {
            '"' => return Some((value, &quoted[at + 1..])),
            '\\' => value.push(characters.next()?.1),
            _ => value.push(c),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// artifact, version, status, message
    fn check(text: &str, want: Option<(&str, Option<u32>, &str, Option<&str>)>) {
        let found = ResultEmbed::last(text);
        let found =
            found.as_ref().map(|e| (e.artifact.as_str(), e.version, e.status(), e.message.as_deref()));
        assert_eq!(found, want, "{text}");
    }

    #[test]
    fn markers_are_read_as_models_write_them() {
        check("«result:artifact=o.json:v2»", Some(("o.json", Some(2), "success", None)));
        check("«result: artifact=o.json,\n status=success»", Some(("o.json", None, "success", None)));
        check(
            r#"«result:artifact="my file.json" status=error message="a \"b\" » c"»"#,
            Some(("my file.json", None, "error", Some("a \"b\" » c"))),
        );
        check("«result:artifact=o.json:latest»", Some(("o.json", None, "success", None)));
        check("«result:artifact=o.json:vX version=3»", Some(("o.json", Some(3), "success", None)));
        check("«result:status=failed»", Some(("", None, "error", None)));
        check("«result:»", Some(("", None, "success", None)));
        check("«result:artifact=a.json» then «result:artifact=b", Some(("a.json", None, "success", None)));
        check("«math:1+1» result:artifact=a", None);
        check("«result:artifact=a status", None);
    }

    #[test]
    fn a_named_artifact_is_checked() {
        let reference = |text| ResultEmbed::last(text).unwrap().reference();
        assert_eq!(reference("«result:artifact=o.json:1»").unwrap().unwrap().to_string(), "o.json:v1");
        assert!(reference("«result:artifact=../o.json»").unwrap().is_err());
        assert!(reference("«result:status=error»").is_none());
    }

    proptest! {
        #[test]
        fn any_text_is_survived(text in "(«result:|»|=|\"|\\\\| |artifact|[a-zé:]){0,40}") {
            let _ = ResultEmbed::last(&text);
        }
    }
}

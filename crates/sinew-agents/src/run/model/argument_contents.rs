//! Expands `«artifact_content:NAME:v1»` in the arguments of calls to the content of the artifact.

use serde_json::Value;
use sinew_model::EffectClass;
use sinew_protocol::embed::split_version;

use crate::artifacts::Artifacts;

const OPEN: &str = "«artifact_content:";
const CLOSE: char = '»';

/// Maximum bytes of contents in the arguments of a call.
const MAX_CONTENT_BYTES: usize = 256 << 10;

/// Returns the arguments with contents instead of references. Fails, with a message for the model, if
/// an artifact does not exist, if the contents are too large, or if a call with `effect: once` omits
/// the version: the person who approves it must know the content.
pub(super) fn with_contents(
    arguments: &Value,
    effect: EffectClass,
    artifacts: &dyn Artifacts,
) -> Result<Value, String> {
    let mut filling = ContentFilling { effect, artifacts, left: MAX_CONTENT_BYTES };
    filling.value(arguments)
}

struct ContentFilling<'a> {
    effect: EffectClass,
    artifacts: &'a dyn Artifacts,
    left: usize,
}

impl ContentFilling<'_> {
    fn value(&mut self, value: &Value) -> Result<Value, String> {
        Ok(match value {
            Value::String(text) if text.contains(OPEN) => Value::String(self.text(text)?),
            Value::Array(items) => items.iter().map(|item| self.value(item)).collect::<Result<_, _>>()?,
            Value::Object(members) => {
                let filled = members.iter().map(|(key, value)| Ok((key.clone(), self.value(value)?)));
                Value::Object(filled.collect::<Result<_, String>>()?)
            }
            other => other.clone(),
        })
    }

    fn text(&mut self, text: &str) -> Result<String, String> {
        let (mut filled, mut rest) = (String::new(), text);
        while let Some((before, after)) = rest.split_once(OPEN) {
            let (name, behind) =
                after.split_once(CLOSE).ok_or_else(|| format!("a name after {OPEN} is not terminated"))?;
            filled.push_str(before);
            filled.push_str(&self.content(name)?);
            rest = behind;
        }
        filled.push_str(rest);
        Ok(filled)
    }

    fn content(&mut self, reference: &str) -> Result<String, String> {
        let (name, version) = split_version(reference.trim());
        if version.is_none() && self.effect == EffectClass::Once {
            return Err(format!(
                "this call has side effects: name the version of the artifact, such as «artifact_content:{name}:v0»"
            ));
        }
        let bytes = self.artifacts.get(name, version).map_err(|error| error.to_string())?;
        self.left = self
            .left
            .checked_sub(bytes.len())
            .ok_or_else(|| format!("the contents of artifacts have more than {MAX_CONTENT_BYTES} bytes"))?;
        String::from_utf8(bytes).map_err(|_| format!("the artifact '{name}' is not text"))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::artifacts::ArtifactFolder;

    #[test]
    fn names_of_artifacts_become_their_contents() {
        let folder = tempfile::tempdir().unwrap();
        let artifacts = ArtifactFolder::open(folder.path().join("artifacts")).unwrap();
        artifacts.put("note.md", b"first \xc2\xabresult\xc2\xbb", None).unwrap();
        artifacts.put("note.md", b"second", None).unwrap();
        artifacts.put("picture.png", &[0xff, 0xfe], None).unwrap();
        artifacts.put("long.txt", &vec![b'x'; MAX_CONTENT_BYTES], None).unwrap();
        let check = |arguments: Value, effect, expected: Result<Value, &str>| {
            let filled = with_contents(&arguments, effect, &artifacts);
            match (filled, expected) {
                (Ok(filled), Ok(expected)) => assert_eq!(filled, expected),
                (Err(reason), Err(part)) => assert!(reason.contains(part), "{reason}"),
                (filled, expected) => panic!("{filled:?}, not {expected:?}"),
            }
        };
        let (repeat, once) = (EffectClass::Repeat, EffectClass::Once);
        let sent = |text: &str| json!({"to": ["ops", {"text": text}], "n": 3});
        check(sent("a «artifact_content:note.md» b"), repeat, Ok(sent("a second b")));
        check(sent("«artifact_content:note.md:v0»"), once, Ok(sent("first «result»")));
        check(sent("«artifact_content:note.md»"), once, Err("name the version"));
        check(sent("«artifact_content:none.md»"), repeat, Err("none.md"));
        check(sent("«artifact_content:note.md"), repeat, Err("is not terminated"));
        check(sent("«artifact_content:picture.png»"), repeat, Err("is not text"));
        let twice = "«artifact_content:long.txt» «artifact_content:note.md»";
        check(sent(twice), repeat, Err("more than"));
    }
}

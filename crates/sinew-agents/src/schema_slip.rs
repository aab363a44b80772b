//! Detects a mistake in schemas of agent files: an unquoted text with a comma, which YAML splits.

use serde_json::Value;

use crate::complaint::{FileComplaint, escape_key};

/// Keywords of JSON Schema whose values are data.
const DATA_WORDS: [&str; 4] = ["default", "const", "enum", "examples"];

/// Reports each part of a text that became a keyword of the schema at this pointer.
pub(crate) fn schema_slips(pointer: &str, schema: &Value) -> Vec<FileComplaint> {
    match schema {
        Value::Object(members) => members
            .iter()
            .filter(|(word, _)| !DATA_WORDS.contains(&word.as_str()))
            .flat_map(|(word, value)| {
                let at = format!("{pointer}/{}", escape_key(word));
                if value.is_null() && word.contains(' ') {
                    let text =
                        format!("'{word}' is not a word of a schema; put a text with a comma into quotes");
                    vec![FileComplaint::new(at, text)]
                } else {
                    schema_slips(&at, value)
                }
            })
            .collect(),
        Value::Array(items) => {
            let each = items.iter().enumerate();
            each.flat_map(|(index, item)| schema_slips(&format!("{pointer}/{index}"), item)).collect()
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn texts_that_became_words_are_found() {
        for (schema, found) in [
            (
                json!({"properties": {"a": {"description": "one", "or two": null}}}),
                vec!["/s/properties/a/or two"],
            ),
            (
                json!({"anyOf": [{"description": "one", "two/three or 4": null}]}),
                vec!["/s/anyOf/0/two~1three or 4"],
            ),
            (json!({"description": "one, or two", "default": null, "const": {"a b": null}}), vec![]),
        ] {
            let slips = schema_slips("/s", &schema);
            assert_eq!(slips.iter().map(|slip| slip.pointer.as_str()).collect::<Vec<_>>(), found, "{schema}");
        }
    }
}

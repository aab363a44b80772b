//! Comma-separated values (RFC 4180) of documents.

use serde_json::{Map, Value};

/// Formats a document as a table: a list of objects, or an object with one in `rows`. The columns are the
/// members of all objects in order; members of nested objects are named `outer.inner`. Returns `None` for
/// a document without such a list.
pub fn table(document: &Value) -> Option<String> {
    let rows = document.as_array().or_else(|| document.get("rows")?.as_array())?;
    let rows: Vec<Map<String, Value>> = rows.iter().map(flat).collect::<Option<_>>()?;
    let mut heads: Vec<&String> = Vec::new();
    for name in rows.iter().flat_map(Map::keys) {
        if !heads.contains(&name) {
            heads.push(name);
        }
    }
    let line = |cells: Vec<String>| cells.join(",") + "\r\n";
    let mut text = line(heads.iter().map(|head| cell(head)).collect());
    for row in &rows {
        text += &line(heads.iter().map(|head| row.get(*head).map_or_else(String::new, value)).collect());
    }
    Some(text)
}

fn flat(row: &Value) -> Option<Map<String, Value>> {
    let mut flat = Map::new();
    for (name, value) in row.as_object()? {
        match value {
            Value::Object(inner) => {
                flat.extend(inner.iter().map(|(key, value)| (format!("{name}.{key}"), value.clone())));
            }
            value => drop(flat.insert(name.clone(), value.clone())),
        }
    }
    Some(flat)
}

fn value(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::String(text) => cell(text),
        nested => cell(&nested.to_string()),
    }
}

/// Untrusted text as a cell. A leading quote prevents spreadsheets from evaluating formulas.
pub fn cell(text: &str) -> String {
    let guard = if text.starts_with(['=', '+', '-', '@', '\t', '\r']) { "'" } else { "" };
    format!("\"{guard}{}\"", text.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn lists_of_objects_are_tables() {
        let rows = json!([{"name": "a,\"b\"", "ms": {"p50": 1}}, {"name": "=1+1", "cost": 0.5, "ms": {"p50": null}}]);
        let text = "\"name\",\"ms.p50\",\"cost\"\r\n\"a,\"\"b\"\"\",1,\r\n\"'=1+1\",,0.5\r\n";
        assert_eq!(table(&rows).as_deref(), Some(text));
        assert_eq!(table(&json!({"coverage": {}, "rows": rows})).as_deref(), Some(text));
        assert_eq!(table(&json!([])).as_deref(), Some("\r\n"));
        assert_eq!(table(&json!({"name": "a"})), None);
        assert_eq!(table(&json!(["a"])), None);
    }
}

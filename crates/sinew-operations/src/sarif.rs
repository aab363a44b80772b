//! Findings in workflow files as SARIF 2.1.0, for code scanning.

use serde_json::Value;

use crate::workflow_search::SearchedFile;

/// Returns the findings as one SARIF run for all files: code scanning takes one run per tool.
pub fn sarif(files: &[SearchedFile]) -> String {
    let parse = |file: &SearchedFile| -> Value {
        serde_json::from_str(&sinew_source::render_sarif(&file.diagnostics)).unwrap_or_default()
    };
    let mut files = files.iter();
    let mut whole = files.next().map(parse).unwrap_or_default();
    for file in files {
        let mut more = parse(file);
        for list in ["/runs/0/results", "/runs/0/tool/driver/rules"] {
            let added = more.pointer_mut(list).map(Value::take).unwrap_or_default();
            let (Some(all), Value::Array(added)) =
                (whole.pointer_mut(list).and_then(Value::as_array_mut), added)
            else {
                continue;
            };
            for item in added {
                // Rules are listed once; results never repeat, because their files differ.
                if !all.contains(&item) {
                    all.push(item);
                }
            }
        }
    }
    serde_json::to_string_pretty(&whole).unwrap_or_default()
}

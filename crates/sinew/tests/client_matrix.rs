//! Clients and frameworks of other vendors: the matrix of `tests/clients`, and the pages about them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

/// Exit code of the matrix where nothing can be installed.
const NOTHING_INSTALLED: i32 = 3;
/// Maximum length of a page.
const MAX_LINES: usize = 60;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn matrix() -> Value {
    let text = fs::read_to_string(root().join("tests/clients/matrix.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// The SDKs. The frameworks above them install more, and run by night: see `docs/testing.md`.
#[test]
fn sdks_of_other_vendors_work() {
    let mut run = Command::new("python3");
    run.arg(root().join("tests/clients/run")).args(["--sinew", env!("CARGO_BIN_EXE_sinew")]);
    let ended = run.stdin(Stdio::null()).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
    println!("{out}");
    assert!(ended.status.success() || ended.status.code() == Some(NOTHING_INSTALLED), "{out}\n{err}");
}

/// The code of a page is the code that fills the cells, and each cell has a script or a reason.
#[test]
fn pages_of_clients_show_the_code_that_runs() {
    let matrix = matrix();
    let table = fs::read_to_string(root().join("docs/clients.md")).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    for framework in matrix["frameworks"].as_array().unwrap() {
        let (name, version) = (text(&framework["name"]), text(&framework["version"]));
        let (folder, ending, mark, fence) = match framework["language"].as_str().unwrap() {
            "python" => ("python".to_owned(), "py", "#", "python"),
            _ => (text(&framework["environment"]), "mjs", "//", "js"),
        };
        let clients = root().join("tests/clients");
        let script = fs::read_to_string(clients.join(folder).join(format!("{name}.{ending}"))).unwrap();
        let (start, end) = (format!("{mark} page\n"), format!("\n{mark} end page\n"));
        let code = script.split(&start).nth(1).unwrap().split(&end).next().unwrap();
        let page = fs::read_to_string(root().join(format!("docs/clients/{name}.md"))).unwrap();
        assert!(
            page.contains(&format!("```{fence}\n{code}\n```")),
            "{name}: the page has other code:\n{code}"
        );
        assert!(page.contains(&version), "{name}: the page does not name version {version}");
        assert!(page.lines().count() <= MAX_LINES, "{name}: the page has more than {MAX_LINES} lines");
        let row = format!("](clients/{name}.md) | {version} |");
        assert!(table.contains(&row), "{name}: docs/clients.md has no row with {row}");
        let shared = fs::read_to_string(clients.join("node/mcp-cells.mjs")).unwrap();
        let script = if script.contains("mcp-cells") { script + &shared } else { script };
        for behaviour in matrix["behaviours"].as_object().unwrap().keys() {
            let is_filled =
                ["cell(\"", "cell('"].iter().any(|open| script.contains(&format!("{open}{behaviour}")));
            let reasons =
                ["framework", "sinew"].map(|by| &framework[format!("not_offered_by_{by}")][behaviour]);
            let is_explained =
                reasons.iter().any(|reason| reason.as_str().is_some_and(|why| !why.is_empty()));
            assert!(is_filled != is_explained, "{name}: {behaviour} needs a cell or a reason");
        }
    }
}

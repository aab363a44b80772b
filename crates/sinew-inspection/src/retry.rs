//! `execution retry --dry-run`: nodes that are kept, rerun, reset and not affected.

use sinew_documents::node_status::NodeStatus;
use sinew_documents::retry::{NewVersionPreview, RetryPreview};
use sinew_documents::words;
use sinew_engine::{InputRefusal, RetryRequest};

use crate::node_rows;
use crate::record::Record;

/// Maximum width of an input.
const INPUT_WIDTH: usize = 60;

/// Plans a retry with the rule of the engine.
pub fn preview(record: &Record, retry: &RetryRequest) -> Result<RetryPreview, InputRefusal> {
    let program = record.execution.program();
    let graph = &program.graph;
    let plan = record.execution.machine().plan_retry(retry)?;
    let touched =
        |id: &String| plan.keep.contains(id) || plan.rerun.contains_key(id) || plan.reset.contains(id);
    let untouched = node_rows::rows(&record.execution, record.at())
        .into_iter()
        .filter(|row| !touched(&row.node))
        .map(|row| row.node)
        .collect();
    Ok(RetryPreview {
        execution: record.id().to_owned(),
        workflow: record.plan().name.clone(),
        version: graph.digest().to_owned(),
        latest: None,
        keep: plan.keep,
        rerun: plan.rerun,
        reset: plan.reset,
        untouched,
        input: retry.input.clone(),
        new_execution: None,
    })
}

/// Formats the preview for people.
pub fn text(preview: &RetryPreview, record: &Record) -> String {
    let rows = node_rows::rows(&record.execution, record.at());
    let word =
        |id: &str| rows.iter().find(|row| row.node == id).map_or(NodeStatus::Planned, |row| row.status);
    let mut lines = Vec::new();
    let mut line = |what: &str, nodes: String, why: String| {
        if !nodes.is_empty() {
            let why = if why.is_empty() { why } else { format!("({why})") };
            lines.push(vec![what.to_owned(), nodes, why]);
        }
    };
    let none = NewVersionPreview::default();
    let new = preview.new_execution.as_ref();
    let changes = new.unwrap_or(&none);
    let kept = if new.is_some() {
        "unchanged and completed; outputs are reused"
    } else {
        "completed; outputs are reused"
    };
    line("would keep", preview.keep.join(", "), kept.into());
    for (node, children) in &preview.rerun {
        let nodes = match children {
            0 => node.clone(),
            1 => format!("{node} (1 child)"),
            children => format!("{node} ({children} children)"),
        };
        line("would run", nodes, word(node).as_str().to_owned());
    }
    line("would run", changes.changed.join(", "), "changed in the newest version".into());
    line("would run", changes.added.join(", "), "new in the newest version".into());
    line("would ask", changes.asked_again.join(", "), "people are asked again".into());
    let reset =
        if new.is_some() { "recomputed, or depends on a rerun node" } else { "depends on a rerun node" };
    line("would reset", preview.reset.join(", "), reset.into());
    line("removed", changes.removed.join(", "), "not in the newest version".into());
    line("untouched", preview.untouched.join(", "), String::new());
    let input = preview.input.as_ref().map(|input| words::one_line(&input.to_string(), INPUT_WIDTH));
    line("input", input.unwrap_or_default(), "replaces its previous input".into());
    line(
        "workflow",
        format!("{}@{}", preview.workflow, words::short(&preview.version)),
        version_words(preview),
    );
    words::columns(&lines)
}

/// Formats the version of a retry, and the alternative.
fn version_words(preview: &RetryPreview) -> String {
    let short = words::short;
    match (&preview.new_execution, &preview.latest) {
        (Some(new), _) => format!(
            "the newest version, in a new execution; {} was started with {}",
            words::short_id(&preview.execution),
            short(&new.started_with)
        ),
        (None, Some(latest)) => format!(
            "the version it was started with; the newest is {}, use --workflow-version latest",
            short(latest)
        ),
        (None, None) => "the version it was started with".to_owned(),
    }
}

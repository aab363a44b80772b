//! The timeline of an execution as a table for people, and as CSV for spreadsheets.

use sinew_documents::csv::cell;
use sinew_documents::words::{columns, count, duration};
use std::fmt::Write as _;

use sinew_documents::timeline::{SpanKind, Timeline, TimelineRow};

/// Kinds of time with their names and headings, in column order.
const KINDS: [(SpanKind, &str, &str); 7] = [
    (SpanKind::Queued, "queued", "QUEUED"),
    (SpanKind::AgentQueue, "agent_queue", "AGENT QUEUE"),
    (SpanKind::Agent, "agent", "AGENT"),
    (SpanKind::BackOff, "back_off", "BACK-OFF"),
    (SpanKind::Timer, "timer", "TIMER"),
    (SpanKind::Person, "person", "PERSON"),
    (SpanKind::Children, "children", "CHILDREN"),
];

fn total(row: &TimelineRow, kind: SpanKind) -> u64 {
    row.spans.iter().filter(|span| span.kind == kind).map(|span| span.to.saturating_sub(span.from)).sum()
}

/// Legend of a table with stars.
const CRITICAL_LEGEND: &str = "* on the critical path: determines the duration of the execution";

/// Formats a row for each activation with the total of each kind of time. A star marks the critical
/// path. Quiet nodes that need no attention are one line if `folds_quiet`.
pub fn text(timeline: &Timeline, folds_quiet: bool) -> String {
    let mut heads = vec!["NODE".to_owned(), "STATUS".to_owned()];
    heads.extend(KINDS.iter().map(|(.., head)| (*head).to_owned()));
    let mut lines = vec![heads];
    let is_folded = |row: &&TimelineRow| folds_quiet && row.may_fold();
    let mut legend = String::new();
    for row in timeline.rows.iter().filter(|row| !is_folded(row)) {
        if row.critical && legend.is_empty() {
            legend = format!("\n{CRITICAL_LEGEND}");
        }
        let mark = if row.critical { " *" } else { "" };
        let mut line = vec![format!("{}{mark}", row.node), row.status.as_str().to_owned()];
        line.extend(KINDS.iter().map(|(kind, ..)| match total(row, *kind) {
            0 => "-".to_owned(),
            ms => duration(ms),
        }));
        lines.push(line);
    }
    let folded: Vec<&TimelineRow> = timeline.rows.iter().filter(is_folded).collect();
    let quiet = if folded.is_empty() {
        String::new()
    } else {
        let own = folded.iter().flat_map(|row| &row.spans).filter(|span| span.kind != SpanKind::Children);
        let time = duration(own.map(|span| span.to.saturating_sub(span.from)).sum());
        format!("\n{}, {time} in total; see --no-fold", count(folded.len(), "quiet activation"))
    };
    let more =
        if timeline.more > 0 { format!("\n{} more; see --limit", timeline.more) } else { String::new() };
    format!("{}{quiet}{more}{legend}", columns(&lines))
}

/// Formats a line for each span: node, status, critical, kind, attempt, start and end in milliseconds
/// since the start of the execution.
pub fn csv(timeline: &Timeline) -> String {
    let mut text = "node,status,critical,kind,attempt,from_ms,to_ms\r\n".to_owned();
    for row in &timeline.rows {
        for span in &row.spans {
            let kind = KINDS.iter().find(|(kind, ..)| *kind == span.kind).map_or("", |(_, word, _)| word);
            let (node, status) = (cell(&row.node), row.status.as_str());
            let _ = write!(
                text,
                "{node},{status},{},{kind},{},{},{}\r\n",
                row.critical, span.attempt, span.from, span.to
            );
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use sinew_documents::node_status::NodeStatus;
    use sinew_documents::timeline::TimelineSpan;
    use sinew_documents::timestamp::Timestamp;

    use super::*;

    fn sample(node: &str) -> Timeline {
        let span = |kind, attempt, from, to| TimelineSpan { kind, attempt, from, to };
        let row = TimelineRow {
            quiet: false,
            node: node.to_owned(),
            status: NodeStatus::Succeeded,
            critical: true,
            at: 0,
            spans: vec![
                span(SpanKind::Queued, 0, 0, 5),
                span(SpanKind::Agent, 1, 5, 1_005),
                span(SpanKind::BackOff, 1, 1_005, 2_005),
                span(SpanKind::Agent, 2, 2_005, 2_505),
            ],
        };
        Timeline { started: Timestamp::default(), duration_ms: 2_505, rows: vec![row], more: 2 }
    }

    #[test]
    fn a_line_is_a_span() {
        let lines = "node,status,critical,kind,attempt,from_ms,to_ms\r\n\
            \"a\",succeeded,true,queued,0,0,5\r\n\
            \"a\",succeeded,true,agent,1,5,1005\r\n\
            \"a\",succeeded,true,back_off,1,1005,2005\r\n\
            \"a\",succeeded,true,agent,2,2005,2505\r\n";
        assert_eq!(csv(&sample("a")), lines);
    }

    #[test]
    fn names_of_others_are_cells_and_no_formulas() {
        for (name, wanted) in [
            ("a,b\nc", "\"a,b\nc\","),
            ("say \"hi\"", "\"say \"\"hi\"\"\","),
            ("=1+1", "\"'=1+1\","),
            ("@SUM(A1)", "\"'@SUM(A1)\","),
        ] {
            let text = csv(&sample(name));
            assert!(text.contains(wanted), "{text}");
        }
    }

    #[test]
    fn people_read_sums() {
        let mut times = sample("a");
        let read = text(&times, true);
        let wanted =
            ["a *", "succeeded", "5ms", "1.5s", "1.0s", "2 more; see --limit", "\n* on the critical path"];
        assert!(wanted.iter().all(|part| read.contains(part)) && !read.contains("quiet"), "{read}");
        // Quiet nodes are one line, unless they need attention.
        times.rows[0].quiet = true;
        let read = text(&times, true);
        assert!(read.contains("1 quiet activation, 2.5s in total") && !read.contains("a *"), "{read}");
        // The legend is omitted without marks.
        assert!(!read.contains("critical"), "{read}");
        assert!(text(&times, false).contains("a *"));
        times.rows[0].status = NodeStatus::Failed;
        assert!(text(&times, true).contains("a *"));
    }
}

//! Nodes as lines of a table, with as many columns as fit the terminal.

use std::fmt::Write as _;

use sinew_documents::node_status::NodeStatus;

/// Minimum width of messages: other columns are removed to preserve it.
const MIN_MESSAGE_COLUMNS: usize = 32;
/// Width of names on a narrow terminal.
const NARROW_NAME_COLUMNS: usize = 20;

/// A line, with its rank when not all lines fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PictureLine {
    /// The line, with its styles.
    pub text: String,
    /// 0 for mandatory lines; lines of higher ranks are omitted first.
    pub rank: u8,
}

impl From<String> for PictureLine {
    fn from(text: String) -> Self {
        Self { text, rank: 0 }
    }
}

/// The cells of one line. A line without a status is a note.
#[derive(Clone, Debug, Default)]
pub struct NodeLine {
    /// Name.
    pub name: String,
    /// Kind of the node in its dialect.
    pub kind: String,
    /// Status.
    pub status: Option<NodeStatus>,
    /// Attempts of the latest activation.
    pub attempts: String,
    /// Time from start to end.
    pub time: String,
    /// Agent that works on it.
    pub agent: String,
    /// Message for people.
    pub message: String,
}

/// Columns of a table and their widths. The message is last and not truncated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeColumns {
    name: usize,
    kind: Option<usize>,
    has_attempts: bool,
    has_time: bool,
    agent: Option<usize>,
    cuts_names: bool,
}

impl NodeColumns {
    /// Creates all columns except the kind.
    pub const fn new(name: usize, agent: usize) -> Self {
        Self { name, kind: None, has_attempts: true, has_time: true, agent: Some(agent), cuts_names: false }
    }

    /// Adds a column for the kind of a node.
    #[must_use]
    pub const fn with_kind(self, kind: usize) -> Self {
        Self { kind: Some(kind), ..self }
    }

    /// Fits the columns to a width with messages of this length. Removes agents first, then attempts
    /// and times, and truncates names last. Icon, name, status and message are kept.
    #[must_use]
    pub fn fitted(mut self, width: Option<usize>, message: usize) -> Self {
        let Some(width) = width else { return self };
        let wanted = message.min(MIN_MESSAGE_COLUMNS);
        let fits = |columns: &Self| columns.before_message() + wanted < width;
        if !fits(&self) {
            self.agent = None;
        }
        if !fits(&self) {
            self.has_attempts = false;
        }
        if !fits(&self) {
            self.has_time = false;
        }
        if !fits(&self) {
            self.name = self.name.min(NARROW_NAME_COLUMNS);
            self.cuts_names = true;
        }
        self
    }

    /// Returns true if the table has a column of attempts.
    pub const fn shows_attempts(&self) -> bool {
        self.has_attempts
    }

    /// Columns before the message.
    fn before_message(&self) -> usize {
        let kind = self.kind.map_or(0, |kind| kind + 2);
        let attempts = if self.has_attempts { 5 } else { 0 };
        let time = if self.has_time { 10 } else { 0 };
        let agent = self.agent.map_or(0, |agent| agent + 2);
        2 + self.name + 2 + kind + 9 + attempts + time + agent + 2
    }

    /// Returns the headings.
    pub fn heads(&self) -> String {
        let head = NodeLine {
            name: "NODE".to_owned(),
            kind: "KIND".to_owned(),
            status: None,
            attempts: "ATT".to_owned(),
            time: "TIME".to_owned(),
            agent: "AGENT".to_owned(),
            message: "MESSAGE".to_owned(),
        };
        self.draw("  ", "STATUS", &head, ("", ""))
    }

    /// Returns one line.
    pub fn line(&self, line: &NodeLine, color: bool, ascii: bool) -> String {
        let Some(status) = line.status else { return format!("  {}", line.name) };
        let paint = if color { (status.color(), "\u{1b}[0m") } else { ("", "") };
        let icon = format!("{}{}{} ", paint.0, status.icon(ascii), paint.1);
        let drawn = self.draw(&icon, status.as_str(), line, paint);
        // Non-ASCII characters of the table itself.
        if ascii { drawn.replace('×', "x").replace('…', "...") } else { drawn }
    }

    fn draw(&self, icon: &str, status: &str, line: &NodeLine, (on, off): (&str, &str)) -> String {
        let name = if self.cuts_names { cut_middle(&line.name, self.name) } else { line.name.clone() };
        let mut out = format!("{icon}{name:<width$}  ", width = self.name);
        if let Some(width) = self.kind {
            let _ = write!(out, "{:<width$}  ", line.kind);
        }
        let _ = write!(out, "{on}{status:<9}{off}");
        if self.has_attempts {
            let _ = write!(out, "  {:>3}", line.attempts);
        }
        if self.has_time {
            let _ = write!(out, "  {:>8}", line.time);
        }
        if let Some(width) = self.agent {
            let _ = write!(out, "  {:<width$}", line.agent);
        }
        out.push_str("  ");
        out.push_str(&line.message);
        out.trim_end().to_owned()
    }
}

/// Shortens a name in the middle: its end distinguishes the children of a map.
fn cut_middle(name: &str, width: usize) -> String {
    let count = name.chars().count();
    if count <= width || width < 3 {
        return name.to_owned();
    }
    let end = (width - 1) / 2;
    let start = width - 1 - end;
    let tail = name.chars().skip(count - end);
    name.chars().take(start).chain(['…']).chain(tail).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn narrow_terminals_keep_name_status_and_message() {
        let line = NodeLine {
            name: "validate_order".into(),
            status: Some(NodeStatus::Failed),
            attempts: "2".into(),
            time: "1.2s".into(),
            agent: "validator".into(),
            message: "the order has no lines at all".into(),
            ..NodeLine::default()
        };
        let columns = NodeColumns::new(14, 9);
        let cases = [
            (None, "x validate_order  failed       2      1.2s  validator  the order has no lines at all"),
            (
                Some(100),
                "x validate_order  failed       2      1.2s  validator  the order has no lines at all",
            ),
            (Some(80), "x validate_order  failed       2      1.2s  the order has no lines at all"),
            (Some(70), "x validate_order  failed         1.2s  the order has no lines at all"),
            (Some(60), "x validate_order  failed     the order has no lines at all"),
        ];
        for (width, want) in cases {
            let fitted = columns.fitted(width, line.message.len());
            assert_eq!(fitted.line(&line, false, true), want, "{width:?}");
        }
        assert_eq!(
            columns.fitted(Some(40), 0).line(&NodeLine { message: String::new(), ..line }, false, true),
            "x validate_order  failed         1.2s"
        );
        assert_eq!(cut_middle("a_long_name_of_a_node_17", 20), "a_long_nam…a_node_17");
    }
}

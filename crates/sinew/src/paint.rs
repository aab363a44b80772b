//! Lines that are painted over each other on a terminal.

use std::io::Write as _;

use crate::output;

/// The last painted lines, which the next ones overwrite.
#[derive(Debug, Default)]
pub(crate) struct Painter {
    painted: usize,
}

impl Painter {
    /// Paints lines on stderr, in the place of those before.
    pub(crate) fn paint(&mut self, mut lines: Vec<String>, ascii: bool) {
        let (width, height) = terminal_size::terminal_size_of(std::io::stderr())
            .map_or((100, 40), |(width, height)| (usize::from(width.0), usize::from(height.0)));
        // More than a screen cannot be painted over: the first are shown, the rest is counted.
        if lines.len() >= height {
            let keep = height.saturating_sub(3).max(1);
            let hidden = lines.len() - keep;
            lines.truncate(keep);
            lines.push(format!("{} {hidden} more", if ascii { "..." } else { "…" }));
        }
        let mut err = std::io::stderr().lock();
        if self.painted > 0 {
            let _ = write!(err, "\u{1b}[{}A\r\u{1b}[J", self.painted);
        }
        for line in &lines {
            let _ = writeln!(err, "{}", cut(&output::escaped_line(line, true), width));
        }
        let _ = err.flush();
        self.painted = lines.len();
    }
}

/// The line in at most so many columns, not counting colour.
fn cut(line: &str, width: usize) -> String {
    let mut out = String::new();
    let mut columns = 0;
    let mut escape = false;
    for c in line.chars() {
        if c == '\u{1b}' {
            escape = true;
        }
        if !escape {
            columns += 1;
            if columns >= width {
                out.push('…');
                out.push_str("\u{1b}[0m");
                break;
            }
        }
        out.push(c);
        if escape && c == 'm' {
            escape = false;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colour_has_no_width() {
        assert_eq!(cut("\u{1b}[31mabc\u{1b}[0m", 10), "\u{1b}[31mabc\u{1b}[0m");
        assert_eq!(cut("\u{1b}[31mabcdef\u{1b}[0m", 4), "\u{1b}[31mabc…\u{1b}[0m");
    }
}

//! Repainting of lines on a terminal.

use std::io::Write as _;

use sinew_inspection::node_table::PictureLine;

use crate::output;

/// Assumed size of a terminal that does not report its size, in columns and rows.
const USUAL_SIZE: (usize, usize) = (100, 40);

/// Returns the width of the terminal on stderr, in columns.
pub(crate) fn terminal_width() -> usize {
    terminal_size().0
}

/// Returns the columns and rows of the terminal on stderr.
pub(crate) fn terminal_size() -> (usize, usize) {
    terminal_size::terminal_size_of(std::io::stderr())
        .map_or(USUAL_SIZE, |(width, height)| (usize::from(width.0), usize::from(height.0)))
}

/// The last painted lines, which the next ones overwrite.
#[derive(Debug, Default)]
pub(crate) struct Painter {
    painted: usize,
}

impl Painter {
    /// Paints lines on stderr over the previous ones. Lines that do not fit are cut or counted.
    pub(crate) fn paint(&mut self, lines: Vec<PictureLine>, ascii: bool) {
        let (width, height) = terminal_size();
        // The cursor is below the last line, so a picture has one line less than the terminal.
        let lines = choose_lines(lines, height.saturating_sub(1).max(1), ascii);
        let lines: Vec<String> =
            lines.iter().map(|line| cut(&output::escaped_line(&line.text, true), width, ascii)).collect();
        self.replace(&lines);
        self.painted = lines.len();
    }

    /// Paints the last picture with all lines in full. Later pictures do not overwrite it.
    pub(crate) fn finish(&mut self, lines: &[PictureLine]) {
        let lines: Vec<String> =
            lines.iter().map(|line| output::escaped_line(&line.text, true).into_owned()).collect();
        self.replace(&lines);
        self.painted = 0;
    }

    fn replace(&self, lines: &[String]) {
        let mut err = std::io::stderr().lock();
        if self.painted > 0 {
            let _ = write!(err, "\u{1b}[{}A\r\u{1b}[J", self.painted);
        }
        for line in lines {
            let _ = writeln!(err, "{line}");
        }
        let _ = err.flush();
    }
}

/// Returns at most `height` lines: the most important ones in their order, and the number of the others.
fn choose_lines(lines: Vec<PictureLine>, height: usize, ascii: bool) -> Vec<PictureLine> {
    if lines.len() <= height {
        return lines;
    }
    let room = height.saturating_sub(1).max(1);
    let hidden = lines.len() - room.min(lines.len());
    let mut by_rank: Vec<usize> = (0..lines.len()).collect();
    by_rank.sort_by_key(|at| lines[*at].rank);
    let mut kept: Vec<usize> = by_rank.into_iter().take(room).collect();
    kept.sort_unstable();
    let mut chosen: Vec<PictureLine> = kept.into_iter().map(|at| lines[at].clone()).collect();
    if height > 1 {
        chosen.push(format!("{} {hidden} more", if ascii { "..." } else { "…" }).into());
    }
    chosen
}

/// Cuts a line to `width` columns, not counting colour.
fn cut(line: &str, width: usize, ascii: bool) -> String {
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
                out.push(if ascii { '~' } else { '…' });
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
mod tests;

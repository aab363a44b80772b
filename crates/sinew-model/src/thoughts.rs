//! Removes reasoning that a server leaves in the text of an answer.
//!
//! Servers with a reasoning parser deliver reasoning separately. Others leave it in the text, between
//! tags of the model's template, or without the opening tag if the template ends with it.

use std::borrow::Cow;

/// Opening and closing tags of models' templates.
const TAGS: [(&str, &str); 7] = [
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("<thought>", "</thought>"),
    ("<seed:think>", "</seed:think>"),
    ("[THINK]", "[/THINK]"),
    ("◁think▷", "◁/think▷"),
    ("<|channel>thought", "<channel|>"),
];
/// Start of the answer in the harmony format, in which channels precede each other.
const FINAL_CHANNEL: &str = "<|channel|>final<|message|>";
/// Ends of a message in the harmony format.
const MESSAGE_ENDS: [&str; 2] = ["<|return|>", "<|end|>"];

/// Returns a text without reasoning; borrowed if it has none.
///
/// A tag in code, or an opening tag within a line, is text. So are tags within a JSON document.
pub(crate) fn without_thoughts(text: &str) -> Cow<'_, str> {
    if let Some((_, answer)) = text.rsplit_once(FINAL_CHANNEL) {
        let end = MESSAGE_ENDS.iter().filter_map(|end| answer.find(end)).min().unwrap_or(answer.len());
        return Cow::Owned(answer[..end].trim().to_owned());
    }
    if next_tag(text).is_none() || is_json(text) {
        return Cow::Borrowed(text);
    }
    let (mut kept, mut rest, mut code) = (String::new(), text, CodeState::default());
    // Opening tags that are text; as many closing tags are text, too.
    let (mut literal, mut is_cut) = (0_usize, false);
    while let Some(tag) = next_tag(rest) {
        let (before, after) = (&rest[..tag.at], &rest[tag.at + tag.text.len()..]);
        code.pass(before);
        code.end_ticks();
        kept.push_str(before);
        rest = after;
        match tag.closing {
            Some(closing) if !code.is_code() && starts_line(&kept) => {
                is_cut = true;
                rest = after.split_once(closing).map_or("", |(_, rest)| rest);
            }
            Some(_) => {
                literal += 1;
                kept.push_str(tag.text);
            }
            None if code.is_code() || literal > 0 || !(starts_line(&kept) || ends_thought(after)) => {
                literal = literal.saturating_sub(1);
                kept.push_str(tag.text);
            }
            None => {
                is_cut = true;
                kept.clear();
                code = CodeState::default();
            }
        }
    }
    if !is_cut {
        return Cow::Borrowed(text);
    }
    kept.push_str(rest);
    Cow::Owned(kept.trim().to_owned())
}

/// A tag in a text.
struct ThoughtTag {
    at: usize,
    text: &'static str,
    /// The tag that closes this one; `None` for a closing tag.
    closing: Option<&'static str>,
}

fn next_tag(text: &str) -> Option<ThoughtTag> {
    let opening = TAGS.iter().map(|(open, close)| (*open, Some(*close)));
    let tags = opening.chain(TAGS.iter().map(|(_, close)| (*close, None)));
    let found =
        tags.filter_map(|(tag, closing)| Some(ThoughtTag { at: text.find(tag)?, text: tag, closing }));
    found.min_by_key(|tag| tag.at)
}

fn is_json(text: &str) -> bool {
    text.trim_start().starts_with(['{', '[', '"']) && serde_json::from_str::<serde_json::Value>(text).is_ok()
}

fn starts_line(before: &str) -> bool {
    before.rsplit('\n').next().is_none_or(|line| line.trim().is_empty())
}

/// Returns whether the text after a closing tag without an opening one shows that a thought ends:
/// the line ends, or JSON starts.
fn ends_thought(after: &str) -> bool {
    let line = after.trim_start_matches([' ', '\t', '\r']);
    line.is_empty() || line.starts_with(['\n', '{', '['])
}

/// Whether a position of a text is within code of Markdown.
#[derive(Clone, Copy, Debug, Default)]
struct CodeState {
    in_block: bool,
    in_line: bool,
    ticks: usize,
}

impl CodeState {
    fn pass(&mut self, text: &str) {
        for character in text.chars() {
            if character == '`' {
                self.ticks += 1;
                continue;
            }
            self.end_ticks();
            if character == '\n' {
                self.in_line = false;
            }
        }
    }

    fn end_ticks(&mut self) {
        match std::mem::take(&mut self.ticks) {
            0 => {}
            1 | 2 => self.in_line = !self.in_block && !self.in_line,
            _ => {
                self.in_block = !self.in_block;
                self.in_line = false;
            }
        }
    }

    fn is_code(mut self) -> bool {
        self.end_ticks();
        self.in_block || self.in_line
    }
}

/// Removes tagged reasoning from a text that arrives in pieces.
#[derive(Debug, Default)]
pub(crate) struct ThoughtFilter {
    /// Text that may be the start of a tag.
    held: String,
    /// The tag that ends the current thought.
    closing: Option<&'static str>,
    code: CodeState,
    /// Whether the next character is within a line.
    in_line: bool,
    /// Whether text has passed.
    has_passed: bool,
}

impl ThoughtFilter {
    /// Adds a piece. Returns the text that is certainly not reasoning.
    pub(crate) fn add(&mut self, piece: &str) -> String {
        self.held.push_str(piece);
        let mut passed = String::new();
        loop {
            if let Some(closing) = self.closing {
                let Some((_, rest)) = self.held.split_once(closing) else {
                    let from = self.held.len().saturating_sub(closing.len() - 1);
                    self.held.drain(..self.held.ceil_char_boundary(from));
                    return passed;
                };
                self.held = rest.to_owned();
                self.closing = None;
            }
            if !self.in_line && !self.code.is_code() {
                let line = self.held.trim_start_matches([' ', '\t', '\r']);
                if let Some((open, close)) = TAGS.iter().find(|(open, _)| line.starts_with(open)) {
                    self.held = line[open.len()..].to_owned();
                    self.closing = Some(close);
                    continue;
                }
                if TAGS.iter().any(|(open, _)| open.starts_with(line)) {
                    return passed;
                }
            }
            if self.held.is_empty() {
                return passed;
            }
            let end = self.held.find('\n').map_or(self.held.len(), |at| at + 1);
            let line: String = self.held.drain(..end).collect();
            self.code.pass(&line);
            self.in_line = !line.ends_with('\n');
            // White space between a thought and the answer belongs to neither.
            let line = if self.has_passed { &line } else { line.trim_start() };
            self.has_passed |= !line.is_empty();
            passed.push_str(line);
        }
    }

    /// Returns the held text at the end of the answer.
    pub(crate) fn end(&mut self) -> String {
        let held = std::mem::take(&mut self.held);
        if self.closing.is_some() { String::new() } else { held }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Texts of models, and the same without reasoning.
    const TEXTS: [(&str, &str); 24] = [
        ("plain", "plain"),
        ("<think>\na plan\n</think>\n\nHello.", "Hello."),
        ("  <think>a</think>Hello.", "Hello."),
        ("<thinking>a</thinking>\n<think>b</think>\nHello.", "Hello."),
        ("<thought>a</thought>\nHello.", "Hello."),
        ("<seed:think>a</seed:think>Hello.", "Hello."),
        ("[THINK]a[/THINK]Hello.", "Hello."),
        ("◁think▷a◁/think▷Hello.", "Hello."),
        ("<|channel>thought\na<channel|>Hello.", "Hello."),
        (
            "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>Hello.<|return|>",
            "Hello.",
        ),
        ("a plan\n</think>\nHello.", "Hello."),
        ("a plan.</think>\n\nHello.", "Hello."),
        ("maybe {\"a\": 1}</think>{\"a\": 2}", "{\"a\": 2}"),
        ("one\n</think>\ntwo\n</think>\nHello.", "Hello."),
        ("Hello.\n<think>\nis this right?", "Hello."),
        ("<think>never ends", ""),
        ("<think></think>", ""),
        ("Hello.\n<think>a</think>\nBye.", "Hello.\n\nBye."),
        // Text about the tags.
        ("Write `<think>` first and `</think>` last.", "Write `<think>` first and `</think>` last."),
        ("Close it with </think> and go on.", "Close it with </think> and go on."),
        ("```\n<think>\nx\n</think>\n```\nThat is it.", "```\n<think>\nx\n</think>\n```\nThat is it."),
        ("A <think> tag\n</think> closes it.", "A <think> tag\n</think> closes it."),
        ("{\"text\": \"<think>a</think>\"}", "{\"text\": \"<think>a</think>\"}"),
        ("<thinker>a</thinker>", "<thinker>a</thinker>"),
    ];

    #[test]
    fn reasoning_is_removed() {
        for (given, expected) in TEXTS {
            let once = without_thoughts(given);
            assert_eq!(once, expected, "{given}");
            assert_eq!(without_thoughts(&once), expected, "again: {given}");
        }
    }

    #[test]
    fn reasoning_is_removed_from_pieces() {
        // Without the opening tag, the thought has passed when it ends.
        let is_tagged = |given: &str| !given.contains("</think>") || given.contains("<think>");
        let texts = TEXTS.iter().filter(|(given, _)| is_tagged(given) && !given.contains(FINAL_CHANNEL));
        for (given, expected) in texts {
            for size in 1..given.len() {
                let characters: Vec<char> = given.chars().collect();
                let mut filter = ThoughtFilter::default();
                let pieces =
                    characters.chunks(size).map(|piece| filter.add(&piece.iter().collect::<String>()));
                let mut passed = pieces.collect::<String>();
                passed.push_str(&filter.end());
                assert_eq!(passed.trim(), *expected, "{given} in pieces of {size}");
            }
        }
    }
}

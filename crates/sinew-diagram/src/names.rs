//! Escapes text of users for each output format: ids, labels, XML.

use std::fmt::Write;

use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// Keywords of Mermaid at positions of ids.
const RESERVED: [&str; 27] = [
    "_blank",
    "_parent",
    "_self",
    "_top",
    "acctitle",
    "accdescr",
    "bt",
    "call",
    "class",
    "classdef",
    "click",
    "default",
    "direction",
    "end",
    "flowchart",
    "graph",
    "href",
    "init",
    "interpolate",
    "linkstyle",
    "lr",
    "rl",
    "style",
    "subgraph",
    "tb",
    "td",
    "wrap",
];

/// Returns a unique Mermaid id for a text: plain ids are unchanged, others are encoded after `id__`.
pub(crate) fn mermaid_id(id: &str) -> String {
    if is_plain(id) {
        return id.to_owned();
    }
    let mut out = String::from("id__");
    for c in id.chars() {
        if c.is_ascii_alphanumeric() {
            out.push(c);
        } else {
            // `_` is encoded too, so each underscore delimits a code and ids cannot collide.
            let _ = write!(out, "_{:x}_", u32::from(c));
        }
    }
    out
}

fn is_plain(id: &str) -> bool {
    let word = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    // `-` only between words, so that no id contains a part of an arrow.
    id.split('-').all(word)
        && !id.starts_with("id__")
        && !id.starts_with("group__")
        && !id.split('-').any(|part| RESERVED.contains(&part.to_ascii_lowercase().as_str()))
}

/// Returns whether a character is not allowed after `before`: it is unprintable, or it is a joiner or
/// selector where no script uses one.
pub(crate) fn is_hidden(before: Option<char>, c: char) -> bool {
    let is_selector = |c: char| matches!(c, '\u{fe00}'..='\u{fe0f}');
    match c {
        '\u{200c}' | '\u{200d}' => before.is_none_or(|before| before.is_ascii()),
        c if is_selector(c) => before.is_none_or(|before| before.is_whitespace() || is_selector(before)),
        c => is_unprintable(c),
    }
}

/// Returns whether a character is never allowed in output: it controls, reorders or hides text.
pub(crate) fn is_unprintable(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180e}'
            | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}'
            | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{fffe}' | '\u{ffff}' | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// Returns a single line: collapses white space, and removes unprintable characters.
pub(crate) fn one_line(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for word in text.split_whitespace() {
        let before = out.len();
        if before > 0 {
            out.push(' ');
        }
        let start = out.len();
        let mut previous = None;
        out.extend(word.chars().filter(|c| !is_hidden(previous.replace(*c), *c)));
        if out.len() == start {
            out.truncate(before);
        }
    }
    out
}

/// Escapes text for a quoted Mermaid label; line breaks become `<br/>`.
pub(crate) fn mermaid_label(text: &str) -> String {
    text.lines()
        .map(one_line)
        .filter(|l| !l.is_empty())
        .map(|l| escape_label(&l))
        .collect::<Vec<_>>()
        .join("<br/>")
}

fn escape_label(line: &str) -> String {
    let lower = line.to_ascii_lowercase();
    // `javascript:` and `data:` look like links, `fa:` is an icon, and after `style` or `classDef`
    // Mermaid's preprocessor removes semicolons: encode the colon in these cases.
    let spell_colon = ["script", "data", "fa", "fab", "style", "classdef"].iter().any(|w| lower.contains(w));
    let mut out = String::with_capacity(line.len() + 16);
    let mut previous = ' ';
    for c in line.chars() {
        match c {
            '"' => out.push_str("#quot;"),
            '#' => out.push_str("#35;"),
            '<' => out.push_str("#lt;"),
            '>' => out.push_str("#gt;"),
            '&' => out.push_str("#amp;"),
            '`' => out.push_str("#96;"),
            ':' if spell_colon => out.push_str("#58;"),
            // `%%` starts a comment or a directive, `$$` a formula.
            '%' if previous == '%' => out.push_str("#37;"),
            '$' if previous == '$' => out.push_str("#36;"),
            _ => out.push(c),
        }
        previous = c;
    }
    out
}

/// Returns whether a label needs no quotes, as in workflow cards: words of letters and digits.
pub(crate) fn is_bare_label(text: &str) -> bool {
    !text.is_empty()
        && text.split(' ').all(|word| {
            !word.is_empty()
                && word.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
                && !RESERVED.contains(&word.to_ascii_lowercase().as_str())
        })
}

/// Escapes text for an XML element or a double-quoted attribute.
pub(crate) fn xml(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // Never write a literal `javascript:`, which a scanner of the SVG might match.
            ':' if ends_with_script(&out) => out.push_str("&#58;"),
            c if is_hidden(out.chars().next_back(), c) => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

fn ends_with_script(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() >= 6 && bytes[bytes.len() - 6..].eq_ignore_ascii_case(b"script")
}

/// Truncates a text to at most `max_columns` columns.
pub(crate) fn truncate_columns(text: &str, max_columns: usize) -> String {
    if text.width() <= max_columns {
        return text.to_owned();
    }
    let mut out = String::new();
    let mut used = 0;
    for c in text.chars() {
        let wide = c.width().unwrap_or(0);
        if used + wide > max_columns.saturating_sub(3) {
            break;
        }
        used += wide;
        out.push(c);
    }
    out.push_str("...");
    out
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{mermaid_id, mermaid_label, one_line, xml};

    #[test]
    fn plain_ids_stay_and_others_are_spelled_out() {
        for plain in ["a", "check_risk", "b1", "1", "42_x", "step-two", "Start", "ender"] {
            assert_eq!(mermaid_id(plain), plain);
        }
        let cases = [
            ("end", "id__end"),
            ("End", "id__End"),
            ("end-x", "id__end_2d_x"),
            ("", "id__"),
            ("a b", "id__a_20_b"),
            ("a--b", "id__a_2d__2d_b"),
            ("-a", "id___2d_a"),
            ("id__a", "id__id_5f__5f_a"),
            ("group__0", "id__group_5f__5f_0"),
            ("é", "id___e9_"),
            ("class", "id__class"),
        ];
        for (id, expected) in cases {
            assert_eq!(mermaid_id(id), expected);
        }
    }

    #[test]
    fn no_two_ids_meet() {
        let alphabet = ["a", "_", "-", "2d", "id__", " ", "é", "5f"];
        let mut seen = BTreeMap::new();
        for a in alphabet {
            for b in alphabet {
                for c in alphabet {
                    for d in alphabet {
                        let id = [a, b, c, d].concat();
                        let other = seen.insert(mermaid_id(&id), id.clone());
                        assert!(other.as_ref().is_none_or(|o| *o == id), "{other:?} and {id:?} meet");
                    }
                }
            }
        }
    }

    #[test]
    fn labels_lose_nothing_but_their_teeth() {
        let cases = [
            ("say \"hi\"", "say #quot;hi#quot;"),
            ("a<b>&c", "a#lt;b#gt;#amp;c"),
            ("#quot;", "#35;quot;"),
            ("one\ntwo\r\n\n three", "one<br/>two<br/>three"),
            ("%%{init: {}}%%", "%#37;{init: {}}%#37;"),
            ("$$x$$", "$#36;x$#36;"),
            ("`md`", "#96;md#96;"),
            ("JavaScript:alert(1)", "JavaScript#58;alert(1)"),
            ("fa:fa-car", "fa#58;fa-car"),
            ("style:#abc;", "style#58;#35;abc;"),
            ("time: 12:30", "time: 12:30"),
            ("a\u{202e}b\u{0}c\u{9b}\u{7f}\u{61c}\u{2066}\u{e0041}d", "abcd"),
        ];
        for (text, expected) in cases {
            assert_eq!(mermaid_label(text), expected);
        }
    }

    #[test]
    fn xml_and_lines() {
        assert_eq!(
            xml("<a href='javascript:x'>&\"\u{1}"),
            "&lt;a href=&#39;javascript&#58;x&#39;&gt;&amp;&quot; "
        );
        assert_eq!(one_line("  a \t b\n\u{200b} c "), "a b c");
    }
}

//! Tests of `paint`.

use super::*;

#[test]
fn colour_has_no_width() {
    assert_eq!(cut("\u{1b}[31mabc\u{1b}[0m", 10, false), "\u{1b}[31mabc\u{1b}[0m");
    assert_eq!(cut("\u{1b}[31mabcdef\u{1b}[0m", 4, false), "\u{1b}[31mabc…\u{1b}[0m");
    assert_eq!(cut("abcdef", 4, true), "abc~\u{1b}[0m");
}

#[test]
fn short_terminals_keep_the_lines_that_matter() {
    let line = |text: &str, rank| PictureLine { text: text.to_owned(), rank };
    let lines =
        || vec![line("head", 0), line("a ok", 3), line("b failed", 1), line("c ok", 3), line("d runs", 2)];
    let cases: [(usize, &[&str]); 4] = [
        (5, &["head", "a ok", "b failed", "c ok", "d runs"]),
        (4, &["head", "b failed", "d runs", "… 2 more"]),
        (3, &["head", "b failed", "… 3 more"]),
        (1, &["head"]),
    ];
    for (height, want) in cases {
        let chosen = choose_lines(lines(), height, false);
        let texts: Vec<&str> = chosen.iter().map(|line| line.text.as_str()).collect();
        assert_eq!(texts, want, "{height}");
    }
}

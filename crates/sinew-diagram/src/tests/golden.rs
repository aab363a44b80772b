//! Compares text formats with files; `SINEW_BLESS=1 cargo test -p sinew-diagram` rewrites them.

use super::common;

use std::path::Path;

use crate::{Direction, Drawing, dot, mermaid, terminal, terminal_within};

fn check(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("SINEW_BLESS").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap();
    assert!(text == expected, "{name} differs; got:\n{text}");
}

#[test]
fn every_text_form_is_as_recorded() {
    let sideways = Drawing { direction: Direction::LeftRight, ..common::card() };
    let ways_sideways = Drawing { direction: Direction::LeftRight, ..common::ways() };
    for (name, drawing) in [
        ("card", common::card()),
        ("sideways", sideways),
        ("ways", common::ways()),
        ("ways_sideways", ways_sideways),
        ("branches", common::branches()),
        ("everything", common::everything()),
    ] {
        check(&format!("{name}.mmd"), &mermaid(&drawing));
        check(&format!("{name}.dot"), &dot(&drawing));
        check(&format!("{name}.txt"), &terminal_within(&drawing, false, 200).unwrap());
        check(&format!("{name}.ascii.txt"), &terminal_within(&drawing, true, 200).unwrap());
        if matches!(name, "branches" | "everything") {
            continue; // a tree at any width
        }
        check(&format!("{name}.tree.txt"), &terminal_within(&drawing, false, 10).unwrap());
    }
}

/// The lines of the workflow card in the specification.
#[test]
fn the_card_has_the_lines_of_the_specification() {
    let text = mermaid(&common::card());
    for line in [
        "graph TD",
        "    Start([Start])",
        "    a(\"<b>Agent</b><br/>A\")",
        "    c{\"<b>Decision</b><br/>C<br/>True?\"}",
        "    Start --> a",
        "    a --> c",
        "    c -- True --> h",
        "    f{{\"<b>Fork</b><br/>F\"}}",
        "    f -- k --> b1",
        "    j((\"<b>Join</b><br/>J<br/>all\"))",
        "    Finish([Finish])",
    ] {
        assert!(text.lines().any(|l| l == line), "{line:?} is not in\n{text}");
    }
}

#[test]
fn plain_ascii_stays_plain() {
    for columns in [10, 200] {
        let text = terminal_within(&common::everything(), true, columns).unwrap();
        assert!(text.is_ascii(), "{text}");
    }
}

#[test]
fn large_graphs_are_trees_that_name_every_node() {
    let drawing = common::large(3_000);
    let text = terminal(&drawing, false).unwrap();
    for node in &drawing.nodes {
        assert!(text.contains(&node.lines[0]), "{} is missing", node.id);
    }
    assert!(text.lines().all(|l| l.chars().count() < 250));
}

#[test]
fn nothing_is_drawn_as_nothing() {
    assert_eq!(mermaid(&Drawing::default()), "graph TD\n");
    assert_eq!(terminal(&Drawing::default(), false).unwrap(), "");
}

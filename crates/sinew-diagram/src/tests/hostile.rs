//! Hostile names: all formats render, contain nothing harmful, and parse.

use std::collections::BTreeSet;

use crate::{
    Direction, Drawing, DrawingCaption, DrawnEdge, DrawnNode, EdgeKind, NodeMark, Shape, Status, dot,
    mermaid, svg, terminal,
};
use merman::{Engine, ParseOptions, RenderSemanticModel};
use proptest::prelude::*;
use resvg::usvg::roxmltree::Document;

const PIECES: [&str; 44] = [
    "\"",
    "'",
    "`",
    "[",
    "]",
    "(",
    ")",
    "{",
    "}",
    "<",
    ">",
    "|",
    "&",
    ";",
    ":",
    "#",
    "%%",
    "%%{init:",
    "}%%",
    "$$",
    "\\",
    "\n",
    "\r\n",
    "\t",
    "\u{0}",
    "\u{202e}",
    "\u{e000}",
    "\u{f0000}",
    "end",
    "subgraph",
    "click a href",
    "javascript:",
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "-->",
    "---",
    "==>",
    "-.->",
    ":::x",
    "@{shape: x}",
    "&lt;",
    "#lt;",
    "日本語",
    "ﬂ°°60¶ß",
];

fn text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        4 => prop::sample::select(&PIECES[..]).prop_map(str::to_owned),
        2 => "[a-zA-Z0-9_ .-]{0,6}",
        1 => any::<String>().prop_map(|s| s.chars().take(8).collect()),
    ];
    prop::collection::vec(piece, 0..5).prop_map(|pieces| pieces.concat())
}

const SHAPES: [Shape; 11] = [
    Shape::Terminal,
    Shape::Task,
    Shape::Box,
    Shape::Decision,
    Shape::Join,
    Shape::Fork,
    Shape::Loop,
    Shape::Map,
    Shape::Human,
    Shape::Subworkflow,
    Shape::Delay,
];

fn drawing() -> impl Strategy<Value = Drawing> {
    let status = prop::sample::select(vec![
        Status::Planned,
        Status::Running,
        Status::Succeeded,
        Status::Failed,
        Status::Skipped,
        Status::Cancelled,
        Status::Waiting,
    ]);
    let mark = (status, prop::option::of(text())).prop_map(|(status, note)| NodeMark { status, note });
    let node = (
        text(),
        prop::sample::select(&SHAPES[..]),
        text(),
        prop::collection::vec(text(), 0..3),
        prop::option::of(mark),
        prop::option::weighted(0.3, prop::sample::select(vec!["g", "<script>", "end", ""])),
        prop::bool::weighted(0.2),
    );
    let node = node.prop_map(|(id, shape, title, lines, status, group, is_quiet)| DrawnNode {
        id,
        shape,
        title,
        lines,
        status,
        group: group.map(str::to_owned),
        color: None,
        is_stack: false,
        is_quiet,
        sockets: Vec::new(),
    });
    let kind = prop::sample::select(vec![EdgeKind::Flow, EdgeKind::Attach, EdgeKind::Back]);
    let edge = (
        any::<prop::sample::Index>(),
        any::<prop::sample::Index>(),
        prop::option::of(text()),
        kind,
        prop::option::of(0..4_u32),
    );
    let caption = prop::option::weighted(0.3, (text(), prop::collection::vec(text(), 0..3)));
    (prop::collection::vec(node, 1..7), prop::collection::vec(edge, 0..8), any::<bool>(), caption).prop_map(
        |(nodes, edges, down, caption)| {
            let edges = edges
                .into_iter()
                .map(|(from, to, label, kind, taken)| DrawnEdge {
                    from: from.get(&nodes).id.clone(),
                    to: to.get(&nodes).id.clone(),
                    label,
                    kind,
                    taken,
                })
                .collect();
            let direction = if down { Direction::TopDown } else { Direction::LeftRight };
            let caption = caption.map(|(title, lines)| DrawingCaption { title, lines });
            Drawing { direction, caption, nodes, edges }
        },
    )
}

fn harmless(text: &str) {
    let lower = text.to_lowercase();
    for bad in ["<script", "javascript:", "<img", "<foreignobject"] {
        assert!(!lower.contains(bad), "{bad} in\n{text}");
    }
}

/// Checks that Mermaid parses exactly the drawn nodes and edges from the text.
fn reads_back(drawing: &Drawing, text: &str) {
    let parsed = Engine::new().parse_diagram_for_render_model_sync(text, ParseOptions::strict());
    let model = match parsed {
        Ok(Some(parsed)) => parsed.into_parts().1,
        other => panic!("not read: {other:?}\n{text}"),
    };
    let RenderSemanticModel::Flowchart(model) = model else { panic!("no flowchart\n{text}") };
    let ids: BTreeSet<&str> = drawing.nodes.iter().map(|n| n.id.as_str()).collect();
    assert_eq!(model.nodes.len(), ids.len(), "nodes of\n{text}");
    assert_eq!(model.edges.len(), drawing.edges.len(), "edges of\n{text}");
    assert!(model.nodes.iter().all(|n| n.link.is_none() && !n.have_callback), "links in\n{text}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_names_are_drawn_and_harmless(drawing in drawing()) {
        let text = mermaid(&drawing);
        harmless(&text);
        reads_back(&drawing, &text);

        let picture = svg(&drawing).unwrap();
        harmless(&picture);
        let document = Document::parse(&picture).unwrap();
        let ids: BTreeSet<&str> = drawing.nodes.iter().map(|n| n.id.as_str()).collect();
        prop_assert_eq!(document.descendants().filter(|n| n.has_attribute("data-node")).count(), ids.len());

        // Each line of DOT is a statement with balanced quotes.
        for line in dot(&drawing).lines() {
            let quotes = line.replace("\\\\", "").replace("\\\"", "").matches('"').count();
            prop_assert_eq!(quotes % 2, 0, "{}", line);
        }
        for ascii in [true, false] {
            let text = terminal(&drawing, ascii).unwrap();
            prop_assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{:?}", text);
        }
    }
}

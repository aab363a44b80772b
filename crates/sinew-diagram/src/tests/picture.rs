//! Contents of SVG and PNG, not their bytes.

use super::common;

use crate::{
    DrawError, Drawing, DrawingCaption, DrawingTheme, MAX_NODES, Shape, dot, mermaid, png, svg, svg_in,
    terminal,
};
use resvg::usvg::roxmltree::Document;

#[test]
fn the_svg_says_what_it_shows() {
    let drawing = common::everything();
    let text = svg(&drawing).unwrap();
    let document = Document::parse(&text).unwrap();
    let root = document.root_element();
    let child = |name: &str| {
        root.children().find(|n| n.has_tag_name(name)).and_then(|n| n.text()).unwrap_or_default()
    };
    assert_eq!(child("title"), "Workflow graph");
    assert_eq!(
        child("desc"),
        "13 nodes, 16 edges: 1 planned, 2 running, 4 succeeded, 1 failed, 1 skipped, 1 cancelled, 1 waiting"
    );
    let ids: Vec<&str> = document.descendants().filter_map(|n| n.attribute("data-node")).collect();
    assert_eq!(ids, drawing.nodes.iter().map(|n| n.id.as_str()).collect::<Vec<_>>());
    // All ids are shown for use in commands, except start and finish.
    for node in drawing.nodes.iter().filter(|node| node.shape != Shape::Terminal) {
        let drawn =
            document.descendants().find(|n| n.attribute("data-node") == Some(node.id.as_str())).unwrap();
        let said: String =
            drawn.descendants().filter(|n| n.has_tag_name("tspan")).filter_map(|n| n.text()).collect();
        let id: String = node.id.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(said.contains(&id), "{id:?} is not in {said:?}");
    }
    let edges = document.descendants().filter(|n| n.attribute("data-from").is_some()).count();
    assert_eq!(edges, drawing.edges.len());
    // Unchanged text, bold titles, and icon and name of states.
    let spans: Vec<_> = document.descendants().filter(|n| n.has_tag_name("tspan")).collect();
    for expected in
        ["Ms \"Q\" <b>approves</b> & signs;", "✗ failed · 387 ok, 4 failed", "rejected: try again ×3"]
    {
        assert!(spans.iter().any(|n| n.text() == Some(expected)), "{expected:?} is missing");
    }
    let bold = |text: &str| {
        spans.iter().any(|n| n.text() == Some(text) && n.attribute("font-weight") == Some("bold"))
    };
    assert!(bold("Decision") && !bold("RiskEvaluator"));
}

/// A quiet node is one small line with the icon of its state; a tooltip has its whole text.
#[test]
fn quiet_nodes_are_small() {
    let mut drawing = common::everything();
    let at = drawing.nodes.iter().position(|node| node.id == "again").unwrap();
    let drawn = |drawing: &Drawing| {
        let text = svg(drawing).unwrap();
        let document = Document::parse(&text).unwrap();
        let id = drawing.nodes[at].id.as_str();
        let node = document.descendants().find(|n| n.attribute("data-node") == Some(id)).unwrap();
        let spans: Vec<String> = node
            .descendants()
            .filter(|n| n.has_tag_name("tspan"))
            .filter_map(|n| n.text().map(str::to_owned))
            .collect();
        let told =
            node.children().find(|n| n.has_tag_name("title")).and_then(|n| n.text()).unwrap().to_owned();
        (node.attribute("class").unwrap().to_owned(), spans, told)
    };
    let (class, spans, told) = drawn(&drawing);
    assert!(!class.contains("quiet") && spans.len() > 2);
    let texts = |drawing: &Drawing| [mermaid(drawing), dot(drawing), terminal(drawing, false).unwrap()];
    assert!(texts(&drawing).iter().all(|text| text.contains("until good")));
    drawing.nodes[at].is_quiet = true;
    let node = drawing.nodes[at].clone();
    let (small_class, small_spans, small_told) = drawn(&drawing);
    let icon = node.status.as_ref().unwrap().status.look().icon;
    assert_eq!(small_spans, [format!("{icon} {}", node.title)]);
    assert_eq!((small_class, small_told), (class.replace("node ", "node quiet "), told));
    assert!(texts(&drawing).iter().all(|text| text.contains("Loop") && !text.contains("until good")));
}

/// All formats have title and times above the graph; pictures have a legend of their states.
#[test]
fn a_caption_names_the_execution_and_brings_a_legend() {
    let mut drawing = common::everything();
    assert!(!svg(&drawing).unwrap().contains("class=\"legend\""));
    drawing.caption = Some(DrawingCaption {
        title: "orders: \"failed\" <b>".to_owned(),
        lines: vec!["execution x7f3".to_owned(), "2026-11-22T10:00:00.000Z, 2.0s".to_owned()],
    });
    let text = svg(&drawing).unwrap();
    let document = Document::parse(&text).unwrap();
    let said: Vec<&str> =
        document.descendants().filter(|n| n.has_tag_name("text")).filter_map(|n| n.text()).collect();
    for wanted in ["orders: \"failed\" <b>", "execution x7f3", "2026-11-22T10:00:00.000Z, 2.0s"] {
        assert!(said.contains(&wanted), "no {wanted} in {said:?}");
    }
    let legend: Vec<&str> = said.iter().copied().filter(|text| text.split(' ').count() == 2).collect();
    for state in ["planned", "running", "succeeded", "failed", "skipped", "cancelled", "waiting"] {
        assert!(legend.iter().any(|text| text.ends_with(&format!(" {state}"))), "no {state} in {legend:?}");
    }
    let title = document.root_element().children().find(|n| n.has_tag_name("title")).unwrap();
    assert_eq!(title.text(), Some("orders: \"failed\" <b>"));
    assert!(mermaid(&drawing).starts_with("---\ntitle: \"orders"), "{}", mermaid(&drawing));
    assert!(
        dot(&drawing).contains("label=\"orders: \\\"failed\\\" <b>\\lexecution x7f3\\l"),
        "{}",
        dot(&drawing)
    );
    assert!(terminal(&drawing, true).unwrap().starts_with("orders: \"failed\" <b>\nexecution x7f3\n"));
    assert!(!png(&drawing, 1.0).unwrap().is_empty());
}

/// A picture in the dark theme has no light background.
#[test]
fn the_dark_theme_replaces_every_color() {
    let drawing = common::everything();
    let (light, dark) = (svg(&drawing).unwrap(), svg_in(&drawing, DrawingTheme::Dark).unwrap());
    let colors = |text: &str| -> std::collections::BTreeSet<String> {
        text.match_indices("=\"#").map(|(at, _)| text[at + 2..at + 9].to_owned()).collect()
    };
    assert!(colors(&light).contains("#ffffff") && colors(&light).len() > 15);
    let left: Vec<_> = colors(&light).intersection(&colors(&dark)).cloned().collect();
    // A colour in both themes is missing in the table of counterparts.
    assert!(left.is_empty(), "{left:?} have no counterpart");
    assert!(dark.contains("fill=\"#0d1117\""));
}

/// Pictures have no markup that executes or loads something, or conflicts with the page.
#[test]
fn the_svg_is_inert() {
    let text = svg(&common::everything()).unwrap();
    let document = Document::parse(&text).unwrap();
    let known = ["svg", "title", "desc", "g", "rect", "circle", "path", "text", "tspan"];
    for node in document.descendants().filter(roxmltree_element) {
        assert!(known.contains(&node.tag_name().name()), "{node:?}");
        for attribute in node.attributes() {
            assert!(!attribute.name().starts_with("on"), "{attribute:?}");
            assert!(!["id", "style", "href"].contains(&attribute.name()), "{attribute:?}");
        }
    }
}

fn roxmltree_element(node: &resvg::usvg::roxmltree::Node<'_, '_>) -> bool {
    node.is_element()
}

/// Nodes do not overlap, and are within the picture.
#[test]
fn nodes_have_room() {
    let text = svg(&common::large(60)).unwrap();
    let document = Document::parse(&text).unwrap();
    let number = |n: &resvg::usvg::roxmltree::Node<'_, '_>, name: &str| {
        n.attribute(name).unwrap().parse::<f64>().unwrap()
    };
    let boxes: Vec<[f64; 4]> = document
        .descendants()
        .filter(|n| {
            n.has_tag_name("rect")
                && n.parent().and_then(|p| p.parent()).is_some_and(|p| p.has_attribute("data-node"))
        })
        .map(|n| [number(&n, "x"), number(&n, "y"), number(&n, "width"), number(&n, "height")])
        .collect();
    assert_eq!(boxes.len(), 50);
    for (at, a) in boxes.iter().enumerate() {
        for b in &boxes[at + 1..] {
            let apart = a[0] + a[2] < b[0] || b[0] + b[2] < a[0] || a[1] + a[3] < b[1] || b[1] + b[3] < a[1];
            assert!(apart, "{a:?} and {b:?} overlap");
        }
    }
}

/// The embedded font renders text: a picture with text has many more dark pixels than without.
#[test]
fn the_png_shows_text() {
    let bytes = png(&common::card(), 1.0).unwrap();
    assert_eq!(&bytes[..8], b"\x89PNG\r\n\x1a\n");
    let dark = |drawing: &Drawing| {
        let pixels = resvg::tiny_skia::Pixmap::decode_png(&png(drawing, 1.0).unwrap()).unwrap();
        pixels.pixels().iter().filter(|p| p.red() < 100).count()
    };
    let with = dark(&common::card());
    let mut silent = common::card();
    for node in &mut silent.nodes {
        node.title.clear();
        node.lines.clear();
    }
    assert!(with > dark(&silent) + 500);
}

#[test]
fn too_much_is_refused_with_its_code() {
    let cases = [
        (svg(&common::large(MAX_NODES + 1)).err(), "SINEW-2901"),
        (png(&common::card(), 1_000.0).err(), "SINEW-2903"),
        (png(&common::card(), 0.0).err(), "SINEW-2903"),
        (png(&common::card(), f32::NAN).err(), "SINEW-2903"),
        (png(&common::card(), -2.0).err(), "SINEW-2903"),
    ];
    for (error, code) in cases {
        assert_eq!(error.as_ref().map(DrawError::code), Some(code), "{error:?}");
    }
}

#[test]
fn a_thousand_nodes_and_none_are_drawn() {
    for count in [0, 1, 1_000] {
        let text = svg(&common::large(count)).unwrap();
        let document = Document::parse(&text).unwrap();
        assert_eq!(document.descendants().filter(|n| n.has_attribute("data-node")).count(), count);
    }
}

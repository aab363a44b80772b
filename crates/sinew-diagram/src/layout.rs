//! Where everything goes: boxes of known sizes in, places out. The layout is merman's.
//!
//! merman gets a graph of placeholders (`n0`, `n1`, one private character each) and asks our
//! measurer how large each is. It never sees a word of the workflow, so there is nothing to escape
//! and nothing it could refuse or misread.

use std::fmt::Write;
use std::sync::Arc;

use merman::svg::{
    MeasurementProfileId, RenderResourcePolicy, TextMeasurementPolicy, TextMeasurementProfile,
    TextMeasurementProfileIdentity, TextMeasurer, TextMetrics, TextStyle,
};
use merman::{
    Engine, MermaidConfig, OperationControl, ParseOptions, RenderOutput, RenderRequest, Renderer,
    SvgEnvironment, SvgRequest,
};
use serde::Deserialize;

use crate::model::{Direction, DrawError};

/// Width and height, px.
pub(crate) type Size = (f64, f64);

/// Elements to place.
pub(crate) struct ElementSizes {
    pub(crate) direction: Direction,
    pub(crate) nodes: Vec<Size>,
    /// Ends, and the size of the label where there is one. Never an edge from a node to itself.
    pub(crate) edges: Vec<(usize, usize, Option<Size>)>,
    /// Size of the title, and the members.
    pub(crate) groups: Vec<(Size, Vec<usize>)>,
}

/// Where things are, px; the same order as in [`ElementSizes`].
pub(crate) struct Places {
    /// Centres of nodes.
    pub(crate) nodes: Vec<Point>,
    pub(crate) edges: Vec<EdgePath>,
    /// Boxes around groups: left, top, width, height.
    pub(crate) groups: Vec<[f64; 4]>,
}

/// A point, px.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
pub(crate) struct Point {
    pub(crate) x: f64,
    pub(crate) y: f64,
}

/// The way of an edge.
#[derive(Clone, Debug, Default)]
pub(crate) struct EdgePath {
    pub(crate) points: Vec<Point>,
    /// Centre of the label.
    pub(crate) label: Option<Point>,
}

/// First placeholder; the range is private for good, so no font and no text means anything by it.
const FIRST: u32 = 0xF_0000;

/// Places boxes and edges.
pub(crate) fn place(sizes: &ElementSizes) -> Result<Places, DrawError> {
    let (source, slots) = source(sizes);
    let refused = |reason: String| DrawError::Layout { reason };
    let config = serde_json::json!({
        "htmlLabels": false,
        "look": "classic",
        "layout": "dagre",
        "flowchart": {
            "htmlLabels": false, "look": "classic", "padding": 0, "minNodeWidth": 0, "wrappingWidth": 100_000,
            "nodeSpacing": 36, "rankSpacing": 44,
        },
    });
    let renderer = Renderer::new()
        .with_engine(Engine::new().with_site_config(MermaidConfig::from_value(config)))
        .with_parse_options(ParseOptions::strict());
    let identity = MeasurementProfileId::new("sinew")
        .and_then(|id| TextMeasurementProfileIdentity::new(id, "1"))
        .map_err(|e| refused(e.to_string()))?;
    let profile = TextMeasurementProfile::new(identity, Arc::new(PlaceholderSizes(slots)));
    let request = SvgRequest {
        environment: SvgEnvironment::deterministic()
            .with_text_measurement_policy(TextMeasurementPolicy::uniform(profile))
            // The source is our own and limited by MAX_NODES before it gets here.
            .with_resource_policy(RenderResourcePolicy::unbounded_for_trusted_input()),
        ..SvgRequest::default()
    };
    let output = renderer
        .render(RenderRequest::layout_json(&source, OperationControl::new(), request))
        .map_err(|e| refused(e.to_string()))?;
    let RenderOutput::LayoutJson(Some(output)) = output else {
        return Err(refused("no layout came back".to_owned()));
    };
    let layout = &output.layout().as_value()["layout"]["FlowchartV2"];
    let layout = FlowLayout::deserialize(layout).map_err(|e| refused(e.to_string()))?;
    Ok(collect(sizes, &layout))
}

/// The placeholder graph, and the size of each placeholder.
fn source(sizes: &ElementSizes) -> (String, Vec<Size>) {
    let mut slots = Vec::new();
    let mut slot = |size: Size| {
        slots.push(size);
        char::from_u32(FIRST + slots.len() as u32 - 1).unwrap_or(' ')
    };
    let direction = match sizes.direction {
        Direction::TopDown => "TB",
        Direction::LeftRight => "LR",
    };
    let mut out = format!("flowchart {direction}\n");
    for (number, size) in sizes.nodes.iter().enumerate() {
        let _ = writeln!(out, "n{number}[\"{}\"]", slot(*size));
    }
    for (number, (from, to, label)) in sizes.edges.iter().enumerate() {
        let _ = match label {
            Some(size) => writeln!(out, "n{from} e{number}@-- \"{}\" --> n{to}", slot(*size)),
            None => writeln!(out, "n{from} e{number}@--> n{to}"),
        };
    }
    for (number, (title, members)) in sizes.groups.iter().enumerate() {
        let _ = writeln!(out, "subgraph g{number}[\"{}\"]\ndirection {direction}", slot(*title));
        for member in members {
            let _ = writeln!(out, "n{member}");
        }
        out.push_str("end\n");
    }
    (out, slots)
}

/// Answers how large a placeholder is.
struct PlaceholderSizes(Vec<Size>);

impl TextMeasurer for PlaceholderSizes {
    fn measure(&self, text: &str, _style: &TextStyle) -> TextMetrics {
        let size = |c: char| {
            let number = u32::from(c).checked_sub(FIRST)?;
            self.0.get(number as usize).copied()
        };
        let (width, height) =
            text.chars().filter_map(size).fold((0.0, 0.0), |(w, h): Size, (x, y)| (w + x, h.max(y)));
        TextMetrics { width, height, line_count: 1 }
    }
}

#[derive(Deserialize)]
struct FlowLayout {
    nodes: Vec<FlowBox>,
    edges: Vec<FlowEdge>,
    clusters: Vec<FlowBox>,
}

#[derive(Deserialize)]
struct FlowBox {
    id: String,
    x: f64,
    y: f64,
    width: f64,
    height: f64,
}

#[derive(Deserialize)]
struct FlowEdge {
    id: String,
    points: Vec<Point>,
    label: Option<Point>,
}

fn collect(sizes: &ElementSizes, layout: &FlowLayout) -> Places {
    let number = |id: &str, letter: char| id.strip_prefix(letter).and_then(|n| n.parse::<usize>().ok());
    let mut places = Places {
        nodes: vec![Point::default(); sizes.nodes.len()],
        edges: vec![EdgePath::default(); sizes.edges.len()],
        groups: vec![[0.0; 4]; sizes.groups.len()],
    };
    for node in &layout.nodes {
        if let Some(place) = number(&node.id, 'n').and_then(|n| places.nodes.get_mut(n)) {
            *place = Point { x: node.x, y: node.y };
        }
    }
    for edge in &layout.edges {
        if let Some(way) = number(&edge.id, 'e').and_then(|n| places.edges.get_mut(n)) {
            *way = EdgePath { points: edge.points.clone(), label: edge.label };
        }
    }
    for group in &layout.clusters {
        if let Some(place) = number(&group.id, 'g').and_then(|n| places.groups.get_mut(n)) {
            *place = [group.x - group.width / 2.0, group.y - group.height / 2.0, group.width, group.height];
        }
    }
    places
}

//! The drawing as plain data, the input of all output formats.

use std::fmt;

use serde::Serialize;
use sinew_codes as code;

/// A graph to draw: nodes and edges in file order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Drawing {
    /// Direction of the graph.
    pub direction: Direction,
    /// Text above the graph. Pictures with a caption have a legend of states.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub caption: Option<DrawingCaption>,
    /// Nodes in file order. Of nodes with the same id, only the first is drawn.
    pub nodes: Vec<DrawnNode>,
    /// Edges in file order. An end that is not a node is drawn as a box with this id.
    pub edges: Vec<DrawnEdge>,
}

/// Text above a graph.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DrawingCaption {
    /// The title, bold.
    pub title: String,
    /// Lines below the title.
    pub lines: Vec<String>,
}

impl DrawingCaption {
    /// Returns title and lines, each as one line of text.
    pub(crate) fn texts(&self) -> impl Iterator<Item = String> + '_ {
        std::iter::once(&self.title).chain(&self.lines).map(|line| crate::names::one_line(line))
    }
}

/// Direction of a graph.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum Direction {
    /// From top to bottom.
    #[default]
    TopDown,
    /// From left to right.
    LeftRight,
}

/// One node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DrawnNode {
    /// The node's id, any text.
    pub id: String,
    /// Outline of the node, which indicates its kind.
    pub shape: Shape,
    /// First line, bold, such as "Agent".
    pub title: String,
    /// Further lines, which drawings wrap and shorten.
    pub lines: Vec<String>,
    /// State of the node in an execution; `None` without an overlaid execution.
    pub status: Option<NodeMark>,
    /// Title of the node's group.
    pub group: Option<String>,
    /// Colour of the outline without an overlaid execution; `None` for the colour of the shape.
    pub color: Option<NodeColor>,
    /// Whether the node represents many of its kind; pictures draw it as a stack.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_stack: bool,
    /// Whether the node is internal: drawn small, with title and state on one line.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_quiet: bool,
    /// Inputs and outputs, which pictures draw on the sides of the node.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sockets: Vec<DrawnSocket>,
}

impl DrawnNode {
    /// Returns the id as a separate line, for use in commands. `None` if the text of the node contains
    /// it, and for start and finish, which commands do not accept.
    pub(crate) fn id_line(&self) -> Option<&str> {
        let is_said = self.title == self.id || self.lines.contains(&self.id);
        (self.shape != Shape::Terminal && !is_said && !self.is_quiet).then_some(self.id.as_str())
    }

    /// Returns the lines below the title that are drawn.
    pub(crate) fn drawn_lines(&self) -> &[String] {
        if self.is_quiet { &[] } else { &self.lines }
    }
}

/// Colour of a node's outline: red, green and blue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct NodeColor(u8, u8, u8);

impl NodeColor {
    /// Parses `#rrggbb`; `None` for any other text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix('#').filter(|digits| digits.len() == 6 && digits.is_ascii())?;
        let part = |at: usize| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok();
        Some(Self(part(0)?, part(2)?, part(4)?))
    }
}

impl fmt::Display for NodeColor {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "#{:02x}{:02x}{:02x}", self.0, self.1, self.2)
    }
}

/// An input or output of a node, with a value type.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DrawnSocket {
    /// Name of the socket.
    pub name: String,
    /// Type of its values.
    pub kind: String,
    /// Outline of the type.
    pub shape: SocketShape,
    /// Colour of the type.
    pub color: NodeColor,
    /// Whether the socket is an output.
    pub is_output: bool,
}

/// Outline of a socket type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SocketShape {
    /// A circle.
    Circle,
    /// A square.
    Square,
    /// A square that stands on a corner.
    Diamond,
}

impl SocketShape {
    /// Parses the name of an outline; a circle for unknown names.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        match text {
            "square" | "rectangle" => Self::Square,
            "diamond" => Self::Diamond,
            _ => Self::Circle,
        }
    }
}

/// Outline of a node, one per kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub enum Shape {
    /// Start and finish: a pill, `([ ])`.
    Terminal,
    /// Work of an agent: a rounded box, `( )`.
    Task,
    /// Anything else: a box, `[ ]`.
    Box,
    /// A choice: a diamond, `{ }`.
    Decision,
    /// A join of branches: a circle, `(( ))`.
    Join,
    /// A fork of branches: a hexagon, `{{ }}`.
    Fork,
    /// Repetition: a parallelogram, `[/ /]`.
    Loop,
    /// Work for each item: a box with side bars, `[[ ]]`.
    Map,
    /// A wait for a person: a trapezium, `[/ \]`.
    Human,
    /// Another workflow: a double box, `[[ ]]`.
    Subworkflow,
    /// A timer: a flag in Mermaid, `> ]`, else the flow-chart symbol for a delay.
    Delay,
}

/// One edge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DrawnEdge {
    /// Id of the source node.
    pub from: String,
    /// Id of the target node.
    pub to: String,
    /// Label of the edge.
    pub label: Option<String>,
    /// Kind of the edge.
    pub kind: EdgeKind,
    /// Number of times that an execution took it; `None` without an overlaid execution.
    pub taken: Option<u32>,
}

/// Kind of an edge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum EdgeKind {
    /// Control flow: a solid arrow.
    #[default]
    Flow,
    /// An element that belongs to a node (a tool, a model): a dotted arrow.
    Attach,
    /// Back to an earlier node: an arrow, dashed if the format supports it.
    Back,
}

/// State of a node in an execution, shown by colour, icon and text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NodeMark {
    /// The state.
    pub status: Status,
    /// Counts, such as "×3", "2 attempts", "387 ok, 4 failed".
    pub note: Option<String>,
}

/// State of a node in an execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub enum Status {
    /// Not started yet.
    Planned,
    /// In progress.
    Running,
    /// Ended without an error.
    Succeeded,
    /// Ended with an error.
    Failed,
    /// Not on the path of the execution.
    Skipped,
    /// Cancelled.
    Cancelled,
    /// Waiting for a person, a time or an event.
    Waiting,
}

/// Reason why a drawing failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DrawError {
    /// The drawing exceeds the limits of a picture.
    #[error(
        "the graph has {nodes} nodes and {edges} edges; a picture can have {limit} nodes and twice as many edges; use mermaid, dot or the terminal format"
    )]
    TooLarge {
        /// Nodes in the drawing.
        nodes: usize,
        /// Edges in the drawing.
        edges: usize,
        /// Maximum nodes of a picture.
        limit: usize,
    },
    /// The layout engine refused the graph.
    #[error("the layout engine refused the graph: {reason}")]
    Layout {
        /// Error of the layout engine; never contains text of the workflow.
        reason: String,
    },
    /// The picture would have too many pixels, or the scale is not valid.
    #[error("the picture would be {width} by {height} pixels; choose a smaller scale, or svg")]
    Pixels {
        /// Requested width.
        width: u64,
        /// Requested height.
        height: u64,
    },
    /// The conversion of the SVG to a PNG failed.
    #[error("the picture could not be written: {reason}")]
    Raster {
        /// Error of the rasteriser.
        reason: String,
    },
}

impl DrawError {
    /// Returns the operator code, explained by `sinew explain CODE`.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::TooLarge { .. } => code::GRAPH_TOO_LARGE_FOR_PICTURE.as_str(),
            Self::Layout { .. } => code::LAYOUT_FAILED.as_str(),
            Self::Pixels { .. } => code::PICTURE_WOULD_HAVE_TOO_MANY_PIXELS.as_str(),
            Self::Raster { .. } => code::PICTURE_COULD_NOT_BE_WRITTEN.as_str(),
        }
    }
}

/// Style of a state, which never differs by colour alone. Hues are those of Okabe and Ito, which are
/// distinguishable with colour blindness.
pub(crate) struct StatusStyle {
    pub(crate) word: &'static str,
    pub(crate) icon: &'static str,
    /// Icon for ASCII output.
    pub(crate) ascii: &'static str,
    pub(crate) fill: &'static str,
    pub(crate) stroke: &'static str,
    pub(crate) text: &'static str,
    /// Width of the outline, px.
    pub(crate) width: f64,
    pub(crate) dashed: bool,
}

impl Status {
    /// All states, in the order of legends and class lists.
    pub(crate) const ALL: [Self; 7] = [
        Self::Planned,
        Self::Running,
        Self::Succeeded,
        Self::Failed,
        Self::Skipped,
        Self::Cancelled,
        Self::Waiting,
    ];

    #[rustfmt::skip]
    pub(crate) const fn look(self) -> StatusStyle {
        let (word, icon, ascii, fill, stroke, text, width, dashed) = match self {
            Self::Planned   => ("planned",   "○", "o", "#ffffff", "#8c959f", "#57606a", 1.2, true),
            Self::Running   => ("running",   "►", ">", "#dcedfb", "#0072b2", "#04304b", 2.6, false),
            Self::Succeeded => ("succeeded", "✓", "+", "#dcf3ea", "#00795a", "#053d2f", 1.6, false),
            Self::Failed    => ("failed",    "✗", "x", "#fde4d7", "#c24e00", "#571f00", 2.6, false),
            Self::Skipped   => ("skipped",   "↷", "-", "#f3f4f6", "#a3abb3", "#6a737c", 1.2, true),
            Self::Cancelled => ("cancelled", "⊘", "/", "#e4e7ea", "#57606a", "#32383f", 1.6, false),
            Self::Waiting   => ("waiting",   "◷", "~", "#fdf1cc", "#b07a00", "#4d3500", 2.0, false),
        };
        StatusStyle { word, icon, ascii, fill, stroke, text, width, dashed }
    }
}

impl NodeMark {
    /// Formats the state as a line of text: `✓ succeeded · 2 attempts`.
    pub(crate) fn line(&self, ascii: bool) -> String {
        let look = self.status.look();
        let icon = if ascii { look.ascii } else { look.icon };
        match self.note.as_deref().map(str::trim).filter(|n| !n.is_empty()) {
            Some(note) if ascii => format!("{icon} {}, {}", look.word, note.replace('×', "x")),
            Some(note) => format!("{icon} {} · {note}", look.word),
            None => format!("{icon} {}", look.word),
        }
    }
}

impl DrawnEdge {
    /// Formats label and count of the edge, such as `again ×3`; may be empty.
    pub(crate) fn text(&self, ascii: bool) -> String {
        let label = self.label.as_deref().unwrap_or_default().trim();
        let times = match self.taken {
            Some(n) if n > 1 => format!("{}{n}", if ascii { "x" } else { "×" }),
            _ => String::new(),
        };
        [label, &times].into_iter().filter(|s| !s.is_empty()).collect::<Vec<_>>().join(" ")
    }
}

/// The drawing with resolved edge ends, the input of all output formats.
pub(crate) struct Graph<'a> {
    pub(crate) nodes: Vec<std::borrow::Cow<'a, DrawnNode>>,
    /// Edges with the indexes of their ends in `nodes`.
    pub(crate) edges: Vec<(usize, usize, &'a DrawnEdge)>,
    /// Titles of groups in order of first use, with their members.
    pub(crate) groups: Vec<(&'a str, Vec<usize>)>,
}

impl<'a> Graph<'a> {
    pub(crate) fn of(drawing: &'a Drawing) -> Self {
        use std::borrow::Cow;
        let mut places = std::collections::BTreeMap::new();
        let mut nodes: Vec<Cow<'a, DrawnNode>> = Vec::with_capacity(drawing.nodes.len());
        let mut groups: Vec<(&str, Vec<usize>)> = Vec::new();
        let mut group_places = std::collections::BTreeMap::new();
        for node in &drawing.nodes {
            if places.contains_key(node.id.as_str()) {
                continue;
            }
            places.insert(node.id.as_str(), nodes.len());
            if let Some(group) = &node.group {
                let at = *group_places.entry(group.as_str()).or_insert_with(|| {
                    groups.push((group, Vec::new()));
                    groups.len() - 1
                });
                groups[at].1.push(nodes.len());
            }
            nodes.push(Cow::Borrowed(node));
        }
        let mut edges = Vec::with_capacity(drawing.edges.len());
        for edge in &drawing.edges {
            let mut end = |id: &'a str| {
                *places.entry(id).or_insert_with(|| {
                    nodes.push(Cow::Owned(DrawnNode {
                        id: id.to_owned(),
                        shape: Shape::Box,
                        title: id.to_owned(),
                        lines: Vec::new(),
                        status: None,
                        group: None,
                        color: None,
                        is_stack: false,
                        is_quiet: false,
                        sockets: Vec::new(),
                    }));
                    nodes.len() - 1
                })
            };
            edges.push((end(&edge.from), end(&edge.to), edge));
        }
        Self { nodes, edges, groups }
    }
}

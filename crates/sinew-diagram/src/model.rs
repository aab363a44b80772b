//! The drawing as pure data with its texts; every form of output reads only this.

use std::fmt;

use serde::Serialize;
use sinew_codes as code;

/// A graph to draw: nodes and edges in file order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Drawing {
    /// Which way the graph grows.
    pub direction: Direction,
    /// Text above the graph; with one, pictures have a legend of the states below.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub caption: Option<DrawingCaption>,
    /// Nodes in file order; ids are unique (a repeated id is drawn once, the first wins).
    pub nodes: Vec<DrawnNode>,
    /// Edges in file order; an end that is not a node is drawn as a plain box with that id.
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

/// Which way a graph grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum Direction {
    /// From the top down.
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
    /// Outline of the node; tells its kind.
    pub shape: Shape,
    /// First line, bold; "Agent".
    pub title: String,
    /// Further lines; may be long, drawings wrap and shorten them.
    pub lines: Vec<String>,
    /// State of the node in an execution; `None` where no execution is laid over.
    pub status: Option<NodeMark>,
    /// Title of the box around this node and others of the same group.
    pub group: Option<String>,
    /// Colour of the outline where no execution is laid over; `None`: the colour of its shape.
    pub color: Option<NodeColor>,
    /// Whether the node stands for many of its kind: pictures draw it as a stack.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_stack: bool,
    /// Whether the node is plumbing: it is drawn small, with its title and its state in one line.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_quiet: bool,
    /// LayoutPositions where values come in and go out; pictures draw them on its sides.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sockets: Vec<DrawnSocket>,
}

impl DrawnNode {
    /// Returns the id as a line of its own, as commands take it. `None` if the text of the node says it already, and for
    /// start and finish, which no command takes.
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
    /// Reads `#rrggbb`; `None` for any other text.
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

/// A place of a node where values of one type come in or go out.
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
    /// Whether values go out there.
    pub is_output: bool,
}

/// Outline of a type of sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SocketShape {
    /// A circle.
    Circle,
    /// A square.
    Square,
    /// A square on its corner.
    Diamond,
}

impl SocketShape {
    /// Reads the word for an outline; a circle for unknown ones.
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
    /// Work done by an agent: a rounded box, `( )`.
    Task,
    /// Anything else: a box, `[ ]`.
    Box,
    /// A choice: a diamond, `{ }`.
    Decision,
    /// Branches meet: a circle, `(( ))`.
    Join,
    /// Branches part: a hexagon, `{{ }}`.
    Fork,
    /// Repetition: a parallelogram, `[/ /]`.
    Loop,
    /// Work for each item: a box with side bars, `[[ ]]`.
    Map,
    /// Waits for a person: a trapezium, `[/ \]`.
    Human,
    /// Another workflow: a double box, `[[ ]]`.
    Subworkflow,
    /// Waits for time: a flag in Mermaid, `> ]`, the flow-chart delay symbol elsewhere.
    Delay,
}

/// One edge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DrawnEdge {
    /// Id of the node it leaves.
    pub from: String,
    /// Id of the node it enters.
    pub to: String,
    /// Text at the edge.
    pub label: Option<String>,
    /// Kind of the edge.
    pub kind: EdgeKind,
    /// How often an execution took it; `None` where no execution is laid over.
    pub taken: Option<u32>,
}

/// Kind of an edge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum EdgeKind {
    /// Order of work: a solid arrow.
    #[default]
    Flow,
    /// An element that belongs to a node (a tool, a model): a dotted arrow.
    Attach,
    /// Back to an earlier node: an arrow, dashed where the form can style it.
    Back,
}

/// State of a node in an execution: shown by colour, icon and word.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NodeMark {
    /// The state.
    pub status: Status,
    /// Counts and the like: "×3", "2 attempts", "387 ok, 4 failed".
    pub note: Option<String>,
}

/// State of a node in an execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub enum Status {
    /// Not started yet.
    Planned,
    /// At work.
    Running,
    /// Done.
    Succeeded,
    /// Ended with an error.
    Failed,
    /// Not needed on the way taken.
    Skipped,
    /// Stopped from outside.
    Cancelled,
    /// Waits for a person, a time or an event.
    Waiting,
}

/// Why a drawing could not be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DrawError {
    /// More nodes and edges than a picture can show.
    #[error(
        "the graph has {nodes} nodes and {edges} edges; a picture holds {limit} nodes and twice as many edges; ask for mermaid, dot or the terminal form"
    )]
    TooLarge {
        /// Nodes in the drawing.
        nodes: usize,
        /// Edges in the drawing.
        edges: usize,
        /// The most nodes a picture holds.
        limit: usize,
    },
    /// The layout engine refused the graph.
    #[error("the layout engine refused the graph: {reason}")]
    Layout {
        /// Error of the layout engine; never contains text of the workflow.
        reason: String,
    },
    /// The picture would have too many pixels, or a scale that is not a size.
    #[error("the picture would be {width} by {height} pixels; choose a smaller scale, or svg")]
    Pixels {
        /// Width asked for.
        width: u64,
        /// Height asked for.
        height: u64,
    },
    /// The SVG could not be turned into a PNG.
    #[error("the picture could not be written: {reason}")]
    Raster {
        /// Error of the rasteriser.
        reason: String,
    },
}

impl DrawError {
    /// The operator code, one page each.
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

/// How a state looks: never by colour alone. Hues after Okabe and Ito, told apart by most eyes.
pub(crate) struct StatusStyle {
    pub(crate) word: &'static str,
    pub(crate) icon: &'static str,
    /// The icon where only ASCII shows.
    pub(crate) ascii: &'static str,
    pub(crate) fill: &'static str,
    pub(crate) stroke: &'static str,
    pub(crate) text: &'static str,
    /// Width of the outline, px.
    pub(crate) width: f64,
    pub(crate) dashed: bool,
}

impl Status {
    /// All states, in the order legends and class lists use.
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
    /// The state as a line of text: `✓ succeeded · 2 attempts`.
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
    /// The edge's text with the count of times taken: `again ×3`; empty where there is none.
    pub(crate) fn text(&self, ascii: bool) -> String {
        let label = self.label.as_deref().unwrap_or_default().trim();
        let times = match self.taken {
            Some(n) if n > 1 => format!("{}{n}", if ascii { "x" } else { "×" }),
            _ => String::new(),
        };
        [label, &times].into_iter().filter(|s| !s.is_empty()).collect::<Vec<_>>().join(" ")
    }
}

/// The drawing with ends resolved: what every form of output walks over.
pub(crate) struct Graph<'a> {
    pub(crate) nodes: Vec<std::borrow::Cow<'a, DrawnNode>>,
    /// Edge with the places of its ends in `nodes`.
    pub(crate) edges: Vec<(usize, usize, &'a DrawnEdge)>,
    /// Group titles in order of first use, each with its members.
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

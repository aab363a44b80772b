//! The drawing of a workflow: one model, drawn as Mermaid text, SVG, PNG, DOT or text for a terminal.
//!
//! A dialect words a [`Drawing`] (nodes and edges in file order, titles and labels as people read
//! them), an execution may be laid over it ([`NodeMark`] on a node, `taken` on an edge), and every
//! surface draws that same model: the card of a workflow, the console, the command line, a test.
//!
//! [`mermaid`] and [`dot`] are plain text and cannot fail. [`svg`] asks dugong, a port of dagre, where boxes
//! and edges go and paints them itself, [`png`] rasterises that SVG with embedded fonts, [`terminal`]
//! draws boxes of characters for graphs that only branch, and writes a tree for all others.
//!
//! Text from users is escaped where it is painted; the layout sees numbers and sizes only. So no name can break or inject
//! anything.
//!
//! This crate reads no files (but system fonts, for scripts the embedded font lacks), knows no
//! dialect, and keeps no state between calls.

mod boxes;
mod dot;
mod fonts;
mod layered;
mod layout;
mod mermaid;
mod model;
mod names;
mod paint;
mod placed;
mod raster;
mod shapes;
mod sockets;
mod terminal;
#[cfg(test)]
mod tests;
mod theme;
mod tree;

pub use dot::dot;
pub use mermaid::mermaid;
pub use model::{
    Direction, DrawError, Drawing, DrawingCaption, DrawnEdge, DrawnNode, DrawnSocket, EdgeKind, NodeColor,
    NodeMark, Shape, SocketShape, Status,
};
pub use paint::{svg, svg_in};
pub use placed::{DrawnStates, PlacedDrawing, PlacedEdge, PlacedGroup, PlacedNode};
pub use raster::{png, png_in};
pub use terminal::{terminal, terminal_within};
pub use theme::{DrawingTheme, dark_rules};

/// More nodes than this are refused by [`svg`] and [`png`]; the text forms have no limit.
pub const MAX_NODES: usize = 2_000;
/// More nodes than this, or four times as many edges, are refused by [`PlacedDrawing::of`].
pub const MAX_PLACED_NODES: usize = 20_000;

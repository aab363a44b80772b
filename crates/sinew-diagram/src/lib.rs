//! Draws workflows as Mermaid text, SVG, PNG, DOT or text for a terminal, from one model.
//!
//! A dialect builds a [`Drawing`] (nodes and edges in file order, titles and labels for people). An
//! execution can be overlaid ([`NodeMark`] on a node, `taken` on an edge). Workflow cards, the
//! console, the command line and tests draw this model.
//!
//! [`mermaid`] and [`dot`] return plain text and cannot fail. [`svg`] computes a layout with dugong, a
//! port of dagre, and paints it. [`png`] rasterises this SVG with embedded fonts. [`terminal`] draws
//! boxes of characters for trees, and an indented list for all other graphs.
//!
//! Text of users is escaped when it is painted, and the layout receives only numbers and sizes, so
//! names cannot inject anything.
//!
//! This crate reads no files (except system fonts, for scripts that the embedded font lacks), knows
//! no dialect, and keeps no state between calls.

mod boxes;
mod dot;
mod excerpt;
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

/// Maximum nodes of [`svg`] and [`png`]; text formats have no limit.
pub const MAX_NODES: usize = 2_000;
/// Maximum nodes of [`PlacedDrawing::of`], which also allows four times as many edges.
pub const MAX_PLACED_NODES: usize = 20_000;

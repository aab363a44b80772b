//! Drawings in pages: inlined SVG, or a canvas for large ones.

use maud::{Markup, PreEscaped, html};

use crate::api_client::ApiPath;

/// Use of a drawing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DrawingUse {
    /// Nodes open next to it, and the address stores the viewport.
    Inspected,
    /// The address stores the viewport.
    Shown,
    /// One of several, next to a text.
    Beside,
}

const GRAPH_LABEL: &str =
    "Graph. Arrow keys pan, + and - zoom, 0 shows all. The table of nodes has the same content";

/// An SVG drawing from the API. `sinew-diagram` escapes its text and emits no script, style, link
/// or reference.
pub(crate) fn drawing(svg: String, usage: DrawingUse) -> Markup {
    html! {
        div.drawing tabindex="0" role="group" aria-label=(GRAPH_LABEL)
            data-inspects[usage == DrawingUse::Inspected] data-place[usage != DrawingUse::Beside] { (PreEscaped(svg)) }
    }
}

/// A drawing that is too large to inline: a module paints the visible part. `path` is the API path
/// of the drawing; `focus` is the node that the first view shows. On a phone the drawing is hidden
/// until a button shows it, because the list below is readable there.
pub(crate) fn large_drawing(path: &ApiPath, nodes: usize, usage: DrawingUse, focus: Option<&str>) -> Markup {
    let parts = path.clone().with("format", "placed").address();
    html! {
        div.large-drawing {
            button.graph-toggle type="button" data-show-graph { "Show graph of " (nodes) " nodes" }
            div.drawing.large tabindex="0" role="group" aria-label=(GRAPH_LABEL) data-graph=(parts) data-focus=[focus]
                data-inspects[usage == DrawingUse::Inspected] data-place[usage != DrawingUse::Beside] {
                canvas role="img" aria-label={ "Graph of " (nodes) " nodes" } {}
                noscript { p.notice { "The graph has " (nodes) " nodes. " a href=(path.address()) { "Open it separately" } ", or see the table below." } }
            }
        }
    }
}

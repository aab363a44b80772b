//! Sockets of nodes: inputs and outputs with the colour and outline of their type.

use std::fmt::Write as _;

use crate::model::{Direction, DrawnSocket, SocketShape};
use crate::names::{one_line, xml};

/// Maximum painted sockets of a side.
const MAX_PAINTED: usize = 12;
/// Half the size of a mark, and the maximum distance between the centres of two, px.
const MARK: (f64, f64) = (4.5, 18.0);

/// Paints the sockets of a node: inputs on the side of incoming edges, outputs on the opposite side.
pub(crate) fn paint(
    sockets: &[DrawnSocket],
    direction: Direction,
    (x, y): (f64, f64),
    (width, height): (f64, f64),
) -> String {
    let mut out = String::new();
    for is_output in [false, true] {
        let side: Vec<&DrawnSocket> =
            sockets.iter().filter(|socket| socket.is_output == is_output).take(MAX_PAINTED).collect();
        let length = if direction == Direction::TopDown { width } else { height };
        let apart = (length / (side.len() as f64 + 1.0)).min(MARK.1);
        for (number, socket) in side.iter().enumerate() {
            let along = (number as f64 - (side.len() as f64 - 1.0) / 2.0) * apart;
            let sign = if is_output { 0.5 } else { -0.5 };
            let at = match direction {
                Direction::TopDown => (x + along, y + sign * height),
                Direction::LeftRight => (x + sign * width, y + along),
            };
            mark(&mut out, socket, at);
        }
    }
    out
}

fn mark(out: &mut String, socket: &DrawnSocket, (x, y): (f64, f64)) {
    let way = if socket.is_output { "gives" } else { "takes" };
    let told = xml(&format!("{way} {}: {}", one_line(&socket.name), one_line(&socket.kind)));
    let half = MARK.0;
    let outline = match socket.shape {
        SocketShape::Circle => format!(r#"<circle cx="{x:.1}" cy="{y:.1}" r="{half}"/>"#),
        SocketShape::Square => format!(
            r#"<rect x="{:.1}" y="{:.1}" width="{}" height="{}"/>"#,
            x - half,
            y - half,
            2.0 * half,
            2.0 * half
        ),
        SocketShape::Diamond => format!(
            r#"<path d="M{x:.1} {:.1}L{:.1} {y:.1}L{x:.1} {:.1}L{:.1} {y:.1}Z"/>"#,
            y - half - 1.0,
            x + half + 1.0,
            y + half + 1.0,
            x - half - 1.0
        ),
    };
    let _ = write!(
        out,
        r##"<g class="socket" fill="{}" stroke="#57606a" stroke-width="0.8"><title>{told}</title>{outline}</g>"##,
        socket.color
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NodeColor;

    fn socket(name: &str, shape: SocketShape, is_output: bool) -> DrawnSocket {
        let color = NodeColor::parse("#7c3aed").unwrap();
        DrawnSocket { name: name.to_owned(), kind: "json".to_owned(), shape, color, is_output }
    }

    #[test]
    fn inputs_and_outputs_lie_on_the_sides_of_the_edges() {
        let sockets = [
            socket("a", SocketShape::Circle, false),
            socket("b", SocketShape::Square, false),
            socket("c", SocketShape::Diamond, true),
        ];
        let down = paint(&sockets, Direction::TopDown, (100.0, 50.0), (80.0, 40.0));
        for wanted in [
            r#"<title>takes a: json</title><circle cx="91.0" cy="30.0" r="4.5"/>"#,
            r#"<title>takes b: json</title><rect x="104.5" y="25.5" width="9" height="9"/>"#,
            r#"<title>gives c: json</title><path d="M100.0 64.5L105.5 70.0L100.0 75.5L94.5 70.0Z"/>"#,
            r##"fill="#7c3aed""##,
        ] {
            assert!(down.contains(wanted), "{wanted} is not in {down}");
        }
        let right = paint(&sockets[..1], Direction::LeftRight, (100.0, 50.0), (80.0, 40.0));
        assert!(right.contains(r#"cx="60.0" cy="50.0""#), "{right}");
    }

    #[test]
    fn names_are_text_and_many_sockets_are_cut() {
        let hostile = vec![socket("<script>\"&\n", SocketShape::Circle, false); 50];
        let painted = paint(&hostile, Direction::TopDown, (0.0, 0.0), (80.0, 40.0));
        assert_eq!(painted.matches("<g ").count(), MAX_PAINTED);
        assert!(!painted.contains("<script"), "{painted}");
    }
}

//! Bytes of a NATS server, and its answers about stored messages. A panic is a finding.

use bytes::BytesMut;
use sinew_mesh::stored::read_stored;
use sinew_mesh::wire::{FrameError, FrameScreen, check_headers, parse_headers};

/// Passes a server's bytes through the screen, whole and in pieces; the same bytes are a header block and an answer, too.
pub fn frames(bytes: &[u8]) {
    let whole = screened(bytes, bytes.len());
    for piece in [1, 7, 64] {
        assert_eq!(screened(bytes, piece), whole, "frames do not depend on how they come");
    }
    if let Ok((out, _)) = &whole {
        assert_eq!(
            screened(out, out.len()),
            Ok((out.clone(), 0)),
            "what is passed on is passed on unchanged"
        );
    }
    assert_eq!(check_headers(bytes).err(), parse_headers(bytes).err(), "both say the same");
    let _ = read_stored(bytes);
}

/// What is passed on, and how many messages were replaced.
fn screened(bytes: &[u8], piece: usize) -> Result<(Vec<u8>, usize), FrameError> {
    let mut screen = FrameScreen { received: BytesMut::new(), ..FrameScreen::default() };
    let mut out = Vec::new();
    for piece in bytes.chunks(piece.max(1)) {
        screen.received.extend_from_slice(piece);
        for frame in screen.screened()? {
            out.extend_from_slice(&frame);
        }
    }
    Ok((out, screen.replaced.len()))
}

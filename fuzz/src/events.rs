//! A stream of events (SSE) from a server outside.

use sinew_protocol::event_stream::EventReader;

/// However a stream is cut on its way, the same events come out of it.
pub(crate) fn events(bytes: &[u8]) {
    let read = |pieces: &mut dyn Iterator<Item = &[u8]>| {
        let mut reader = EventReader::new(4 << 20);
        let mut events = Vec::new();
        for piece in pieces {
            events.extend(reader.push(piece).ok()?);
        }
        Some(events)
    };
    let whole = read(&mut std::iter::once(bytes));
    for size in [1, 2, 7] {
        assert_eq!(read(&mut bytes.chunks(size)), whole, "in pieces of {size} bytes");
    }
}

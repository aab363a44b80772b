//! The checks agree with the client library, except for its panic; valid frames pass unchanged.

use proptest::prelude::*;

use super::*;

/// Header blocks, each with its defect, if any.
const BLOCKS: [(&[u8], Option<HeaderDefect>); 26] = [
    (b"NATS/1.0\r\n\r\n", None),
    (b"NATS/1.0\r\nA: b\r\n\r\n", None),
    (b"NATS/1.0\r\nA:b\r\nA:\r\n\r\n", None),
    (b"NATS/1.0\r\nA: b\r\n more\r\n\tand more\r\n\r\n", None),
    (b"NATS/1.0\nA: b\n\n", None),
    (b"NATS/1.0 503\r\n\r\n", None),
    (b"NATS/1.0 100 Idle Heartbeat\r\n\r\n", None),
    (b"NATS/1.0503\r\n\r\n", None),
    (b"NATS/1.0\r\n: no name\r\n\r\n", None),
    (b"NATS/1.0\r\nA: \xc3\xa4\r\n\r\n", None),
    (b"NATS/1.0\r\nA: b", None),
    (b"NATS/1.0\r\nA: b\r\r\n\r\n", None),
    (b"", Some(HeaderDefect::Version)),
    (b"\r\n\r\n", Some(HeaderDefect::Version)),
    (b"NATS/2.0\r\n\r\n", Some(HeaderDefect::Version)),
    (b"nats/1.0\r\n\r\n", Some(HeaderDefect::Version)),
    (b"NATS/1.0 5\r\n\r\n", Some(HeaderDefect::Status)),
    (b"NATS/1.0 abc def\r\n\r\n", Some(HeaderDefect::Status)),
    (b"NATS/1.0 099\r\n\r\n", Some(HeaderDefect::Status)),
    (b"NATS/1.0\r\nno colon\r\n\r\n", Some(HeaderDefect::Colon)),
    (b"NATS/1.0\r\n folded: before a name\r\n\r\n", Some(HeaderDefect::Name)),
    (b"NATS/1.0\r\nA b: c\r\n\r\n", Some(HeaderDefect::Name)),
    (b"NATS/1.0\r\n\xc3\xa4: c\r\n\r\n", Some(HeaderDefect::Name)),
    (b"NATS/1.0\r\nA: \xff\r\n\r\n", Some(HeaderDefect::Encoding)),
    (b"NATS/1.0\r\nA: b\rc\r\n\r\n", Some(HeaderDefect::CarriageReturn)),
    (b"NATS/1.0\r\nA: b\r\r\n c\r\n\r\n", Some(HeaderDefect::CarriageReturn)),
];

/// A frame with headers.
fn hmsg(subject: &[u8], block: &[u8], body: &[u8]) -> Vec<u8> {
    let sizes = format!(" 7 {} {}\r\n", block.len(), block.len() + body.len());
    [b"HMSG ", subject, sizes.as_bytes(), block, body, b"\r\n"].concat()
}

fn screened(bytes: &[u8]) -> (Vec<u8>, Vec<ReplacedFrame>) {
    let mut screen = FrameScreen { received: bytes.into(), ..FrameScreen::default() };
    let out = screen.screened().unwrap().concat();
    assert!(screen.received.is_empty(), "{:?} is left", screen.received);
    (out, screen.replaced)
}

#[test]
fn header_blocks_are_told_apart() {
    for (block, want) in BLOCKS {
        let shown = block.escape_ascii();
        assert_eq!(check_headers(block).err(), want, "{shown}");
        assert_eq!(parse_headers(block).err(), want, "{shown}");
        let frame = hmsg(b"a.b", block, b"body");
        let (out, replaced) = screened(&frame);
        assert_eq!(out == frame, want.is_none(), "{shown}");
        assert_eq!(replaced.len(), usize::from(want.is_some()), "{shown}");
        if let Some(want) = want {
            assert!(out.ends_with(b"\r\n\r\nbody\r\n"), "the body is lost: {}", out.escape_ascii());
            assert_eq!(replaced[0].reason, want.to_string());
        }
    }
    let headers = parse_headers(b"NATS/1.0\r\nA: b\r\nA:c\r\nNo: 1\r\n 2\r\n\r\n").unwrap();
    let all: Vec<_> = headers.get_all("A").map(HeaderValue::as_str).collect();
    assert_eq!((all, headers.get("No").unwrap().as_str()), (vec!["b", "c"], "1 2"));
}

#[test]
fn lines_are_told_apart() {
    let good = b"NATS/1.0\r\nA: b\r\n\r\n";
    for (frame, replaced) in [
        (hmsg(b"a.b", good, b""), None),
        (hmsg(b"a.b", good, b"\r\n\r\nHMSG "), None),
        (hmsg("a.\u{e4}".as_bytes(), good, b""), None),
        (hmsg(b"a.\xff", good, b"x"), Some("a.\u{fffd}")),
        // Split at it, the line would name another subscription and another subject.
        (hmsg(b"a.b\x0b9", good, b"x"), Some("a.b\u{fffd}9")),
        (hmsg("a.b\u{2003}9".as_bytes(), good, b"x"), Some("a.b\u{fffd}9")),
        (b"MSG a.b 7 2\r\nab\r\n".to_vec(), None),
        (b"MSG a.b 7 _INBOX.x 0\r\n\r\n".to_vec(), None),
        (b"MSG a.\xff 7 2\r\nab\r\n".to_vec(), Some("a.\u{fffd}")),
        (b"PING\r\nPONG\r\n+OK\r\n-ERR 'no'\r\n".to_vec(), None),
    ] {
        let shown = frame.escape_ascii().to_string();
        let (out, found) = screened(&frame);
        assert_eq!(found.first().map(|found| found.subject.as_str()), replaced, "{shown}");
        assert_eq!(out == frame, replaced.is_none(), "{shown}");
        // A replaced message passes the screen unchanged.
        assert_eq!(screened(&out), (out.clone(), Vec::new()), "{shown}");
    }
    // The reply and the subscription remain.
    let (out, _) = screened(b"HMSG a.b 7 $JS.ACK.x 4 6\r\nNATSab\r\n");
    let block = "NATS/1.0\r\nSinew-Undeliverable: the headers do not begin with NATS/1.0\r\nSinew-Raw-Headers: TkFUUw==\r\n\r\n";
    let want = format!("HMSG a.b 7 $JS.ACK.x {} {}\r\n{block}ab\r\n", block.len(), block.len() + 2);
    assert_eq!(String::from_utf8(out).unwrap(), want);
    // A reply to an invalid subject cannot be sent.
    let (out, _) = screened(b"HMSG a.b 7 r\xff 12 12\r\nNATS/1.0\r\n\r\n\r\n");
    assert!(out.starts_with(b"HMSG a.b 7 "), "{}", out.escape_ascii());
    assert_eq!(out.split(|byte| *byte == b'\r').next().unwrap().split(|byte| *byte == b' ').count(), 5);
    // TLS and the cluster end at the screen.
    let info =
        br#"INFO {"version":"2.15.1","tls_required":true,"connect_urls":["10.0.0.1:4222"],"max_payload":9}"#;
    let mut screen =
        FrameScreen { received: [info, &b"\r\n"[..]].concat()[..].into(), ..FrameScreen::default() };
    let out = screen.screened().unwrap().concat();
    let left: Value = serde_json::from_slice(out.strip_prefix(b"INFO ").unwrap()).unwrap();
    assert_eq!(left, serde_json::json!({ "version": "2.15.1", "max_payload": 9 }));
    assert_eq!(screen.cluster, ["10.0.0.1:4222"]);
}

#[test]
fn bytes_that_no_server_sends_end_the_connection() {
    for bytes in [
        &b"MSG a b c d e\r\n"[..],
        b"MSG a x 1\r\n",
        b"MSG a 1 -1\r\n",
        b"MSG a 1 99999999999999999999\r\n",
        b"MSG a 1 999999999\r\n",
        b"MSG a 1 1\r\nabc",
        b"HMSG a 1 5 4\r\n",
        b"INFO no\r\n",
        b"HELLO\r\n",
        b"\r\n",
        b"ping\r\n",
    ] {
        let mut screen = FrameScreen { received: bytes.into(), ..FrameScreen::default() };
        assert!(screen.screened().is_err(), "{}", bytes.escape_ascii());
    }
}

/// Bytes that resemble headers.
fn close_to_headers() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        Just(b"NATS/1.0".to_vec()),
        Just(b"\r\n".to_vec()),
        Just(b"A: b".to_vec()),
        Just(b" 503 x".to_vec()),
        Just(b":".to_vec()),
        prop::collection::vec(any::<u8>(), 0..3),
        prop::sample::select(vec![b"\r".to_vec(), b"\n".to_vec(), b" ".to_vec(), b"\xc2\x85".to_vec()]),
    ];
    prop::collection::vec(piece, 0..10).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn frames_in_pieces_are_the_same_frames(
        messages in prop::collection::vec((close_to_headers(), prop::collection::vec(any::<u8>(), 0..20)), 1..5),
        cuts in prop::collection::vec(1_usize..40, 0..20),
    ) {
        let bytes: Vec<u8> =
            messages.iter().flat_map(|(block, body)| hmsg(b"a.b", block, body)).collect();
        let (whole, replaced) = screened(&bytes);
        let bad = messages.iter().filter(|(block, _)| check_headers(block).is_err()).count();
        prop_assert_eq!(replaced.len(), bad);
        let (mut screen, mut out, mut rest) = (FrameScreen::default(), Vec::new(), bytes.as_slice());
        let mut cuts = cuts.into_iter().cycle();
        while !rest.is_empty() {
            let (piece, more) = rest.split_at(cuts.next().unwrap_or(rest.len()).min(rest.len()));
            screen.received.extend_from_slice(piece);
            out.extend(screen.screened().unwrap().concat());
            rest = more;
        }
        prop_assert_eq!(&out, &whole);
        prop_assert_eq!(screened(&whole), (whole.clone(), Vec::new()));
    }

    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), answer in ".{0,200}") {
        let mut screen = FrameScreen { received: bytes[..].into(), ..FrameScreen::default() };
        let _ = screen.screened();
        let _ = crate::stream::stored::read_stored(&bytes);
        let _ = crate::stream::stored::read_stored(answer.as_bytes());
    }
}

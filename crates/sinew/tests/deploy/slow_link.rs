//! A link between a process and its server on which commits are late or held back, as on a bad network.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// Begin of the frame that appends to a journal.
const APPEND: &[u8] = b"PUB sinew.v1.journal.";
/// How long a test waits for the process behind the link.
const HELD_TIMEOUT: Duration = Duration::from_mins(1);

/// Treatment of the frames that a process sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LinkRule {
    /// Everything passes at once.
    Open,
    /// Each append to a journal arrives so much later.
    DelaysAppends(Duration),
    /// No frame arrives.
    HoldsAll,
    /// No append arrives while the owner of the one shard has noted that it has this execution in hand.
    HoldsAppendsOf(String),
}

#[derive(Debug)]
struct LinkState {
    rule: LinkRule,
    /// Whether the last note names the execution of [`LinkRule::HoldsAppendsOf`].
    has_noted: bool,
    /// Whether an append is held back now.
    is_holding: bool,
}

/// A listener that carries connections to a server.
pub(super) struct SlowLink {
    port: u16,
    shared: Arc<(Mutex<LinkState>, Condvar)>,
}

impl SlowLink {
    /// Opens a link to the server at this URL.
    pub(super) fn to(url: &str, rule: LinkRule) -> Self {
        let server = url.trim_start_matches("nats://").to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let state = LinkState { rule, has_noted: false, is_holding: false };
        let shared = Arc::new((Mutex::new(state), Condvar::new()));
        let of_link = Arc::clone(&shared);
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(server) = TcpStream::connect(&server) else { continue };
                let shared = Arc::clone(&of_link);
                let (from, to) =
                    (client.try_clone().expect("a socket"), server.try_clone().expect("a socket"));
                std::thread::spawn(move || carry(from, to, |sent| hold_back(&shared, sent)));
                std::thread::spawn(move || carry(server, client, |_| ()));
            }
        });
        Self { port, shared }
    }

    /// Returns the address for the process behind the link.
    pub(super) fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    /// Changes the rule; what was held back passes if the link is open now.
    pub(super) fn obey(&self, rule: LinkRule) {
        self.shared.0.lock().expect("a lock").rule = rule;
        self.shared.1.notify_all();
    }

    /// Waits until an append is held back.
    #[track_caller]
    pub(super) fn wait_until_held(&self) {
        let state = self.shared.0.lock().expect("a lock");
        let waited = self.shared.1.wait_timeout_while(state, HELD_TIMEOUT, |state| !state.is_holding);
        let (state, _) = waited.expect("a lock");
        assert!(state.is_holding, "no append came within {HELD_TIMEOUT:?}: {state:?}");
    }
}

/// Whether the bytes hold these.
fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

/// Returns the items of the last note that says what its writer has in hand.
fn in_hand(sent: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(sent);
    let (_, items) = text.rsplit_once("\"in_hand\":[")?;
    Some(items.split(']').next().unwrap_or_default().to_owned())
}

/// Returns when the rule lets these bytes pass.
fn hold_back(shared: &(Mutex<LinkState>, Condvar), sent: &[u8]) {
    let (lock, changed) = shared;
    let mut state = lock.lock().expect("a lock");
    if let LinkRule::HoldsAppendsOf(execution) = &state.rule
        && let Some(items) = in_hand(sent)
    {
        state.has_noted = items.contains(&format!("\"{execution}\""));
    }
    if state.rule == LinkRule::HoldsAll {
        let _opened = changed.wait_while(state, |state| state.rule == LinkRule::HoldsAll).expect("a lock");
        return;
    }
    if !contains(sent, APPEND) {
        return;
    }
    match state.rule.clone() {
        LinkRule::Open | LinkRule::HoldsAll => {}
        LinkRule::DelaysAppends(time) => {
            drop(state);
            let arrival = Instant::now() + time;
            while let Some(left) = arrival.checked_duration_since(Instant::now()) {
                std::thread::park_timeout(left);
            }
        }
        LinkRule::HoldsAppendsOf(_) if !state.has_noted => {}
        LinkRule::HoldsAppendsOf(_) => {
            state.is_holding = true;
            changed.notify_all();
            let opened = changed.wait_while(state, |state| state.rule != LinkRule::Open);
            opened.expect("a lock").is_holding = false;
        }
    }
}

/// Carries bytes in one direction until one of the two sides has gone.
fn carry(mut from: TcpStream, mut to: TcpStream, hold_back: impl Fn(&[u8])) {
    let mut bytes = vec![0; 256 * 1024];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        hold_back(&bytes[..count]);
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}

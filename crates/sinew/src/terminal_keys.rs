//! Keys pressed on the terminal of a view that refreshes.

use std::io::Read as _;
use std::thread;

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use tokio::sync::mpsc;

/// What a key requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TerminalKey {
    /// End the view.
    Quit,
    /// Scroll down by lines, or up.
    Lines(isize),
    /// Scroll down by pages, or up.
    Pages(isize),
}

/// Keys of the terminal on stdin, without echo, until it is dropped. Ctrl-C keeps its meaning.
pub(crate) struct TerminalKeys {
    keys: mpsc::Receiver<TerminalKey>,
    /// Modes to restore; `None` if stdin is no terminal.
    modes: Option<Termios>,
}

impl TerminalKeys {
    /// Starts to read keys. Without a terminal on stdin, no key arrives.
    pub(crate) fn open() -> Self {
        let (sender, keys) = mpsc::channel(16);
        let modes = tcgetattr(std::io::stdin()).ok();
        if let Some(modes) = &modes {
            let mut raw = modes.clone();
            raw.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
            let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, &raw);
            // A read cannot be cancelled, so the thread ends with the process.
            thread::spawn(move || {
                let mut bytes = [0; 8];
                while let Ok(count @ 1..) = std::io::stdin().read(&mut bytes) {
                    let key = bytes.get(..count).and_then(key_of);
                    if key.is_some_and(|key| sender.blocking_send(key).is_err()) {
                        break;
                    }
                }
            });
        }
        Self { keys, modes }
    }

    /// Waits for the next key that requests something.
    pub(crate) async fn next(&mut self) -> TerminalKey {
        match self.keys.recv().await {
            Some(key) => key,
            None => std::future::pending().await,
        }
    }
}

impl Drop for TerminalKeys {
    fn drop(&mut self) {
        if let Some(modes) = &self.modes {
            let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, modes);
        }
    }
}

/// Returns what the bytes of a key request; `None` for other keys.
fn key_of(bytes: &[u8]) -> Option<TerminalKey> {
    match bytes {
        b"q" | b"Q" => Some(TerminalKey::Quit),
        b"j" | b"\x1b[B" | b"\x1bOB" => Some(TerminalKey::Lines(1)),
        b"k" | b"\x1b[A" | b"\x1bOA" => Some(TerminalKey::Lines(-1)),
        b" " | b"\x1b[6~" => Some(TerminalKey::Pages(1)),
        b"b" | b"\x1b[5~" => Some(TerminalKey::Pages(-1)),
        b"g" | b"\x1b[H" => Some(TerminalKey::Lines(isize::MIN)),
        b"G" | b"\x1b[F" => Some(TerminalKey::Lines(isize::MAX)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_scroll_and_quit() {
        for (bytes, expected) in [
            (&b"q"[..], Some(TerminalKey::Quit)),
            (b"\x1b[B", Some(TerminalKey::Lines(1))),
            (b"k", Some(TerminalKey::Lines(-1))),
            (b"\x1b[6~", Some(TerminalKey::Pages(1))),
            (b"G", Some(TerminalKey::Lines(isize::MAX))),
            (b"x", None),
            (b"\x1b", None),
        ] {
            assert_eq!(key_of(bytes), expected, "{bytes:?}");
        }
    }
}

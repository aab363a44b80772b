//! A command on a terminal: what somebody who looks would see.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::{LazyLock, mpsc};
use std::time::{Duration, Instant};

use regex::Regex;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, OptionalActions, Winsize, tcgetattr, tcsetattr, tcsetwinsize};

use super::common::kill;

/// Sequence with which the painter overwrites lines: some lines up, and all below is gone.
static OVER: LazyLock<Regex> = LazyLock::new(|| Regex::new("\u{1b}\\[(\\d+)A\r\u{1b}\\[J").expect("a rule"));
/// Bold, a colour, or the end of either.
static COLOUR: LazyLock<Regex> = LazyLock::new(|| Regex::new("\u{1b}\\[[0-9;]*m").expect("a rule"));
/// Wide enough that nothing of ours is cut.
const SIZE: Winsize = Winsize { ws_row: 50, ws_col: 160, ws_xpixel: 0, ws_ypixel: 0 };

/// Runs it with a terminal as its stdin, stdout and stderr, on which somebody has typed something ahead.
pub(crate) fn run(mut command: Command, typed: &str, patience: Duration) -> (Option<i32>, String) {
    let (master, slave) = open();
    let mut master = File::from(master);
    let end = || slave.try_clone().expect("a terminal");
    command.stdin(end()).stdout(end()).stderr(end());
    drop(slave);
    master.write_all(typed.as_bytes()).expect("a terminal takes what is typed");
    let mut child = command.spawn().expect("it starts");
    // The command holds the other end; once it and its process are gone there is no more to read.
    drop(command);
    let pid = child.id();
    let (done, ended) = mpsc::channel();
    std::thread::spawn(move || {
        let mut screen = Vec::new();
        // Linux tells the end of a terminal with an error.
        let _ = master.read_to_end(&mut screen);
        done.send((child.wait(), screen))
    });
    let Ok((status, screen)) = ended.recv_timeout(patience) else {
        kill(pid);
        panic!("a command on a terminal has not ended within {patience:?}");
    };
    (status.expect("it ends").code(), String::from_utf8(screen).expect("it writes UTF-8"))
}

/// Runs it on a terminal until somebody sees this word and types Ctrl-C. Fails if the terminal is not as it was.
pub(crate) fn interrupted(mut command: Command, word: &str, patience: Duration) -> (Option<i32>, String) {
    let (master, slave) = open();
    let master = File::from(master);
    let before = tcgetattr(master.as_fd()).expect("modes");
    let end = || slave.try_clone().expect("a terminal");
    command.stdin(end()).stdout(end()).stderr(end());
    drop(slave);
    let mut child = command.spawn().expect("it starts");
    drop(command);
    let pid = child.id();
    let mut reader = master.try_clone().expect("a terminal");
    let (sender, parts) = mpsc::channel();
    std::thread::spawn(move || {
        let mut part = [0; 4096];
        // Linux tells the end of a terminal with an error.
        while let Ok(read @ 1..) = reader.read(&mut part) {
            let _ = sender.send(part[..read].to_vec());
        }
    });
    let mut screen = Vec::new();
    let mut told = false;
    loop {
        match parts.recv_timeout(patience) {
            Ok(part) => screen.extend(part),
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
            Err(mpsc::RecvTimeoutError::Timeout) => {
                kill(pid);
                panic!("for {patience:?} nothing was seen; {word:?} was seen: {told}");
            }
        }
        if !told && String::from_utf8_lossy(&screen).contains(word) {
            told = true;
            let _ = Command::new("kill").args(["-INT", &pid.to_string()]).status();
        }
    }
    let after = tcgetattr(master.as_fd()).expect("modes");
    assert_eq!(
        (before.input_modes, before.output_modes, before.local_modes),
        (after.input_modes, after.output_modes, after.local_modes),
        "the terminal is not as it was"
    );
    (child.wait().expect("it ends").code(), String::from_utf8(screen).expect("it writes UTF-8"))
}

/// A command on a terminal that is watched while it works.
pub(crate) struct Watched {
    child: Child,
    master: File,
    parts: mpsc::Receiver<Vec<u8>>,
    screen: Vec<u8>,
}

impl Drop for Watched {
    fn drop(&mut self) {
        // Without an effect on a command that has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Watched {
    /// Starts it on a terminal of this many columns and rows.
    pub(crate) fn start(mut command: Command, columns: u16, rows: u16) -> Self {
        let (master, slave) = open();
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(slave.as_fd(), size).expect("a size");
        let end = || slave.try_clone().expect("a terminal");
        command.stdin(end()).stdout(end()).stderr(end());
        drop(slave);
        let child = command.spawn().expect("it starts");
        drop(command);
        let master = File::from(master);
        let mut reader = master.try_clone().expect("a terminal");
        let (sender, parts) = mpsc::channel();
        std::thread::spawn(move || {
            let mut part = [0; 4096];
            // Linux tells the end of a terminal with an error.
            while let Ok(read @ 1..) = reader.read(&mut part) {
                let _ = sender.send(part[..read].to_vec());
            }
        });
        Self { child, master, parts, screen: Vec::new() }
    }

    /// Waits until the screen, without its colours, is like this, and gives it.
    #[track_caller]
    pub(crate) fn wait_for(&mut self, what: &str, patience: Duration, like: impl Fn(&str) -> bool) -> String {
        let until = Instant::now() + patience;
        loop {
            // A part may end within a character.
            let screen = uncoloured(&seen(&String::from_utf8_lossy(&self.screen)));
            if like(&screen) {
                return screen;
            }
            if let Ok(part) = self.parts.recv_timeout(until.saturating_duration_since(Instant::now())) {
                self.screen.extend(part);
            } else {
                kill(self.child.id());
                panic!("{what} was not seen within {patience:?}, but\n{screen}");
            }
        }
    }

    /// Types.
    pub(crate) fn typed(&mut self, text: &str) {
        self.master.write_all(text.as_bytes()).expect("a terminal takes what is typed");
    }

    /// Waits for its end: its exit code, and what is seen then, without colours.
    #[track_caller]
    pub(crate) fn ended(mut self, patience: Duration) -> (Option<i32>, String) {
        loop {
            match self.parts.recv_timeout(patience) {
                Ok(part) => self.screen.extend(part),
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    kill(self.child.id());
                    panic!(
                        "a command on a terminal has not ended: {}",
                        String::from_utf8_lossy(&self.screen)
                    );
                }
            }
        }
        let screen = String::from_utf8(std::mem::take(&mut self.screen)).expect("it writes UTF-8");
        (self.child.wait().expect("it ends").code(), uncoloured(&seen(&screen)))
    }
}

/// Returns the final screen, without lines that were overwritten.
pub(crate) fn seen(screen: &str) -> String {
    let mut seen = String::new();
    let mut last = 0;
    for over in OVER.captures_iter(screen) {
        let (at, count) = (over.get(0).expect("all of it"), over[1].parse().expect("a number"));
        seen.push_str(&screen[last..at.start()]);
        last = at.end();
        for _ in 0..count {
            let line = seen.trim_end_matches('\n').rfind('\n').map_or(0, |end| end + 1);
            seen.truncate(line);
        }
    }
    (seen + &screen[last..]).replace("\r\n", "\n")
}

/// The text without its colours.
pub(crate) fn uncoloured(text: &str) -> String {
    COLOUR.replace_all(text, "").into_owned()
}

/// Both ends of a terminal that does not echo what is typed.
fn open() -> (OwnedFd, File) {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).expect("a terminal");
    grantpt(&master).expect("a terminal of ours");
    unlockpt(&master).expect("a terminal that is open");
    let name = ptsname(&master, Vec::new()).expect("a name");
    let path = Path::new(std::ffi::OsStr::from_bytes(name.as_bytes()));
    let slave = OpenOptions::new().read(true).write(true).open(path).expect("the other end");
    tcsetwinsize(slave.as_fd(), SIZE).expect("a size");
    let mut modes = tcgetattr(slave.as_fd()).expect("modes");
    modes.local_modes.remove(LocalModes::ECHO);
    tcsetattr(slave.as_fd(), OptionalActions::Now, &modes).expect("no echo");
    (master, slave)
}

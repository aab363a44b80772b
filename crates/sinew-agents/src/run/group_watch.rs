//! Ends process groups when this process is killed and can no longer do so itself.
//!
//! One shell per process reads the groups from a pipe. The pipe closes with this process, whatever
//! ended it, and then the shell kills the groups that remain. Systems without a POSIX shell have no
//! such watch: there a killed process leaves its programs.

use std::io::Write as _;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Reads `+GROUP` and `-GROUP`, one per line, until the end of its input.
const WATCH: &str = r#"groups=
while read -r line; do
    case $line in
    +*) groups="$groups ${line#+}" ;;
    -*)
        kept=
        for group in $groups; do [ "$group" = "${line#-}" ] || kept="$kept $group"; done
        groups=$kept
        ;;
    esac
done
for group in $groups; do kill -s KILL -- "-$group"; done
"#;

/// A process group that is killed if this process ends before this value is dropped.
#[derive(Debug)]
pub(super) struct WatchedGroup(u32);

impl WatchedGroup {
    /// Watches the group with this id.
    pub(super) fn new(group: u32) -> Self {
        tell('+', group);
        Self(group)
    }
}

impl Drop for WatchedGroup {
    fn drop(&mut self) {
        tell('-', self.0);
    }
}

fn tell(change: char, group: u32) {
    static PIPE: OnceLock<Option<Mutex<ChildStdin>>> = OnceLock::new();
    let Some(pipe) = PIPE.get_or_init(|| start().map(Mutex::new)) else { return };
    let mut pipe = pipe.lock().unwrap_or_else(PoisonError::into_inner);
    if let Err(error) = writeln!(pipe, "{change}{group}") {
        tracing::debug!(%error, "cannot watch a program; it may outlive this process if that is killed");
    }
}

fn start() -> Option<ChildStdin> {
    let mut command = Command::new("sh");
    command.args(["-c", WATCH]).env_clear();
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    // A signal from the terminal must not end it before this process.
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    let started = command.spawn().inspect_err(|error| {
        tracing::debug!(%error, "cannot watch programs; they may outlive this process if that is killed");
    });
    started.ok()?.stdin
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::os::unix::process::CommandExt as _;
    use std::os::unix::process::ExitStatusExt as _;

    use super::*;

    fn sleeper() -> std::process::Child {
        Command::new("sleep").arg("600").process_group(0).spawn().unwrap()
    }

    #[test]
    fn groups_that_remain_are_killed_at_the_end() {
        let (mut remaining, mut ended) = (sleeper(), sleeper());
        let mut watch = Command::new("sh").args(["-c", WATCH]).stdin(Stdio::piped()).spawn().unwrap();
        let mut pipe = watch.stdin.take().unwrap();
        writeln!(pipe, "+{}\n+{}\n-{}", remaining.id(), ended.id(), ended.id()).unwrap();
        drop(pipe);
        assert!(watch.wait().unwrap().success());
        assert_eq!(remaining.wait().unwrap().signal(), Some(9));
        assert!(ended.try_wait().unwrap().is_none(), "its program has ended before");
        ended.kill().unwrap();
        ended.wait().unwrap();
    }
}

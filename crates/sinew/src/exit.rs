//! Exit codes, the same in every command.

use std::process::ExitCode;

use sinew_operations::failure::FailureKind;

/// Exit codes. Printed in `--help`; scripts rely on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Done.
    Ok = 0,
    /// The work failed: an execution failed, a check found errors, a test failed.
    Failed = 1,
    /// The command line is wrong.
    Usage = 2,
    /// A file, node, agent or execution does not exist.
    NotFound = 3,
    /// No server, no responders.
    Unreachable = 4,
    /// Timed out waiting; the work continues.
    TimedOut = 5,
    /// The state does not allow the command.
    Conflict = 6,
    /// Not allowed.
    Denied = 7,
    /// Waiting for a person.
    Waiting = 8,
    /// Interrupted.
    Interrupted = 130,
}

impl From<FailureKind> for Exit {
    fn from(kind: FailureKind) -> Self {
        match kind {
            FailureKind::Failed => Self::Failed,
            FailureKind::Usage => Self::Usage,
            FailureKind::NotFound => Self::NotFound,
            FailureKind::Unreachable => Self::Unreachable,
            FailureKind::TimedOut => Self::TimedOut,
            FailureKind::Conflict => Self::Conflict,
            FailureKind::Denied => Self::Denied,
            FailureKind::Waiting => Self::Waiting,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit as u8)
    }
}

/// The table for `--help`.
pub(crate) const TABLE: &str = "Exit codes:
  0    done
  1    the work failed: an execution or a test failed, a check found errors
  2    invalid command line
  3    a file, node, agent or execution does not exist
  4    unreachable: no server, or no response
  5    timed out waiting; the work continues
  6    not possible in the current state
  7    not allowed
  8    waiting for a person
  130  interrupted";

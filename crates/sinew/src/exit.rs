//! How a command ends: one exit code per kind of end, the same in every command.

use sinew_protocol::code;
use std::process::ExitCode;

use sinew_files::FileReadError;
use sinew_source::Diagnostics;

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
    /// Timed out waiting; the work goes on.
    TimedOut = 5,
    /// In the wrong state for this.
    Conflict = 6,
    /// Not allowed.
    Denied = 7,
    /// Ended waiting for a person.
    Waiting = 8,
    /// Interrupted.
    Interrupted = 130,
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
  2    the command line is wrong
  3    a file, node, agent or execution does not exist
  4    unreachable: no server, nobody responds
  5    timed out waiting; the work goes on
  6    in the wrong state for this
  7    not allowed
  8    ended waiting for a person
  130  interrupted";

/// A code with a page; what came from elsewhere and has none counts as an agent's failure.
pub(crate) fn known(code: &str) -> &'static str {
    sinew_protocol::code::all()
        .iter()
        .map(|(known, _)| *known)
        .find(|known| *known == code)
        .unwrap_or(code::AGENT_DIED.as_str())
}

/// Why a command could not do what it was asked.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The kind of end.
    pub(crate) exit: Exit,
    /// Operator code, `SINEW-NNNN`.
    pub(crate) code: &'static str,
    /// One sentence.
    pub(crate) message: String,
    /// Advice on how to mend it.
    pub(crate) hint: Option<String>,
    /// Findings in files, if those are the reason.
    pub(crate) diagnostics: Option<Diagnostics>,
}

impl Failure {
    /// A failure with a code whose page explains it.
    pub(crate) fn new(exit: Exit, code: &'static str, message: impl Into<String>) -> Self {
        Self { exit, code, message: message.into(), hint: None, diagnostics: None }
    }

    /// The command line is wrong in a way the parser cannot see.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, code::COMMAND_LINE_WRONG.as_str(), message)
    }

    /// A file cannot be read.
    pub(crate) fn unreadable(path: &std::path::Path, error: &std::io::Error) -> Self {
        let exit = match error.kind() {
            std::io::ErrorKind::NotFound => Exit::NotFound,
            std::io::ErrorKind::PermissionDenied => Exit::Denied,
            _ => Exit::Failed,
        };
        Self::new(
            exit,
            code::FILE_CANNOT_BE_READ.as_str(),
            format!("cannot read {}: {error}", path.display()),
        )
    }

    /// A file that a user named was not read: as [`Failure::unreadable`], or the file is too large or not a file.
    pub(crate) fn unread(path: &std::path::Path, error: &FileReadError) -> Self {
        if let FileReadError::Io(error) = error {
            return Self::unreadable(path, error);
        }
        let failure =
            Self::new(Exit::Failed, error.code(), format!("cannot read {}: {error}", path.display()));
        match error {
            FileReadError::NotRegular { .. } => failure.hint("name a regular file, or - for standard input"),
            _ => failure,
        }
    }

    /// Files are wrong; the diagnostics say where.
    pub(crate) fn diagnostics(diagnostics: Diagnostics) -> Self {
        let message = match diagnostics.errors() {
            1 => "there is an error in the files".to_owned(),
            count => format!("there are {count} errors in the files"),
        };
        let mut failure = Self::new(Exit::Failed, code::FILES_HAVE_ERRORS.as_str(), message);
        failure.diagnostics = Some(diagnostics);
        failure
    }

    /// The same with a hint.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

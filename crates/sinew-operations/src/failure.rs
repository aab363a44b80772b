//! Failures of operations: kind, documented code and advice.

use sinew_documents::words;
use sinew_executor::client::ClientError;
use sinew_files::FileReadError;
use sinew_mesh::MeshError;
use sinew_protocol::code;
use sinew_protocol::permission::BadTenant;
use sinew_source::Diagnostics;

/// Kind of a failure, which determines the exit code of the command line and the HTTP status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// The work failed: an execution failed, a check found errors, or a file is unusable.
    Failed,
    /// The request is invalid.
    Usage,
    /// A file, node, agent, workflow or execution does not exist.
    NotFound,
    /// The server or the responder is unreachable.
    Unreachable,
    /// The wait timed out; the work continues.
    TimedOut,
    /// The state does not allow the operation.
    Conflict,
    /// Permission denied.
    Denied,
    /// Ended waiting for a person.
    Waiting,
}

/// Returns a documented code; an unknown code counts as an agent's failure.
pub fn known(code: &str) -> &'static str {
    sinew_protocol::code::all()
        .iter()
        .map(|(known, _)| *known)
        .find(|known| *known == code)
        .unwrap_or(code::AGENT_DIED.as_str())
}

/// Reason why an operation was not performed.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The kind of failure.
    pub kind: FailureKind,
    /// Error code, `SINEW-NNNN`.
    pub code: &'static str,
    /// One sentence.
    pub message: String,
    /// Advice on how to fix it.
    pub hint: Option<String>,
    /// Findings in files, if they are the reason.
    pub diagnostics: Option<Diagnostics>,
}

impl Failure {
    /// Creates a failure with a documented code.
    pub fn new(kind: FailureKind, code: &'static str, message: impl Into<String>) -> Self {
        Self { kind, code, message: message.into(), hint: None, diagnostics: None }
    }

    /// Reports invalid arguments that the parser cannot detect.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(FailureKind::Usage, code::COMMAND_LINE_WRONG.as_str(), message)
    }

    /// Reports a file that cannot be read.
    pub fn unreadable(path: &std::path::Path, error: &std::io::Error) -> Self {
        let exit = match error.kind() {
            std::io::ErrorKind::NotFound => FailureKind::NotFound,
            std::io::ErrorKind::PermissionDenied => FailureKind::Denied,
            _ => FailureKind::Failed,
        };
        Self::new(
            exit,
            code::FILE_CANNOT_BE_READ.as_str(),
            format!("cannot read {}: {error}", path.display()),
        )
    }

    /// Reports a named file that was not read: like [`Failure::unreadable`], or because it is too
    /// large or not a file.
    pub fn unread(path: &std::path::Path, error: &FileReadError) -> Self {
        if let FileReadError::Io(error) = error {
            return Self::unreadable(path, error);
        }
        let failure =
            Self::new(FailureKind::Failed, error.code(), format!("cannot read {}: {error}", path.display()));
        match error {
            FileReadError::NotRegular { .. } => failure.hint("name a regular file, or - for standard input"),
            _ => failure,
        }
    }

    /// Returns whether the mesh did not respond, so that the result is unknown.
    pub const fn is_mesh_silent(&self) -> bool {
        matches!(self.kind, FailureKind::Unreachable | FailureKind::TimedOut)
    }

    /// Reports invalid files, with the positions in the diagnostics.
    pub fn diagnostics(diagnostics: Diagnostics) -> Self {
        let message = match diagnostics.errors() {
            0 => format!("found {}", words::count(diagnostics.warnings(), "warning")),
            1 => "found 1 error in the files".to_owned(),
            count => format!("found {count} errors in the files"),
        };
        let mut failure = Self::new(FailureKind::Failed, code::FILES_HAVE_ERRORS.as_str(), message);
        failure.diagnostics = Some(diagnostics);
        failure
    }

    /// Adds a hint.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}
impl From<MeshError> for Failure {
    fn from(error: MeshError) -> Self {
        let exit = match &error {
            MeshError::Unreachable { .. }
            | MeshError::NothingListens { .. }
            | MeshError::NobodyAnswers { .. }
            | MeshError::NoJetStream { .. } => FailureKind::Unreachable,
            MeshError::NotAllowed { .. } | MeshError::Forbidden { .. } => FailureKind::Denied,
            MeshError::Refused { reason, .. } if reason.to_ascii_lowercase().contains("permission") => {
                FailureKind::Denied
            }
            MeshError::NoAnswer { .. } => FailureKind::TimedOut,
            MeshError::NotFound { .. } | MeshError::NoServer { .. } => FailureKind::NotFound,
            MeshError::BadContext { .. } | MeshError::BadSetting { .. } => FailureKind::Usage,
            MeshError::NotProvisioned { .. }
            | MeshError::Differs { .. }
            | MeshError::ShardsFixed { .. }
            | MeshError::StoreInUse { .. }
            | MeshError::OldServer { .. } => FailureKind::Conflict,
            _ => FailureKind::Failed,
        };
        let failure = Self::new(exit, known(error.code()), error.to_string());
        match &error {
            MeshError::NothingListens { .. } => {
                failure.hint("start a server with `sinew dev`, or use another one with --nats or --context")
            }
            MeshError::Forbidden { .. } => {
                failure.hint("`sinew doctor` shows the rights of these credentials")
            }
            MeshError::NotProvisioned { .. } | MeshError::Differs { .. } => {
                failure.hint("see `sinew mesh check`, then `sinew mesh provision`")
            }
            _ => failure,
        }
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        let exit = match error {
            ClientError::Mesh(error) => return error.into(),
            ClientError::NotFound(_) => FailureKind::NotFound,
            ClientError::OtherStart(_) | ClientError::Refused(_) | ClientError::Held { .. } => {
                FailureKind::Conflict
            }
            ClientError::Undecided(_) => FailureKind::TimedOut,
            ClientError::Command(_) => FailureKind::Usage,
            _ => FailureKind::Failed,
        };
        let hint = match &error {
            ClientError::Held { execution, .. } => Some(format!(
                "resume it with `sinew execution resume {execution}`, or cancel it with `sinew execution cancel {execution}`"
            )),
            _ => None,
        };
        let failure = Self::new(exit, known(error.code()), error.to_string());
        match hint {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    }
}

impl From<BadTenant> for Failure {
    fn from(bad: BadTenant) -> Self {
        Self::new(FailureKind::Usage, known(BadTenant::CODE), bad.to_string())
    }
}

//! Errors of agents, each with its operator code.

use sinew_protocol::code;
use std::time::Duration;

use sinew_protocol::artifact::BadArtifact;
use sinew_protocol::{Fault, FaultKind};
use sinew_script::{ScriptError, ScriptErrorKind};
use sinew_source::CHECK_BUDGET_EXCEEDED;

/// Reason why a call of an agent, or an access to its artifacts, failed.
///
/// Texts of external processes are sanitised before they are stored here.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AgentError {
    /// The input does not fit the input schema; the agent was not started.
    #[error("input does not fit the input schema")]
    Input(Vec<String>),
    /// The agent's answer does not fit the output schema.
    #[error("output does not fit the output schema")]
    Output(Vec<String>),
    /// The validation of the input or output exceeded its budget.
    #[error("checking the {which} against its schema exceeds the limit of a check")]
    CheckBudget {
        /// `input` or `output`.
        which: &'static str,
    },
    /// The schema given with a call cannot be used.
    #[error("the {which} schema of the call cannot be used: {problem}")]
    Schema {
        /// `input` or `output`.
        which: &'static str,
        /// Defect of the file.
        problem: String,
    },
    /// The call exceeded its time limit.
    #[error("no answer within {}", seconds(*.0))]
    TimedOut(Duration),
    /// The caller cancelled the call.
    #[error("cancelled")]
    Cancelled,
    /// The program of a command agent could not be started.
    #[error("cannot start '{program}': {reason}")]
    Start {
        /// First element of `argv`.
        program: String,
        /// The operating system's answer.
        reason: String,
    },
    /// The program ended with a failure.
    #[error("the command {how}{}", tail(failure_reason(.stderr)))]
    Command {
        /// For example, `ended with exit code 3` or `was killed by signal 9`.
        how: String,
        /// End of its standard error, cleaned.
        stderr: String,
    },
    /// The program's answer is not one JSON document.
    #[error("the command's output is not JSON: {reason}{}", tail(.stderr))]
    NotJson {
        /// Where and why parsing stopped.
        reason: String,
        /// End of its standard error, cleaned.
        stderr: String,
    },
    /// The answer exceeds the size limit.
    #[error("the answer is longer than the limit of {limit} bytes")]
    TooLarge {
        /// `max_output` of the agent file.
        limit: u64,
    },
    /// The host of the URL resolves to an address that is not public.
    #[error(
        "address {address} of host '{host}' is not public; set allow_private in the agent file to reach it"
    )]
    Address {
        /// Host of the URL.
        host: String,
        /// The refused address.
        address: std::net::IpAddr,
    },
    /// The request got no complete response.
    #[error("request to '{host}' failed: {reason}")]
    Transport {
        /// Host of the URL.
        host: String,
        /// Cause chain without URL and secrets.
        reason: String,
    },
    /// The server refused the request.
    #[error("'{host}' returned HTTP status {status}{}", tail(.excerpt))]
    Status {
        /// Host of the URL.
        host: String,
        /// HTTP status code.
        status: u16,
        /// Beginning of the response, cleaned.
        excerpt: String,
    },
    /// The server is temporarily unavailable.
    #[error("'{host}' is unavailable, last answer {status} after {attempts} attempts{}", tail(.excerpt))]
    Unavailable {
        /// Host of the URL.
        host: String,
        /// HTTP status code of the last attempt.
        status: u16,
        /// Number of requests.
        attempts: u32,
        /// Delay that the server requested before a retry.
        retry_after: Option<Duration>,
        /// Beginning of the response, cleaned.
        excerpt: String,
    },
    /// The response is neither JSON nor UTF-8 text.
    #[error("the response of '{host}' cannot be read: {reason}")]
    Response {
        /// Host of the URL.
        host: String,
        /// Defect of the setting.
        reason: String,
    },
    /// The address of a request cannot be used.
    #[error("the address {problem}")]
    WebAddress {
        /// Defect of the address.
        problem: String,
    },
    /// A template cannot be rendered from this input.
    #[error("{place} cannot be filled: {reason}")]
    Template {
        /// Location of the template: `url`, `header 'x'`, `body`, `env 'x'`.
        place: String,
        /// Missing or refused part.
        reason: String,
    },
    /// An environment variable that the agent file references is not set.
    #[error("environment variable '{0}' is not set")]
    Environment(String),
    /// A request references a variable that the agent does not expose.
    #[error(transparent)]
    Reference(#[from] sinew_source::VariableError),
    /// The function of a script agent failed.
    #[error("the script failed{}: {}", line(.0), .0)]
    Script(#[from] ScriptError),
    /// An artifact could not be stored or read.
    #[error(transparent)]
    Artifact(#[from] ArtifactError),
    /// A conversation with a language model ended without an output.
    #[error("{}", .0.message)]
    Conversation(Box<Fault>),
    /// A server of the Model Context Protocol cannot be used.
    #[error("the MCP server cannot be used: {reason}")]
    McpServer {
        /// Text of the failure, cleaned.
        reason: String,
    },
    /// A server of the Model Context Protocol received a call and did not answer it.
    #[error("the MCP server did not respond: {reason}")]
    McpAnswerLost {
        /// Text of the failure, cleaned.
        reason: String,
    },
    /// A tool of a server reported a failure.
    #[error("the tool {tool} failed: {reason}")]
    Tool {
        /// Name of the tool.
        tool: String,
        /// Answer of the tool, cleaned.
        reason: String,
    },
    /// A local resource failed: a thread, a temporary folder, the TLS setup.
    #[error("cannot run the agent here: {0}")]
    Host(String),
}

/// Reason why an artifact could not be stored or read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ArtifactError {
    /// The name is not valid, or the stored bytes are not those that were put.
    #[error(transparent)]
    Refused(#[from] BadArtifact),
    /// The artifact or version does not exist.
    #[error("artifact '{name}' has no version {}", .version.map_or_else(|| "at all".to_owned(), |v| v.to_string()))]
    Missing {
        /// Requested name.
        name: String,
        /// Requested version; `None` for the newest.
        version: Option<u32>,
    },
    /// Storing the artifact would exceed a limit.
    #[error("{what} would exceed the limit of {limit}")]
    Limit {
        /// Counted quantity.
        what: &'static str,
        /// The limit.
        limit: u64,
    },
    /// A line of the index is malformed.
    #[error("line {line} of the artifact index is damaged")]
    Index {
        /// 1-based line.
        line: usize,
    },
    /// The command wrote an artifact that is not a regular file with a UTF-8 name.
    #[error("'{0}' in SINEW_ARTIFACTS is not a plain file with a legible name")]
    NotAFile(String),
    /// The folder cannot be read or written.
    #[error("cannot {action} in the artifact folder: {reason}")]
    Io {
        /// Operation that failed.
        action: &'static str,
        /// The operating system's answer.
        reason: String,
    },
}

impl AgentError {
    /// Operator code, explained by `sinew explain CODE`.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Input(_) => code::INPUT_BREAKS_AGENT_SCHEMA.as_str(),
            Self::Output(_) => code::ANSWER_BREAKS_OUTPUT_SCHEMA.as_str(),
            Self::CheckBudget { .. } => CHECK_BUDGET_EXCEEDED,
            Self::Schema { .. } => code::CALL_SCHEMA_NOT_VALID.as_str(),
            Self::TimedOut(_) => code::NO_ANSWER_IN_TIME.as_str(),
            Self::Cancelled => code::CALL_CANCELLED.as_str(),
            Self::Start { .. } => code::COMMAND_CANNOT_BE_STARTED.as_str(),
            Self::Command { .. } => code::COMMAND_FAILED.as_str(),
            Self::NotJson { .. } => code::COMMAND_OUTPUT_NOT_JSON.as_str(),
            Self::TooLarge { .. } => code::ANSWER_TOO_LARGE.as_str(),
            Self::Host(_) => code::AGENT_CANNOT_RUN_ON_THIS_MACHINE.as_str(),
            Self::Script(error) => error.code(),
            Self::Address { .. } => code::ADDRESS_NOT_PUBLIC.as_str(),
            Self::Transport { .. } => code::REQUEST_FAILED_ON_WAY.as_str(),
            Self::Status { .. } => code::SERVICE_REFUSED_REQUEST.as_str(),
            Self::Unavailable { .. } => code::SERVICE_BUSY_OR_BROKEN.as_str(),
            Self::Response { .. } | Self::WebAddress { .. } => code::RESPONSE_CANNOT_BE_READ.as_str(),
            Self::Template { .. } => code::TEMPLATE_CANNOT_BE_FILLED.as_str(),
            Self::Environment(_) => code::AGENT_VARIABLE_NOT_SET.as_str(),
            Self::Reference(error) => error.code(),
            Self::Artifact(error) => error.code(),
            Self::McpServer { .. } | Self::McpAnswerLost { .. } => code::MCP_SERVER_UNUSABLE.as_str(),
            Self::Tool { .. } => code::MCP_TOOL_FAILED.as_str(),
            Self::Conversation(fault) => {
                let known = code::all().iter().find(|(known, _)| *known == fault.code);
                known.map_or(code::AGENT_WORK_FAILED.as_str(), |(known, _)| known)
            }
        }
    }

    fn kind(&self) -> FaultKind {
        match self {
            Self::Input(_)
            | Self::Output(_)
            | Self::CheckBudget { .. }
            | Self::Schema { .. }
            | Self::Template { .. } => FaultKind::Invalid,
            Self::TimedOut(_) => FaultKind::Timeout,
            Self::Cancelled => FaultKind::Cancelled,
            // The interpreter failed, or no worker could start; the script is not at fault.
            Self::Script(ScriptError {
                kind: ScriptErrorKind::Internal | ScriptErrorKind::Unavailable,
                ..
            })
            | Self::Start { .. }
            | Self::Host(_)
            | Self::Address { .. }
            | Self::Transport { .. }
            | Self::Unavailable { .. }
            | Self::McpServer { .. }
            | Self::McpAnswerLost { .. }
            | Self::Environment(_)
            | Self::Reference(_) => FaultKind::Error,
            Self::Command { .. }
            | Self::NotJson { .. }
            | Self::TooLarge { .. }
            | Self::Status { .. }
            | Self::Response { .. }
            | Self::WebAddress { .. }
            | Self::Tool { .. }
            | Self::Script(_) => FaultKind::Failure,
            Self::Artifact(error) => error.kind(),
            Self::Conversation(fault) => fault.kind,
        }
    }

    /// Returns whether a retry of the same call may succeed.
    fn retryable(&self) -> bool {
        match self {
            Self::TimedOut(_)
            | Self::Command { .. }
            | Self::NotJson { .. }
            | Self::Host(_)
            | Self::Transport { .. }
            | Self::Unavailable { .. }
            | Self::Response { .. }
            | Self::McpServer { .. }
            | Self::McpAnswerLost { .. }
            | Self::Tool { .. }
            | Self::Script(ScriptError { kind: ScriptErrorKind::Unavailable, .. }) => true,
            Self::Artifact(error) => matches!(error, ArtifactError::Io { .. }),
            Self::Conversation(fault) => fault.retryable,
            _ => false,
        }
    }
}

impl From<Fault> for AgentError {
    fn from(fault: Fault) -> Self {
        Self::Conversation(Box::new(fault))
    }
}

impl From<AgentError> for Fault {
    fn from(error: AgentError) -> Self {
        if let AgentError::Conversation(fault) = error {
            return *fault;
        }
        let fault =
            Self::new(error.kind(), error.code(), error.to_string()).with_retryable(error.retryable());
        match error {
            AgentError::Input(violations) | AgentError::Output(violations) => fault.with_details(violations),
            // The message contains only the reason.
            AgentError::Command { stderr, .. } if failure_reason(&stderr) != stderr => {
                fault.with_details(stderr.lines().map(str::to_owned).collect::<Vec<_>>())
            }
            AgentError::Unavailable { retry_after: Some(wait), .. } => {
                fault.with_retry_after_ms(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX))
            }
            _ => fault,
        }
    }
}

impl ArtifactError {
    /// Operator code, explained by `sinew explain CODE`.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Refused(error) => error.code(),
            Self::NotAFile(_) => code::COMMAND_LEFT_NO_PLAIN_FILE.as_str(),
            Self::Missing { .. } => code::ARTIFACT_NOT_FOUND.as_str(),
            Self::Limit { .. } => code::ARTIFACT_LIMIT_REACHED.as_str(),
            Self::Index { .. } => code::ARTIFACT_INDEX_DAMAGED.as_str(),
            Self::Io { .. } => code::ARTIFACT_FOLDER_UNUSABLE.as_str(),
        }
    }

    fn kind(&self) -> FaultKind {
        match self {
            Self::Refused(_) | Self::NotAFile(_) | Self::Missing { .. } => FaultKind::Invalid,
            Self::Limit { .. } => FaultKind::Failure,
            Self::Index { .. } | Self::Io { .. } => FaultKind::Error,
        }
    }

    pub(crate) fn io(action: &'static str) -> impl FnOnce(std::io::Error) -> Self {
        move |error| Self::Io { action, reason: error.to_string() }
    }
}

fn seconds(duration: Duration) -> String {
    format!("{} s", duration.as_secs_f64())
}

/// Formats the line of the script where it failed.
pub(crate) fn line(error: &ScriptError) -> String {
    error.line.map(|line| format!(" in line {line}")).unwrap_or_default()
}

/// Returns the reason in the standard error of a program: the exception at the end of Python's traceback,
/// else everything.
fn failure_reason(stderr: &str) -> &str {
    let is_frame =
        |line: &str| line.starts_with("Traceback (most recent call last):") || line.starts_with("  File \"");
    let (mut at, mut is_python, mut reason) = (0, false, None);
    for line in stderr.split_inclusive('\n') {
        if is_frame(line) {
            (is_python, reason) = (true, None);
        } else if is_python && !line.starts_with(char::is_whitespace) {
            reason.get_or_insert(at);
        }
        at += line.len();
    }
    let rest = reason.map(|at| stderr[at..].trim());
    rest.filter(|rest| !rest.is_empty()).unwrap_or_else(|| {
        // The end of the traceback is missing.
        let last = stderr.lines().next_back().filter(|_| is_python);
        last.map_or(stderr, str::trim)
    })
}

fn tail(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!(": {text}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_of_a_python_program_is_its_exception() {
        let frames =
            "Traceback (most recent call last):\n  File \"a.py\", line 1, in <module>\n    f()\n    ~^^\n";
        let chained = "\nDuring handling of the above exception, another exception occurred:\n\n";
        for (stderr, expected) in [
            (format!("{frames}ValueError: no"), "ValueError: no"),
            (format!("starting\n{frames}ValueError: no"), "ValueError: no"),
            (format!("{frames}KeyError: 'a'\n{chained}{frames}ValueError: no"), "ValueError: no"),
            (format!("{frames}E: 1 error\na\n  Field required"), "E: 1 error\na\n  Field required"),
            ("  File \"a.py\", line 1\n    def\n       ^\nSyntaxError: bad".to_owned(), "SyntaxError: bad"),
            (frames.trim_end().to_owned(), "~^^"),
            ("one\ntwo".to_owned(), "one\ntwo"),
            (String::new(), ""),
        ] {
            assert_eq!(failure_reason(&stderr), expected, "{stderr}");
        }
        let error = AgentError::Command {
            how: "ended with exit code 1".to_owned(),
            stderr: format!("{frames}E: no"),
        };
        let fault = Fault::from(error);
        assert_eq!(fault.message, "the command ended with exit code 1: E: no");
        assert_eq!(fault.details.len(), 5);
    }
}

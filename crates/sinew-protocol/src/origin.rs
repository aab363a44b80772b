//! Where a change came from: the entry point, the key, and whether the caller's name is proven. Stored
//! with commands, deployments, keys and webhook triggers, for the audit.

use crate::Token;
use crate::header::{CALLER, KEY, PROVEN, VIA};

/// Entry point through which a caller made a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryPoint {
    /// The command line, or a program with the client of executions.
    Cli,
    /// The REST API.
    Rest,
    /// The web console.
    Console,
    /// A2A.
    A2a,
    /// MCP.
    Mcp,
    /// A webhook.
    Hook,
}

impl EntryPoint {
    /// Returns the name of the entry point.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Cli => "cli",
            Self::Rest => "rest",
            Self::Console => "console",
            Self::A2a => "a2a",
            Self::Mcp => "mcp",
            Self::Hook => "hook",
        }
    }
}

/// Origin of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeOrigin {
    /// The entry point.
    pub via: EntryPoint,
    /// Id of the caller's key at a gateway.
    pub key: Option<Token>,
    /// Whether credentials prove the caller's name. A user who may publish under any name proves none.
    pub is_proven: bool,
}

impl ChangeOrigin {
    /// Returns the headers that state the origin of a change by this caller.
    pub fn headers<'a>(&'a self, caller: &'a Token) -> impl Iterator<Item = (&'static str, &'a str)> {
        let key = self.key.as_ref().map(|key| (KEY, key.as_str()));
        let proven = self.is_proven.then_some((PROVEN, "true"));
        [(VIA, self.via.as_str()), (CALLER, caller.as_str())].into_iter().chain(key).chain(proven)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_are_headers() {
        let caller = Token::of("ann");
        let origin = ChangeOrigin { via: EntryPoint::Console, key: Some(Token::of("k1")), is_proven: true };
        let headers: Vec<_> = origin.headers(&caller).collect();
        let expected = [
            ("Sinew-Via", "console"),
            ("Sinew-Caller", "ann"),
            ("Sinew-Key", "k1"),
            ("Sinew-Proven", "true"),
        ];
        assert_eq!(headers, expected);
        let claimed = ChangeOrigin { via: EntryPoint::Cli, key: None, is_proven: false };
        assert_eq!(claimed.headers(&caller).count(), 2);
    }
}

//! Requests that fail immediately if the server does not permit them.

use std::future::Future;

use sinew_protocol::Token;
use sinew_protocol::permission::{Role, holders};

use crate::denied::DeniedOperation;
use crate::error::MeshError;
use crate::mesh::Mesh;

/// Maximum number of displayed characters of a subject.
const SHOWN: usize = 300;

impl Mesh {
    /// Waits for the next operation that the server denies on this connection. For programs that
    /// perform one operation at a time; with concurrent operations, each call reports its own
    /// denial.
    pub(crate) fn denied(&self) -> impl Future<Output = MeshError> + Send + 'static {
        let (mesh, denied) = (self.clone(), self.denials().first(|_| true));
        async move { mesh.forbidden(&denied.await) }
    }

    /// Waits for the reply to a message to `subject`, or for the denial of that message. A subject
    /// that ends with a dot stands for all with that prefix.
    pub(crate) fn permitted<F: Future>(
        &self,
        subject: &str,
        asked: F,
    ) -> impl Future<Output = Result<F::Output, MeshError>> {
        let denied = self.denials().first(|denied| denied.answers(subject));
        // The future may be large, and would otherwise be stored twice.
        let asked = Box::pin(asked);
        async move {
            tokio::select! { biased;
                answer = asked => Ok(answer),
                denied = denied => Err(self.forbidden(&denied)),
            }
        }
    }

    /// Returns the error for an operation that the server denied.
    pub(crate) fn forbidden(&self, denied: &DeniedOperation) -> MeshError {
        let (verb, subject) = match denied {
            DeniedOperation::Publish(subject) => ("publish to", subject),
            DeniedOperation::Subscribe(subject, _) => ("subscribe to", subject),
        };
        let who = holders(self.namespace(), self.caller(), subject, |rights| denied.permits(rights));
        let named = |token: &Token| token.name().unwrap_or_else(|| token.to_string());
        let takes = match who.as_slice() {
            [] => "no role has this right".to_owned(),
            // Every role has the right under that name, so the connection uses another name.
            [(_, name), ..] if who.len() == Role::ALL.len() => format!("requires the name {}", named(name)),
            roles => {
                let worded = |(role, name): &(Role, Token)| {
                    if name == self.caller() {
                        role.as_str().to_owned()
                    } else {
                        format!("{} as {}", role.as_str(), named(name))
                    }
                };
                format!("requires the role {}", roles.iter().map(worded).collect::<Vec<_>>().join(" or "))
            }
        };
        let subject = subject.chars().filter(|letter| !letter.is_control()).take(SHOWN).collect();
        MeshError::Forbidden { user: named(self.caller()), verb, subject, takes }
    }
}

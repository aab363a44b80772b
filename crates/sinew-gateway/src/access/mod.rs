//! Callers of a gateway: who they are, what they may, and how much.
//!
//! Place in the flow: the guard at the door asks [`Authenticator`] for the caller of each request, and the route table says which
//! role a route needs. Operations then see only what the caller's patterns allow.
//!
//! Nothing here keeps state that must last: keys lie on the mesh, sessions in the browser, and limits are per gateway.

mod authenticator;
mod caller;
mod caller_meter;
mod ended_sessions;
mod key_set;
mod oidc;
mod oidc_sign_in;
mod provider_documents;
mod ring_verifier;
mod session;

pub(crate) use authenticator::{AccessRefusal, Authenticator, PeerNames, now_ms, shared_secret};
pub(crate) use caller::CallerIdentity;
pub(crate) use caller_meter::{CallerMeters, CallerPermit, CallerStreams, MeterRefusal};
pub(crate) use oidc::SCOPE_PREFIX;
pub(crate) use session::{SESSION_COOKIE, SESSION_LIFETIME, VOUCHED_SESSION_LIFETIME};

//! Callers of a gateway: their identity, permissions and limits.
//!
//! Place in the flow: the guard gets the caller of each request from [`Authenticator`], and the
//! route table defines the role that a route needs. Operations then see only what the caller's
//! patterns allow.
//!
//! It keeps no durable state: keys are stored on the mesh, sessions in the browser, and limits are
//! per gateway.

mod authenticator;
mod caller;
mod caller_meter;
mod ended_sessions;
mod key_set;
mod key_uses;
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

//! Crash points: places where a process can be terminated, so that tests see the state that a crash
//! leaves between two durable writes.
//!
//! They are active only with the feature `crash-points`, which only test programs enable; otherwise
//! every call is empty. `SINEW_CRASH_AT=result.sent:3` terminates the process at its third pass of
//! `result.sent`. A write has three points: before it is sent, sent but not acknowledged, and
//! acknowledged.

#[cfg(not(feature = "crash-points"))]
pub(crate) use off::{after, before, sent};
#[cfg(not(feature = "crash-points"))]
pub use off::{is_told, point};
#[cfg(feature = "crash-points")]
pub(crate) use on::{after, before, sent};
#[cfg(feature = "crash-points")]
pub use on::{is_told, point};

#[cfg(not(feature = "crash-points"))]
mod off {
    use std::future::{Ready, ready};

    use async_nats::HeaderMap;
    use bytes::Bytes;

    use crate::Mesh;

    /// Crash point.
    #[inline]
    pub fn point(_: &str) {}

    /// Returns whether the process was requested to crash anywhere; its end then indicates nothing
    /// about its work.
    #[inline]
    pub const fn is_told() -> bool {
        false
    }

    #[inline]
    pub(crate) fn before(_: &str) {}

    #[inline]
    pub(crate) fn sent(_: &Mesh, _: &str, _: &HeaderMap, _: &Bytes) -> Ready<()> {
        ready(())
    }

    #[inline]
    pub(crate) fn after(_: &str) {}
}

#[cfg(feature = "crash-points")]
mod on {
    use std::io::Write as _;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU32, Ordering};

    use async_nats::HeaderMap;
    use bytes::Bytes;
    use sinew_protocol::env::CRASH_AT;

    use crate::Mesh;

    /// Crash points from the environment.
    struct CrashPoint {
        point: String,
        nth: u32,
        seen: AtomicU32,
    }

    fn told() -> Option<&'static CrashPoint> {
        static TOLD: OnceLock<Option<CrashPoint>> = OnceLock::new();
        let read = || {
            let text = std::env::var(CRASH_AT).ok()?;
            let (point, nth) = text.split_once(':')?;
            Some(CrashPoint { point: point.to_owned(), nth: nth.parse().ok()?, seen: AtomicU32::new(0) })
        };
        TOLD.get_or_init(read).as_ref()
    }

    /// Returns whether to crash at this point.
    fn is_time(name: impl FnOnce() -> String) -> bool {
        told().is_some_and(|told| {
            told.point == name() && told.seen.fetch_add(1, Ordering::Relaxed) + 1 == told.nth
        })
    }

    fn die() -> ! {
        let point = told().map_or("", |told| told.point.as_str());
        let _ = writeln!(std::io::stderr(), "crash point {point}");
        std::process::abort()
    }

    /// Returns whether the process was requested to crash anywhere; its end then indicates nothing
    /// about its work.
    pub fn is_told() -> bool {
        told().is_some()
    }

    /// Crash point: terminates the process here if it was requested.
    pub fn point(name: &str) {
        if is_time(|| name.to_owned()) {
            die();
        }
    }

    pub(crate) fn before(subject: &str) {
        if is_time(|| format!("{}.before", kind(subject))) {
            die();
        }
    }

    /// Sends the write itself at a `sent` point, because the regular sender waits for the
    /// acknowledgement at once.
    pub(crate) async fn sent(mesh: &Mesh, subject: &str, headers: &HeaderMap, body: &Bytes) {
        if is_time(|| format!("{}.sent", kind(subject))) {
            let (subject, headers, body) = (subject.to_owned(), headers.clone(), body.clone());
            let _ = mesh.client().publish_with_headers(subject, headers, body).await;
            let _ = mesh.client().flush().await;
            die();
        }
    }

    pub(crate) fn after(subject: &str) {
        if is_time(|| format!("{}.after", kind(subject))) {
            die();
        }
    }

    /// Returns the name of the written message in crash points: the stream's, and for buckets
    /// whether it is a piece or a name.
    fn kind(subject: &str) -> String {
        let mut tokens = subject.split('.');
        match (tokens.next(), tokens.next(), tokens.next()) {
            (Some("$O"), Some(_), Some("C")) => "piece".to_owned(),
            (Some("$O"), Some(_), _) => "object".to_owned(),
            (Some("$JS"), ..) => "ack".to_owned(),
            (Some("$KV"), _, Some(key)) => key.to_owned(),
            (_, _, Some(kind)) => kind.to_owned(),
            _ => String::new(),
        }
    }
}

//! The failure of a bench.

use sinew_operations::failure::{Failure, FailureKind};
use sinew_protocol::code;

/// Returns a failure with this reason.
pub(crate) fn cannot_go_on(reason: &str) -> Failure {
    Failure::new(FailureKind::Failed, code::BENCH_CANNOT_GO_ON.as_str(), reason.to_owned())
}

//! Standalone worker for the tests and benchmarks of this crate. `sinew` is its own worker.

use std::process::ExitCode;

fn main() -> ExitCode {
    sinew_script::run_worker().unwrap_or(ExitCode::FAILURE)
}

//! `sinew`: all services and tools in one binary.
//!
//! Place in the flow: the thin shell around the libraries. It parses the command line, reads files and the clock,
//! and prints: data on stdout, everything else on stderr, one exit code per outcome.
//!
//! It contains no rules of a dialect, the engine or the mesh: those are in their crates.

mod agent_trust;
mod answer_stream;
mod cli;
mod cmd;
mod completion;
mod connect;
mod deadline;
mod entry_filter_args;
mod exit;
mod input;
mod output;
mod paint;
mod short_help;
mod signals;
mod status_values;
mod terminal_keys;
mod terminal_people;
mod variable_args;

use std::process::ExitCode;

/// Each message allocates a small, short-lived tree of values.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // Script workers run this program, too.
    if let Some(exit) = sinew_script::run_worker() {
        return exit;
    }
    if let Some(exit) = completion::answer_shell() {
        return exit;
    }
    sinew_script::use_worker_processes();
    deadline::note_process_start();
    let cli = match cli::parse(std::env::args_os()) {
        Ok(cli) => cli,
        Err(error) => return cli::usage(&error),
    };
    let output = output::Output::new(&cli.global);
    match cli::run(cli, &output) {
        Ok(exit) => exit.into(),
        Err(failure) => {
            output.failure(&failure);
            exit::Exit::from(failure.kind).into()
        }
    }
}

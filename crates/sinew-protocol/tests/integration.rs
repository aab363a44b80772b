//! Tests of messages: golden files, recorded cases, declarations of tools.

mod golden;
mod hostile_bytes;
mod sam_cases;
mod tools;

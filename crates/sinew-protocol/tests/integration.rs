//! Tests of messages: golden files, recorded cases, declarations of tools.

mod golden;
mod sam_cases;
mod tools;

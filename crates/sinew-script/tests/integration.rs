//! Tests of scripts: hostile ones and legal ones.

mod hostile;
mod legal;

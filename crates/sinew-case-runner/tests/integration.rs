//! Tests of this crate against files.

mod mistakes;

//! Tests of reading and writing documents.

mod load;
mod render;

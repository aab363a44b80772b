//! Tests of drawings: golden files, hostile labels, pictures.

mod common;
mod golden;
mod hostile;
mod picture;

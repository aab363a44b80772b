//! Tests of drawings: golden files, hostile labels, pictures.

pub(crate) mod common;
mod golden;
mod hostile;
mod picture;

//! Reads files into values with spans.
//!
//! All files that people write (workflows, agent files, application files) are read by [`load()`],
//! which turns YAML or JSON into a [`Document`], a tree of [`Node`]s in file order, each with its
//! [`Span`]. The dialects read that tree, add their own [`Diagnostic`]s, and a command renders them
//! all with [`render_text`] or one of its machine-readable variants. Third-party data (inputs,
//! answers) is read by [`load_data`], which neither includes files nor substitutes variables.
//! [`Schema`] checks values against JSON Schema, both those of files ([`check_node`]) and those
//! from agents.
//!
//! This crate never accesses the file system, the environment or the network: file reads and
//! variables are closures. It never executes its input, and no input causes a panic or unbounded
//! growth.

pub mod duration;

mod diagnostic;
mod environment;
mod escape;
mod host_references;
mod include_lines;
mod load;
mod loader;
mod render;
mod scalar;
mod schema;
mod sources;
mod suggest;
mod syntax;
mod text_span;
mod trailing_comma;
mod tree;
mod value;

pub use diagnostic::{Diagnostic, Diagnostics, Severity};
pub use environment::{
    Variable, VariableError, VariableReference, VariableRules, Variables, is_reserved_variable,
    is_variable_name,
};
pub use escape::{EscapePolicy, escape, escape_line, escape_text, has_hidden_characters, indented};
pub use host_references::HostReferences;
pub use load::{Document, LoadOptions, load, load_data};
pub use loader::Limits;
pub use render::{render_github, render_json, render_sarif, render_text, summary};
pub use schema::{
    CHECK_BUDGET_EXCEEDED, Schema, SchemaCache, SchemaError, Violation, check_node, check_schema,
    violation_code, violations,
};
pub use sources::{SourceFile, Sources};
pub use suggest::{MAX_HINTED_FINDINGS, did_you_mean, hint_for};
pub use text_span::{place_within, token_span};
pub use trailing_comma::trailing_comma;
pub use value::{Kind, Member, Node, Span};

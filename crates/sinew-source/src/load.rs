//! Turns bytes into a [`Document`]: encoding, limits over all files, includes.

use std::path::{Path, PathBuf};

use crate::loader::{Limits, Loader, Origin};
use crate::{Diagnostics, Node, Sources, Variables, tree};

/// A file that was read: its tree and the texts it came from.
#[derive(Clone, Debug)]
pub struct Document {
    /// The tree.
    pub root: Node,
    /// The file and its includes, for snippets.
    pub sources: Sources,
}

/// Inputs of [`load`] beside the file.
#[derive(Clone, Copy)]
pub struct LoadOptions<'a> {
    /// The name shown in diagnostics; includes are looked up relative to its folder.
    pub name: &'a str,
    /// Treatment of `${NAME}`.
    pub variables: Variables<'a>,
    /// The bytes of an included file; the path is already joined to the folder of the including file.
    /// The closure decides what may be read; its error text is shown to people.
    pub read: &'a dyn Fn(&Path) -> Result<Vec<u8>, String>,
    /// How much is too much.
    pub limits: Limits,
}

/// Reads a file of an author: YAML 1.2, or JSON, which is YAML. Errors are of the codes SINEW-1001 to SINEW-1018; all
/// that can be found in one pass are returned together, sorted.
pub fn load(bytes: &[u8], options: &LoadOptions<'_>) -> Result<Document, Diagnostics> {
    let origin = Origin::Authored { variables: options.variables, read: options.read };
    read_document(bytes, options.name, origin, options.limits)
}

/// Reads data: JSON, or YAML without tags. Every text arrives as written, and no other file is read. Anchors count
/// against the limits as in [`load`]; errors have the same codes and places.
pub fn load_data(bytes: &[u8], name: &str, limits: Limits) -> Result<Document, Diagnostics> {
    read_document(bytes, name, Origin::Data, limits)
}

fn read_document(
    bytes: &[u8],
    name: &str,
    origin: Origin<'_>,
    limits: Limits,
) -> Result<Document, Diagnostics> {
    let mut loader = Loader::new(origin, limits);
    let root = tree::read_file(&mut loader, PathBuf::from(name), bytes, 0);
    match root {
        Ok(parsed) if loader.found.is_empty() => {
            Ok(Document { root: parsed.root.node, sources: loader.sources })
        }
        _ => {
            let mut diagnostics = Diagnostics { sources: loader.sources, items: loader.found };
            diagnostics.sort();
            Err(diagnostics)
        }
    }
}

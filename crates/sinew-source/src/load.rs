//! Turns bytes into a [`Document`]: encoding, limits over all files, includes.

use std::path::{Path, PathBuf};

use crate::loader::{Limits, Loader, Origin};
use crate::{Diagnostics, Node, Sources, Variables, tree};

/// A loaded file: its tree and its sources.
#[derive(Clone, Debug)]
pub struct Document {
    /// The tree.
    pub root: Node,
    /// The file and its includes, for snippets.
    pub sources: Sources,
}

/// Options of [`load`].
#[derive(Clone, Copy)]
pub struct LoadOptions<'a> {
    /// Name shown in diagnostics; includes are resolved relative to its folder.
    pub name: &'a str,
    /// Treatment of `${NAME}`.
    pub variables: Variables<'a>,
    /// Reads an included file; the path is already joined to the folder of the including file. The
    /// closure decides which files may be read; its error message is shown to people.
    pub read: &'a dyn Fn(&Path) -> Result<Vec<u8>, String>,
    /// Limits of the document.
    pub limits: Limits,
}

/// Loads a file of an author: YAML 1.2, or JSON, which is YAML. Errors have the codes SINEW-1001 to
/// SINEW-1018; all errors found in one pass are returned together, sorted.
pub fn load(bytes: &[u8], options: &LoadOptions<'_>) -> Result<Document, Diagnostics> {
    let origin = Origin::Authored { variables: options.variables, read: options.read };
    read_document(bytes, options.name, origin, options.limits)
}

/// Loads data: JSON, or YAML without tags. Strings are kept as written, and no other file is read.
/// Anchors count against the limits as in [`load`]; errors have the same codes and positions.
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

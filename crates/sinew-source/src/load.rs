//! From bytes to a [`Document`]: encoding, limits over all files, includes.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;

use crate::tree::{self, Built};
use crate::{Diagnostic, Diagnostics, Kind, Node, Sources, Span, Variables};

/// A file that was read: its tree and the texts it came from.
#[derive(Clone, Debug)]
pub struct Document {
    /// The tree.
    pub root: Node,
    /// The file and its includes, for snippets.
    pub sources: Sources,
}

/// What [`load`] needs from outside.
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

/// How much one document may hold, includes counted in.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of all files together, and of all environment values put in. 8 MiB.
    pub max_bytes: usize,
    /// Values in the tree. 500 000.
    pub max_nodes: usize,
    /// Values that anchors, aliases and merge keys may copy, a long text counting as several. 100 000.
    pub max_expanded: usize,
    /// Levels of nesting. 128.
    pub max_depth: usize,
    /// `!include`s. 64.
    pub max_includes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_bytes: 8 << 20,
            max_nodes: 500_000,
            max_expanded: 100_000,
            max_depth: 128,
            max_includes: 64,
        }
    }
}

/// Origin of a text, which decides what the text may ask for.
#[derive(Clone, Copy)]
pub(crate) enum Origin<'a> {
    /// A file of an author: it may include other files and name variables.
    Authored { variables: Variables<'a>, read: &'a dyn Fn(&Path) -> Result<Vec<u8>, String> },
    /// Data of a caller: variables, includes and tags are not allowed.
    Data,
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
    let root = loader.file(PathBuf::from(name), bytes, 0);
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

/// The document cannot be read any further; why is already among the findings.
#[derive(Debug)]
pub(crate) struct Stop;

/// One file that was read.
pub(crate) struct Parsed {
    pub(crate) root: Built,
    /// Its anchors by name, for a file that includes this one as a line.
    pub(crate) anchors: BTreeMap<String, Rc<Built>>,
}

/// Advice for data that asks for more than data may.
pub(crate) const DATA_HINT: &str = "data is JSON, or YAML without tags; write the value itself here";

/// Findings past this many are noise.
const MOST_FINDINGS: usize = 200;

/// What all files of one document share: the budget, the findings, the chain of includes.
pub(crate) struct Loader<'a> {
    pub(crate) origin: Origin<'a>,
    pub(crate) limits: Limits,
    pub(crate) sources: Sources,
    found: Vec<Diagnostic>,
    chain: Vec<PathBuf>,
    bytes: usize,
    nodes: usize,
    expanded: usize,
    includes: usize,
}

impl<'a> Loader<'a> {
    fn new(origin: Origin<'a>, limits: Limits) -> Self {
        Self {
            origin,
            limits,
            sources: Sources::default(),
            found: Vec::new(),
            chain: Vec::new(),
            bytes: 0,
            nodes: 0,
            expanded: 0,
            includes: 0,
        }
    }

    /// Notes a finding after which reading can go on.
    pub(crate) fn report(&mut self, finding: Diagnostic) {
        if self.found.len() < MOST_FINDINGS {
            self.found.push(finding);
        }
    }

    /// Notes a finding after which reading cannot go on.
    pub(crate) fn stop(&mut self, finding: Diagnostic) -> Stop {
        self.found.push(finding);
        Stop
    }

    /// Pays for one value at this depth.
    pub(crate) fn pay_node(&mut self, depth: usize, span: Span) -> Result<(), Stop> {
        let limits = self.limits;
        self.nodes += 1;
        if self.nodes > limits.max_nodes {
            let message = format!("more than {} values", limits.max_nodes);
            return Err(self.stop(Diagnostic::error("SINEW-1007", message).at(span)));
        }
        self.check_depth(depth, span)
    }

    /// Refuses nesting that is too deep.
    pub(crate) fn check_depth(&mut self, depth: usize, span: Span) -> Result<(), Stop> {
        let limit = self.limits.max_depth;
        if depth > limit {
            return Err(self.stop(
                Diagnostic::error("SINEW-1008", format!("nested deeper than {limit} levels")).at(span),
            ));
        }
        Ok(())
    }

    /// Pays for a copy of a tree, before it is made.
    pub(crate) fn pay_copy(&mut self, weight: usize, span: Span) -> Result<(), Stop> {
        let limit = self.limits.max_expanded;
        self.expanded = self.expanded.saturating_add(weight);
        if self.expanded > limit {
            let message = format!("anchors and aliases copy more than {limit} values");
            return Err(self.stop(Diagnostic::error("SINEW-1007", message).at(span)));
        }
        Ok(())
    }

    /// Pays for text: a file, or the value of a variable.
    pub(crate) fn pay_bytes(&mut self, count: usize, span: Span) -> Result<(), Stop> {
        let limit = self.limits.max_bytes;
        self.bytes = self.bytes.saturating_add(count);
        if self.bytes > limit {
            let message = format!("more than {limit} bytes, includes and variables counted in");
            return Err(self.stop(Diagnostic::error("SINEW-1006", message).at(span)));
        }
        Ok(())
    }

    /// Reads one file whose root stands at `depth` of the document.
    fn file(&mut self, path: PathBuf, bytes: &[u8], depth: usize) -> Result<Parsed, Stop> {
        let name = path.display().to_string();
        if let Err(stop) = self.pay_bytes(bytes.len(), Span::default()) {
            self.sources.add(name, "");
            return Err(stop);
        }
        let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
        let text = match str::from_utf8(bytes) {
            Ok(text) => text,
            Err(error) => {
                let file = self.sources.add(name, String::from_utf8_lossy(bytes).as_ref());
                let before = String::from_utf8_lossy(&bytes[..error.valid_up_to()]);
                let span = place_after(&before, file);
                let finding = Diagnostic::error("SINEW-1001", "text is not valid UTF-8")
                    .at(span)
                    .hint("save the file as UTF-8");
                return Err(self.stop(finding));
            }
        };
        let file = self.sources.add(name, text);
        self.chain.push(path);
        let parsed = tree::parse(self, file, text, depth);
        self.chain.pop();
        parsed
    }

    /// Reads the file that an `!include` at `span` names. A file that cannot be read is a finding, and
    /// `null` takes its place.
    pub(crate) fn include(&mut self, target: &str, span: Span, depth: usize) -> Result<Parsed, Stop> {
        let Origin::Authored { read, .. } = self.origin else {
            let finding = Diagnostic::error("SINEW-1012", "data does not include files").at(span);
            self.report(finding.hint(DATA_HINT));
            return Ok(Parsed::nothing(span));
        };
        let limit = self.limits.max_includes;
        self.includes += 1;
        if self.includes > limit {
            return Err(
                self.stop(Diagnostic::error("SINEW-1015", format!("more than {limit} includes")).at(span))
            );
        }
        let folder = self.chain.last().and_then(|path| path.parent()).unwrap_or(Path::new(""));
        let path = normal(&folder.join(target));
        if let Some(start) = self.chain.iter().position(|open| normal(open) == path) {
            let names: Vec<_> =
                self.chain[start..].iter().chain([&path]).map(|p| p.display().to_string()).collect();
            let message = format!("include cycle: {}", names.join(" -> "));
            self.report(Diagnostic::error("SINEW-1014", message).at(span));
            return Ok(Parsed::nothing(span));
        }
        let bytes = match read(&path) {
            Ok(bytes) => bytes,
            Err(reason) => {
                let message = format!("cannot read included file {}: {reason}", path.display());
                self.report(
                    Diagnostic::error("SINEW-1013", message)
                        .at(span)
                        .hint("the path is relative to the file with the include"),
                );
                return Ok(Parsed::nothing(span));
            }
        };
        let before = self.found.len();
        let parsed = self.file(path, &bytes, depth);
        for finding in &mut self.found[before..] {
            // A finding without a place is about the included file as a whole.
            if finding.span.is_none() {
                finding.span = Some(span);
            } else {
                finding.related.push((span, "included here".to_owned()));
            }
        }
        parsed
    }
}

impl Parsed {
    /// Stands in for a file that could not be read; the finding is noted already.
    fn nothing(span: Span) -> Self {
        let root = Built { node: Node { span, kind: Kind::Null }, weight: 1, height: 0 };
        Self { root, anchors: BTreeMap::new() }
    }
}

/// The place right after a text.
fn place_after(text: &str, file: u32) -> Span {
    let line_start = text.rfind('\n').map_or(0, |at| at + 1);
    Span {
        file,
        line: text.bytes().filter(|b| *b == b'\n').count() as u32 + 1,
        column: text[line_start..].chars().count() as u32 + 1,
        start: text.len(),
        end: text.len(),
    }
}

/// The path without `.` and `a/..`, so that two spellings of one file are seen as the same.
fn normal(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir if matches!(out.components().next_back(), Some(Component::Normal(_))) => {
                out.pop();
            }
            part => out.push(part),
        }
    }
    out
}

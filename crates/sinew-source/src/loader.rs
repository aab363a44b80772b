//! Shared state of loading: limits, findings, sources, chain of includes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use sinew_codes as code;

use crate::{Diagnostic, Kind, Node, Sources, Span, Variables};

/// Limits of one document, including its includes.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of all files together, plus all substituted environment values. 8 MiB.
    pub max_bytes: usize,
    /// Values in the tree. 500 000.
    pub max_nodes: usize,
    /// Values that anchors, aliases and merge keys may copy; a long string counts as several. 100
    /// 000.
    pub max_expanded: usize,
    /// Levels of nesting. 128.
    pub max_depth: usize,
    /// Number of `!include`s. 64.
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

/// Origin of a document, which determines what it may contain.
#[derive(Clone, Copy)]
pub(crate) enum Origin<'a> {
    /// File of an author: it may include other files and reference variables.
    Authored { variables: Variables<'a>, read: &'a dyn Fn(&Path) -> Result<Vec<u8>, String> },
    /// Data of a caller: variables, includes and tags are not allowed.
    Data,
}

/// Finished value with its copy cost.
#[derive(Clone, Debug)]
pub(crate) struct BuiltNode {
    pub(crate) node: Node,
    /// Number of values including itself; a long string counts as several.
    pub(crate) weight: usize,
    /// Number of levels below this one.
    pub(crate) height: usize,
}

/// Loading was aborted; the reason is already among the findings.
#[derive(Debug)]
pub(crate) struct LoadStopped;

/// A parsed file.
pub(crate) struct ParsedFile {
    pub(crate) root: BuiltNode,
    /// Anchors by name, for a file that includes this one as a line.
    pub(crate) anchors: BTreeMap<String, Rc<BuiltNode>>,
}

/// Hint for data that uses features of author files.
pub(crate) const DATA_HINT: &str = "data is JSON, or YAML without tags; write the value itself here";

/// Number of findings after which further ones are dropped.
const MAX_FINDINGS: usize = 200;

/// State that all files of one document share: limits, findings, chain of includes.
pub(crate) struct Loader<'a> {
    pub(crate) origin: Origin<'a>,
    pub(crate) limits: Limits,
    pub(crate) sources: Sources,
    pub(crate) found: Vec<Diagnostic>,
    pub(crate) chain: Vec<PathBuf>,
    bytes: usize,
    nodes: usize,
    expanded: usize,
    pub(crate) includes: usize,
}

impl<'a> Loader<'a> {
    pub(crate) fn new(origin: Origin<'a>, limits: Limits) -> Self {
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

    /// Adds a finding after which loading continues.
    pub(crate) fn report(&mut self, finding: Diagnostic) {
        if self.found.len() < MAX_FINDINGS {
            self.found.push(finding);
        }
    }

    /// Adds a finding that aborts loading.
    pub(crate) fn stop(&mut self, finding: Diagnostic) -> LoadStopped {
        self.found.push(finding);
        LoadStopped
    }

    /// Counts one value at this depth against the limits.
    pub(crate) fn pay_node(&mut self, depth: usize, span: Span) -> Result<(), LoadStopped> {
        let limits = self.limits;
        self.nodes += 1;
        if self.nodes > limits.max_nodes {
            let message = format!("more than {} values", limits.max_nodes);
            return Err(
                self.stop(Diagnostic::error(code::FILE_HOLDS_TOO_MANY_VALUES.as_str(), message).at(span))
            );
        }
        self.check_depth(depth, span)
    }

    /// Rejects nesting that is too deep.
    pub(crate) fn check_depth(&mut self, depth: usize, span: Span) -> Result<(), LoadStopped> {
        let limit = self.limits.max_depth;
        if depth > limit {
            return Err(self.stop(
                Diagnostic::error(
                    code::FILE_NESTED_TOO_DEEPLY.as_str(),
                    format!("nested deeper than {limit} levels"),
                )
                .at(span),
            ));
        }
        Ok(())
    }

    /// Counts a copy of a tree against the limits, before it is made.
    pub(crate) fn pay_copy(&mut self, weight: usize, span: Span) -> Result<(), LoadStopped> {
        let limit = self.limits.max_expanded;
        self.expanded = self.expanded.saturating_add(weight);
        if self.expanded > limit {
            let message = format!("anchors and aliases copy more than {limit} values");
            return Err(
                self.stop(Diagnostic::error(code::FILE_HOLDS_TOO_MANY_VALUES.as_str(), message).at(span))
            );
        }
        Ok(())
    }

    /// Counts bytes against the limits: a file, or the value of a variable.
    pub(crate) fn pay_bytes(&mut self, count: usize, span: Span) -> Result<(), LoadStopped> {
        let limit = self.limits.max_bytes;
        self.bytes = self.bytes.saturating_add(count);
        if self.bytes > limit {
            let message = format!("more than {limit} bytes, including included files and variables");
            return Err(self.stop(Diagnostic::error(code::FILE_TOO_LARGE.as_str(), message).at(span)));
        }
        Ok(())
    }
}

impl ParsedFile {
    /// Placeholder for a file that could not be read; the finding is already reported.
    pub(crate) fn nothing(span: Span) -> Self {
        let root = BuiltNode { node: Node { span, kind: Kind::Null }, weight: 1, height: 0 };
        Self { root, anchors: BTreeMap::new() }
    }
}

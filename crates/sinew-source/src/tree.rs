//! Builds the tree from parser events: duplicate keys, anchors, merge keys, tags, includes.
//!
//! The underlying parser (granit, the parser of serde-saphyr) emits events; this module keeps open
//! arrays and objects on an explicit stack, so nesting in the input never nests calls.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;

use granit_parser::{Event, Options, Parser, ScalarStyle, StrInput, Tag};
use sinew_codes as code;

use crate::environment::{SubstitutedText, VariableError, Variables, substitute};
use crate::loader::{BuiltNode, DATA_HINT, LoadStopped, Loader, Origin, ParsedFile};
use crate::{Diagnostic, Kind, Member, Node, Span, include_lines, scalar, syntax};

/// Parses one file whose root is at `depth` of the document.
fn parse(loader: &mut Loader<'_>, file: u32, text: &str, depth: usize) -> Result<ParsedFile, LoadStopped> {
    let nesting = loader.limits.max_depth.saturating_add(1);
    let options = granit_parser::options! {
        emit_comments: false,
        emit_anchor_events: true,
        emit_unresolved_aliases: true,
        flow_nesting_limit: nesting,
        block_nesting_limit: nesting,
    };
    let lines = match loader.origin {
        Origin::Authored { .. } => include_lines::find(text, file, &options),
        Origin::Data => None,
    };
    let mut builder = DocumentBuilder {
        loader,
        file,
        depth,
        open: Vec::new(),
        root: None,
        anchors: BTreeMap::new(),
        names: BTreeMap::new(),
        imported: BTreeMap::new(),
        documents: 0,
    };
    let Some(lines) = lines else {
        builder.run(text, options)?;
        return builder.finish(text, None);
    };
    let mut members = Vec::new();
    let (mut weight, mut height) = (1, 0);
    for line in lines.includes {
        let parsed = include_file(builder.loader, &line.target, line.span, depth)?;
        weight += parsed.root.weight;
        height = height.max(parsed.root.height);
        builder.imported.extend(parsed.anchors);
        match parsed.root.node.kind {
            Kind::Object(more) => members.extend(more),
            Kind::Null => {}
            _ => builder.loader.report(
                Diagnostic::error(
                    code::REFERENCE_CANNOT_BE_FOLLOWED.as_str(),
                    "a file included as a line must contain an object",
                )
                .at(line.span),
            ),
        }
    }
    builder.run(&lines.text, options)?;
    builder.finish(
        text,
        Some(BuiltNode { node: Node { span: Span::default(), kind: Kind::Object(members) }, weight, height }),
    )
}

/// Reads one file whose root is at `depth` of the document.
pub(crate) fn read_file(
    loader: &mut Loader<'_>,
    path: PathBuf,
    bytes: &[u8],
    depth: usize,
) -> Result<ParsedFile, LoadStopped> {
    let name = path.display().to_string();
    if let Err(stop) = loader.pay_bytes(bytes.len(), Span::default()) {
        loader.sources.add(name, "");
        return Err(stop);
    }
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let text = match str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => {
            let file = loader.sources.add(name, String::from_utf8_lossy(bytes).as_ref());
            let before = String::from_utf8_lossy(&bytes[..error.valid_up_to()]);
            let span = place_after(&before, file);
            let finding = Diagnostic::error(code::TEXT_NOT_VALID_UTF_8.as_str(), "text is not valid UTF-8")
                .at(span)
                .hint("save the file as UTF-8");
            return Err(loader.stop(finding));
        }
    };
    let file = loader.sources.add(name, text);
    loader.chain.push(path);
    let parsed = parse(loader, file, text, depth);
    loader.chain.pop();
    parsed
}

/// Reads the file of an `!include` at `span`. An unreadable file is a finding, and becomes `null`.
fn include_file(
    loader: &mut Loader<'_>,
    target: &str,
    span: Span,
    depth: usize,
) -> Result<ParsedFile, LoadStopped> {
    let Origin::Authored { read, .. } = loader.origin else {
        let finding = Diagnostic::error(code::TAG_NOT_KNOWN.as_str(), "data cannot include files").at(span);
        loader.report(finding.hint(DATA_HINT));
        return Ok(ParsedFile::nothing(span));
    };
    let limit = loader.limits.max_includes;
    loader.includes += 1;
    if loader.includes > limit {
        return Err(loader.stop(
            Diagnostic::error(code::TOO_MANY_INCLUDES.as_str(), format!("more than {limit} includes"))
                .at(span),
        ));
    }
    let folder = loader.chain.last().and_then(|path| path.parent()).unwrap_or(Path::new(""));
    let path = normal(&folder.join(target));
    if let Some(start) = loader.chain.iter().position(|open| normal(open) == path) {
        let names: Vec<_> =
            loader.chain[start..].iter().chain([&path]).map(|p| p.display().to_string()).collect();
        let message = format!("include cycle: {}", names.join(" -> "));
        loader.report(Diagnostic::error(code::INCLUDE_CYCLE.as_str(), message).at(span));
        return Ok(ParsedFile::nothing(span));
    }
    let bytes = match read(&path) {
        Ok(bytes) => bytes,
        Err(reason) => {
            let message = format!("cannot read included file {}: {reason}", path.display());
            loader.report(
                Diagnostic::error(code::INCLUDED_FILE_CANNOT_BE_READ.as_str(), message)
                    .at(span)
                    .hint("the path is relative to the file with the include"),
            );
            return Ok(ParsedFile::nothing(span));
        }
    };
    let before = loader.found.len();
    let parsed = read_file(loader, path, &bytes, depth);
    for finding in &mut loader.found[before..] {
        // A finding without a position concerns the included file as a whole.
        if finding.span.is_none() {
            finding.span = Some(span);
        } else {
            finding.related.push((span, "included here".to_owned()));
        }
    }
    parsed
}

/// Returns the position after the end of a file.
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

/// Normalises a path without `.` and `a/..`, so that two spellings of one file are recognised.
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

/// Array or object that is not finished.
struct OpenCollection {
    span: Span,
    anchor: usize,
    weight: usize,
    height: usize,
    content: CollectionContent,
}

enum CollectionContent {
    Array(Vec<Node>),
    Object {
        members: Vec<Member>,
        /// Key of the next value.
        key: Option<NodeKey>,
        /// Values of `<<`, each with the number of properties before it.
        merges: Vec<(usize, Span, Node)>,
    },
}

enum NodeKey {
    Name(String, Span),
    Merge(Span),
    /// Not a string; already reported, and its value is dropped.
    Bad,
}

struct DocumentBuilder<'l, 'o> {
    loader: &'l mut Loader<'o>,
    file: u32,
    depth: usize,
    open: Vec<OpenCollection>,
    root: Option<BuiltNode>,
    anchors: BTreeMap<usize, Rc<BuiltNode>>,
    names: BTreeMap<String, usize>,
    imported: BTreeMap<String, Rc<BuiltNode>>,
    documents: usize,
}

impl DocumentBuilder<'_, '_> {
    fn run(&mut self, text: &str, options: Options) -> Result<(), LoadStopped> {
        let mut parser: Parser<'_, StrInput<'_>> = Parser::new_from_str_with_options(text, options);
        while let Some(event) = parser.next_event() {
            let (event, at) = match event {
                Ok(event) => event,
                Err(error) => {
                    let finding = syntax::finding(&error, self.file, text);
                    return Err(self.loader.stop(finding));
                }
            };
            let span = self.span(&at);
            match event {
                Event::DocumentStart(..) => {
                    self.documents += 1;
                    if self.documents > 1 {
                        let finding = Diagnostic::error(
                            code::MORE_THAN_ONE_DOCUMENT_IN_FILE.as_str(),
                            "more than one document in the file",
                        )
                        .at(span)
                        .hint("put each document into a separate file");
                        return Err(self.loader.stop(finding));
                    }
                }
                Event::Scalar(text, style, anchor, tag) => {
                    self.scalar(&text, style, anchor, tag.as_deref(), span)?;
                }
                Event::SequenceStart(_, anchor, tag) => {
                    self.collection_tag(tag.as_deref(), "seq", span);
                    self.start(CollectionContent::Array(Vec::new()), anchor, span)?;
                }
                Event::MappingStart(_, anchor, tag) => {
                    self.collection_tag(tag.as_deref(), "map", span);
                    let content =
                        CollectionContent::Object { members: Vec::new(), key: None, merges: Vec::new() };
                    self.start(content, anchor, span)?;
                }
                Event::SequenceEnd | Event::MappingEnd => self.end(span)?,
                Event::Alias(id) => {
                    let target = self.anchors.get(&id).cloned();
                    self.alias(target, "alias is inside the value that it refers to", span)?;
                }
                Event::UnresolvedAlias(name) => {
                    let target = self.imported.get(&*name).cloned();
                    self.alias(target, "alias without an anchor of that name", span)?;
                }
                Event::Anchor(id, name) => {
                    self.names.insert(name.into_owned(), id);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Returns the finished tree, starting with the properties of files that were included as
    /// lines.
    fn finish(mut self, text: &str, included: Option<BuiltNode>) -> Result<ParsedFile, LoadStopped> {
        // A lone `---` produces a null.
        let own =
            self.root.take().filter(|root| !root.node.is_null() || root.node.span.end > root.node.span.start);
        let root = match (own, included) {
            (Some(root), None) => root,
            (None, None) => {
                let span = Span { file: self.file, line: 1, column: 1, start: 0, end: 0 };
                let message = if text.trim().is_empty() { "file is empty" } else { "file contains no value" };
                return Err(self.loader.stop(Diagnostic::error(code::FILE_EMPTY.as_str(), message).at(span)));
            }
            (None, Some(included)) => included,
            (Some(mut root), Some(included)) => {
                let Kind::Object(mut members) = included.node.kind else { return Err(LoadStopped) };
                let Kind::Object(own) = root.node.kind else {
                    let message = "a file with an include as a line must contain an object";
                    let finding = Diagnostic::error(code::REFERENCE_CANNOT_BE_FOLLOWED.as_str(), message)
                        .at(root.node.span);
                    return Err(self.loader.stop(finding));
                };
                members.extend(own);
                self.check_duplicates(&members);
                root.node.kind = Kind::Object(members);
                root.weight += included.weight;
                root.height = root.height.max(included.height);
                root
            }
        };
        let anchors = std::mem::take(&mut self.anchors);
        let mut named = std::mem::take(&mut self.imported);
        named.extend(self.names.into_iter().filter_map(|(name, id)| Some((name, anchors.get(&id)?.clone()))));
        Ok(ParsedFile { root, anchors: named })
    }

    fn start(&mut self, content: CollectionContent, anchor: usize, span: Span) -> Result<(), LoadStopped> {
        self.loader.pay_node(self.depth + self.open.len() + 1, span)?;
        self.open.push(OpenCollection { span, anchor, weight: 1, height: 0, content });
        Ok(())
    }

    fn end(&mut self, at: Span) -> Result<(), LoadStopped> {
        let Some(OpenCollection { mut span, anchor, weight, height, content }) = self.open.pop() else {
            return Ok(());
        };
        // A block collection has no closing bracket: it ends with its last value, not at the next
        // token.
        let last = match &content {
            CollectionContent::Array(items) => items.last().map(|item| item.span),
            CollectionContent::Object { members, .. } => members.last().map(|member| member.value.span),
        };
        let own = |last: &Span| last.file == self.file && last.end >= span.start && last.end <= at.end;
        span.end =
            if at.end > at.start { at.end } else { last.filter(own).map_or(span.end, |last| last.end) };
        let kind = match content {
            CollectionContent::Array(items) => Kind::Array(items),
            CollectionContent::Object { members, merges, .. } => {
                self.check_duplicates(&members);
                Kind::Object(merge(members, merges))
            }
        };
        self.place(BuiltNode { node: Node { span, kind }, weight, height: height + 1 }, anchor)
    }

    /// Adds a finished value at its position: as the root, an item, a key or the value of a key.
    fn place(&mut self, built: BuiltNode, anchor: usize) -> Result<(), LoadStopped> {
        if anchor != 0 {
            self.loader.pay_copy(built.weight, built.node.span)?;
            self.anchors.insert(anchor, Rc::new(built.clone()));
        }
        let Some(parent) = self.open.last_mut() else {
            self.root = Some(built);
            return Ok(());
        };
        parent.weight += built.weight;
        parent.height = parent.height.max(built.height);
        let BuiltNode { node, .. } = built;
        match &mut parent.content {
            CollectionContent::Array(items) => items.push(node),
            CollectionContent::Object { members, key, merges } => match key.take() {
                Some(NodeKey::Name(key, key_span)) => members.push(Member { key, key_span, value: node }),
                Some(NodeKey::Merge(span)) => {
                    let count = members.len();
                    let finding = merge_finding(&node, span);
                    merges.push((count, span, node));
                    if let Some(finding) = finding {
                        self.loader.report(finding);
                    }
                }
                Some(NodeKey::Bad) => {}
                None => {
                    *key = Some(NodeKey::Bad);
                    let finding = Diagnostic::error(code::KEY_NOT_TEXT.as_str(), "key is not a text")
                        .at(node.span)
                        .hint("a template such as {{x}} needs quotes around it");
                    self.loader.report(finding);
                }
            },
        }
        Ok(())
    }

    fn scalar(
        &mut self,
        text: &str,
        style: ScalarStyle,
        anchor: usize,
        tag: Option<&Tag>,
        span: Span,
    ) -> Result<(), LoadStopped> {
        let plain = style == ScalarStyle::Plain;
        // The parser reports `~` for an absent value.
        let absent = plain && span.start == span.end;
        let text = if absent { "" } else { text };
        self.loader.pay_node(self.depth + self.open.len(), span)?;
        if self.is_key_next() {
            self.key(text, plain, absent, anchor, tag, span);
            return Ok(());
        }
        if tag.is_some() && matches!(self.loader.origin, Origin::Data) {
            self.unknown_tag(tag, span);
            return self
                .place(BuiltNode { node: Node { span, kind: Kind::Null }, weight: 1, height: 0 }, anchor);
        }
        let substituted = match self.loader.origin {
            Origin::Authored { variables: Variables::Replaced(look_up), .. } => substitute(text, look_up),
            _ => Ok(SubstitutedText::kept(text)),
        };
        let substituted = match substituted {
            Ok(substituted) => substituted,
            Err(error) => {
                self.loader.report(variable_finding(&error).at(span));
                return self.place(
                    BuiltNode { node: Node { span, kind: Kind::Null }, weight: 1, height: 0 },
                    anchor,
                );
            }
        };
        if substituted.added > 0 {
            self.loader.pay_bytes(substituted.added, span)?;
        }
        let text = substituted.text;
        let untouched = matches!(text, std::borrow::Cow::Borrowed(_));
        let typed = plain && (untouched || substituted.whole);
        let kind = match tag.map(kind_of_tag) {
            Some(ScalarTag::Include) => {
                let depth = self.depth + self.open.len();
                let parsed = include_file(self.loader, &text, span, depth)?;
                return self.place(parsed.root, anchor);
            }
            Some(ScalarTag::Unknown) => {
                self.unknown_tag(tag, span);
                Ok(Kind::Null)
            }
            Some(ScalarTag::Core(name)) => {
                let kind = scalar::plain(&text);
                if let Ok(kind) = &kind
                    && !fits(name, kind)
                {
                    let message = format!("value does not fit its tag !!{name}");
                    self.loader.report(Diagnostic::error(code::TAG_NOT_KNOWN.as_str(), message).at(span));
                }
                kind
            }
            None if typed => scalar::plain(&text),
            Some(ScalarTag::Text) | None => Ok(Kind::String(text.into_owned())),
        };
        let kind = kind.unwrap_or_else(|bad| {
            let finding =
                Diagnostic::error(code::NUMBER_CANNOT_BE_KEPT_EXACTLY.as_str(), bad.message()).at(span);
            self.loader.report(finding.hint("put it into quotes to keep it as text"));
            Kind::Null
        });
        // A long string costs more to copy: one more for every 32 bytes.
        let weight = 1 + if let Kind::String(text) = &kind { text.len() / 32 } else { 0 };
        self.place(BuiltNode { node: Node { span, kind }, weight, height: 0 }, anchor)
    }

    /// Returns whether the next scalar is a key.
    fn is_key_next(&self) -> bool {
        let last = self.open.last().map(|collection| &collection.content);
        matches!(last, Some(CollectionContent::Object { key: None, .. }))
    }

    /// Uses a scalar as the next key of the open object.
    fn key(&mut self, text: &str, plain: bool, absent: bool, anchor: usize, tag: Option<&Tag>, span: Span) {
        if let Some(OpenCollection {
            content: CollectionContent::Object { key: key @ None, merges, .. },
            ..
        }) = self.open.last_mut()
        {
            if tag.is_some() && matches!(self.loader.origin, Origin::Data) {
                let finding = tag_finding(self.loader.origin, tag);
                self.loader.report(finding.at(span));
            }
            *key = Some(if plain && text == "<<" && tag.is_none() {
                if let Some((_, first, _)) = merges.first() {
                    let finding = duplicate("<<", span, *first);
                    self.loader.report(finding.hint("merge several with a list: <<: [*a, *b]"));
                }
                NodeKey::Merge(span)
            } else if absent {
                self.loader.report(Diagnostic::error(code::KEY_NOT_TEXT.as_str(), "key is missing").at(span));
                NodeKey::Bad
            } else {
                NodeKey::Name(text.to_owned(), span)
            });
            if anchor != 0 {
                let node = Node { span, kind: Kind::String(text.to_owned()) };
                self.anchors
                    .insert(anchor, Rc::new(BuiltNode { node, weight: 1 + text.len() / 32, height: 0 }));
            }
        }
    }

    fn alias(&mut self, target: Option<Rc<BuiltNode>>, problem: &str, span: Span) -> Result<(), LoadStopped> {
        let Some(target) = target else {
            self.loader
                .report(Diagnostic::error(code::REFERENCE_CANNOT_BE_FOLLOWED.as_str(), problem).at(span));
            return self.place(BuiltNode { node: Node { span, kind: Kind::Null }, weight: 1, height: 0 }, 0);
        };
        self.loader.pay_copy(target.weight, span)?;
        self.loader.check_depth(self.depth + self.open.len() + target.height, span)?;
        self.place(BuiltNode::clone(&target), 0)
    }

    fn collection_tag(&mut self, tag: Option<&Tag>, allowed: &str, span: Span) {
        let is_data = matches!(self.loader.origin, Origin::Data);
        if tag.is_some_and(|tag| is_data || tag.core_suffix() != Some(allowed)) {
            self.unknown_tag(tag, span);
        }
    }

    fn unknown_tag(&mut self, tag: Option<&Tag>, span: Span) {
        let finding = tag_finding(self.loader.origin, tag);
        self.loader.report(finding.at(span));
    }

    /// Reports every duplicate key, at its second position.
    fn check_duplicates(&mut self, members: &[Member]) {
        if members.len() < 2 {
            return;
        }
        let mut sorted: Vec<&Member> = members.iter().collect();
        sorted.sort_by(|a, b| a.key.cmp(&b.key)); // stable: equal keys stay in file order
        for pair in sorted.windows(2) {
            if pair[0].key == pair[1].key {
                self.loader.report(duplicate(&pair[1].key, pair[1].key_span, pair[0].key_span));
            }
        }
    }

    fn span(&self, at: &granit_parser::Span) -> Span {
        Span {
            file: self.file,
            line: at.start.line() as u32,
            column: at.start.col() as u32 + 1,
            start: at.start.byte_offset().unwrap_or(0),
            end: at.end.byte_offset().unwrap_or(0),
        }
    }
}

enum ScalarTag<'t> {
    Include,
    Text,
    Core(&'t str),
    Unknown,
}

fn kind_of_tag(tag: &Tag) -> ScalarTag<'_> {
    match tag.core_suffix() {
        Some("str") => ScalarTag::Text,
        Some(name @ ("null" | "bool" | "int" | "float")) => ScalarTag::Core(name),
        _ if tag.original() == "!" => ScalarTag::Text,
        _ if tag.original() == "!include" => ScalarTag::Include,
        _ => ScalarTag::Unknown,
    }
}

fn fits(tag: &str, kind: &Kind) -> bool {
    match kind {
        Kind::Null => tag == "null",
        Kind::Bool(_) => tag == "bool",
        Kind::Number(number) => tag == "float" || (tag == "int" && !number.is_f64()),
        _ => false,
    }
}

/// Returns the finding for a tag that is not allowed in a document of this origin.
fn tag_finding(origin: Origin<'_>, tag: Option<&Tag>) -> Diagnostic {
    let tag: String = tag.map(Tag::original).unwrap_or_default().chars().take(40).collect();
    let (problem, hint) = match origin {
        Origin::Data => ("is not allowed in data", DATA_HINT),
        Origin::Authored { .. } => (
            "is not known here",
            "supported tags are !include and the core tags !!str !!int !!float !!bool !!null !!seq !!map",
        ),
    };
    Diagnostic::error(code::TAG_NOT_KNOWN.as_str(), format!("tag {tag} {problem}")).hint(hint)
}

/// Returns the finding for a reference that cannot be resolved, with a hint.
fn variable_finding(error: &VariableError) -> Diagnostic {
    let finding = Diagnostic::error(error.code(), error.to_string());
    let keep = |name: &str| {
        format!("give a default with ${{{name}, default}}, or write $${{{name}}} to keep the text")
    };
    match error {
        VariableError::NotAllowed(name) => finding.hint(format!("add `--env {name}`, or {}", keep(name))),
        VariableError::Unset(name) | VariableError::Reserved(name) => finding.hint(keep(name)),
        VariableError::Name(_) => finding,
    }
}

fn duplicate(key: &str, second: Span, first: Span) -> Diagnostic {
    let shown: String = key.chars().take(60).collect();
    Diagnostic::error(code::DUPLICATE_KEY.as_str(), format!("key '{shown}' is duplicated in one object"))
        .at(second)
        .related(first, "first here")
}

fn merge_finding(value: &Node, span: Span) -> Option<Diagnostic> {
    let good = match &value.kind {
        Kind::Object(_) => true,
        Kind::Array(items) => items.iter().all(|item| matches!(item.kind, Kind::Object(_))),
        _ => false,
    };
    (!good).then(|| {
        Diagnostic::error(
            code::REFERENCE_CANNOT_BE_FOLLOWED.as_str(),
            "<< takes an object or a list of objects",
        )
        .at(span)
    })
}

/// Inserts merged properties at the position of the `<<`. Own keys take precedence, then earlier
/// merges.
fn merge(members: Vec<Member>, merges: Vec<(usize, Span, Node)>) -> Vec<Member> {
    if merges.is_empty() {
        return members;
    }
    let mut taken: std::collections::HashSet<String> =
        members.iter().map(|member| member.key.clone()).collect();
    let mut own = members.into_iter();
    let mut out = Vec::new();
    let mut passed = 0;
    for (before, _, value) in merges {
        out.extend(own.by_ref().take(before - passed));
        passed = before;
        let objects = match value.kind {
            Kind::Array(items) => items,
            _ => vec![value],
        };
        for object in objects {
            if let Kind::Object(more) = object.kind {
                out.extend(more.into_iter().filter(|member| taken.insert(member.key.clone())));
            }
        }
    }
    out.extend(own);
    out
}

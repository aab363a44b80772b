//! Parser events become a tree: duplicate keys, anchors, merge keys, tags, includes.
//!
//! The parser below (granit, the one under serde-saphyr) hands out events; this module keeps the open
//! arrays and objects on a stack of its own, so that nesting in the input never nests calls.

use std::collections::BTreeMap;
use std::rc::Rc;

use granit_parser::{Event, Options, Parser, ScalarStyle, StrInput, Tag};

use crate::environment::{Substituted, VariableError, Variables, substitute};
use crate::load::{DATA_HINT, Loader, Origin, Parsed, Stop};
use crate::{Diagnostic, Kind, Member, Node, Span, include_lines, scalar, syntax};

/// A finished value with what copying it would cost.
#[derive(Clone, Debug)]
pub(crate) struct Built {
    pub(crate) node: Node,
    /// Values inside, itself included, a long text counting as several.
    pub(crate) weight: usize,
    /// Levels below this one.
    pub(crate) height: usize,
}

/// Reads one text whose root stands at `depth` of the document.
pub(crate) fn parse(loader: &mut Loader<'_>, file: u32, text: &str, depth: usize) -> Result<Parsed, Stop> {
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
    let mut builder = Builder {
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
        let parsed = builder.loader.include(&line.target, line.span, depth)?;
        weight += parsed.root.weight;
        height = height.max(parsed.root.height);
        builder.imported.extend(parsed.anchors);
        match parsed.root.node.kind {
            Kind::Object(more) => members.extend(more),
            Kind::Null => {}
            _ => builder.loader.report(
                Diagnostic::error("SINEW-1011", "a file included as a line must hold an object")
                    .at(line.span),
            ),
        }
    }
    builder.run(&lines.text, options)?;
    builder.finish(
        text,
        Some(Built { node: Node { span: Span::default(), kind: Kind::Object(members) }, weight, height }),
    )
}

/// An array or object whose end has not come yet.
struct Open {
    span: Span,
    anchor: usize,
    weight: usize,
    height: usize,
    content: Content,
}

enum Content {
    Array(Vec<Node>),
    Object {
        members: Vec<Member>,
        /// The key whose value comes next.
        key: Option<Key>,
        /// Values of `<<`, each with the number of members before it.
        merges: Vec<(usize, Span, Node)>,
    },
}

enum Key {
    Name(String, Span),
    Merge(Span),
    /// Was no text; reported already, its value is dropped.
    Bad,
}

struct Builder<'l, 'o> {
    loader: &'l mut Loader<'o>,
    file: u32,
    depth: usize,
    open: Vec<Open>,
    root: Option<Built>,
    anchors: BTreeMap<usize, Rc<Built>>,
    names: BTreeMap<String, usize>,
    imported: BTreeMap<String, Rc<Built>>,
    documents: usize,
}

impl Builder<'_, '_> {
    fn run(&mut self, text: &str, options: Options) -> Result<(), Stop> {
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
                        let finding = Diagnostic::error("SINEW-1004", "more than one document in the file")
                            .at(span)
                            .hint("put each document into a file of its own");
                        return Err(self.loader.stop(finding));
                    }
                }
                Event::Scalar(text, style, anchor, tag) => {
                    self.scalar(&text, style, anchor, tag.as_deref(), span)?;
                }
                Event::SequenceStart(_, anchor, tag) => {
                    self.collection_tag(tag.as_deref(), "seq", span);
                    self.start(Content::Array(Vec::new()), anchor, span)?;
                }
                Event::MappingStart(_, anchor, tag) => {
                    self.collection_tag(tag.as_deref(), "map", span);
                    let content = Content::Object { members: Vec::new(), key: None, merges: Vec::new() };
                    self.start(content, anchor, span)?;
                }
                Event::SequenceEnd | Event::MappingEnd => self.end(span)?,
                Event::Alias(id) => {
                    let target = self.anchors.get(&id).cloned();
                    self.alias(target, "alias stands inside the value it names", span)?;
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

    /// The finished tree, with the members of files that were included as lines put in front.
    fn finish(mut self, text: &str, included: Option<Built>) -> Result<Parsed, Stop> {
        // `---` alone makes a null out of nothing.
        let own =
            self.root.take().filter(|root| !root.node.is_null() || root.node.span.end > root.node.span.start);
        let root = match (own, included) {
            (Some(root), None) => root,
            (None, None) => {
                let span = Span { file: self.file, line: 1, column: 1, start: 0, end: 0 };
                let message = if text.trim().is_empty() { "file is empty" } else { "file holds no value" };
                return Err(self.loader.stop(Diagnostic::error("SINEW-1003", message).at(span)));
            }
            (None, Some(included)) => included,
            (Some(mut root), Some(included)) => {
                let Kind::Object(mut members) = included.node.kind else { return Err(Stop) };
                let Kind::Object(own) = root.node.kind else {
                    let message = "a file with an include as a line must hold an object";
                    let finding = Diagnostic::error("SINEW-1011", message).at(root.node.span);
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
        Ok(Parsed { root, anchors: named })
    }

    fn start(&mut self, content: Content, anchor: usize, span: Span) -> Result<(), Stop> {
        self.loader.pay_node(self.depth + self.open.len() + 1, span)?;
        self.open.push(Open { span, anchor, weight: 1, height: 0, content });
        Ok(())
    }

    fn end(&mut self, at: Span) -> Result<(), Stop> {
        let Some(Open { mut span, anchor, weight, height, content }) = self.open.pop() else { return Ok(()) };
        // A block collection has no closing bracket: it ends with its last value, not at the next token.
        let last = match &content {
            Content::Array(items) => items.last().map(|item| item.span),
            Content::Object { members, .. } => members.last().map(|member| member.value.span),
        };
        let own = |last: &Span| last.file == self.file && last.end >= span.start && last.end <= at.end;
        span.end =
            if at.end > at.start { at.end } else { last.filter(own).map_or(span.end, |last| last.end) };
        let kind = match content {
            Content::Array(items) => Kind::Array(items),
            Content::Object { members, merges, .. } => {
                self.check_duplicates(&members);
                Kind::Object(merge(members, merges))
            }
        };
        self.place(Built { node: Node { span, kind }, weight, height: height + 1 }, anchor)
    }

    /// Puts a finished value where it belongs: the root, an array, a key or under one.
    fn place(&mut self, built: Built, anchor: usize) -> Result<(), Stop> {
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
        let Built { node, .. } = built;
        match &mut parent.content {
            Content::Array(items) => items.push(node),
            Content::Object { members, key, merges } => match key.take() {
                Some(Key::Name(key, key_span)) => members.push(Member { key, key_span, value: node }),
                Some(Key::Merge(span)) => {
                    let count = members.len();
                    let finding = merge_finding(&node, span);
                    merges.push((count, span, node));
                    if let Some(finding) = finding {
                        self.loader.report(finding);
                    }
                }
                Some(Key::Bad) => {}
                None => {
                    *key = Some(Key::Bad);
                    let finding = Diagnostic::error("SINEW-1010", "key is not a text")
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
    ) -> Result<(), Stop> {
        let plain = style == ScalarStyle::Plain;
        // The parser says `~` where nothing stands at all.
        let absent = plain && span.start == span.end;
        let text = if absent { "" } else { text };
        self.loader.pay_node(self.depth + self.open.len(), span)?;
        if let Some(Open { content: Content::Object { key: key @ None, merges, .. }, .. }) =
            self.open.last_mut()
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
                Key::Merge(span)
            } else if absent {
                self.loader.report(Diagnostic::error("SINEW-1010", "key is missing").at(span));
                Key::Bad
            } else {
                Key::Name(text.to_owned(), span)
            });
            if anchor != 0 {
                let node = Node { span, kind: Kind::String(text.to_owned()) };
                self.anchors.insert(anchor, Rc::new(Built { node, weight: 1 + text.len() / 32, height: 0 }));
            }
            return Ok(());
        }
        if tag.is_some() && matches!(self.loader.origin, Origin::Data) {
            self.unknown_tag(tag, span);
            return self.place(Built { node: Node { span, kind: Kind::Null }, weight: 1, height: 0 }, anchor);
        }
        let substituted = match self.loader.origin {
            Origin::Authored { variables: Variables::Replaced(look_up), .. } => substitute(text, look_up),
            _ => Ok(Substituted::kept(text)),
        };
        let substituted = match substituted {
            Ok(substituted) => substituted,
            Err(error) => {
                self.loader.report(variable_finding(&error).at(span));
                return self
                    .place(Built { node: Node { span, kind: Kind::Null }, weight: 1, height: 0 }, anchor);
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
                let parsed = self.loader.include(&text, span, depth)?;
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
                    self.loader.report(Diagnostic::error("SINEW-1012", message).at(span));
                }
                kind
            }
            None if typed => scalar::plain(&text),
            Some(ScalarTag::Text) | None => Ok(Kind::String(text.into_owned())),
        };
        let kind = kind.unwrap_or_else(|bad| {
            let finding = Diagnostic::error("SINEW-1009", bad.message()).at(span);
            self.loader.report(finding.hint("put it into quotes to keep it as text"));
            Kind::Null
        });
        // A long text costs more to copy: one more for every 32 bytes.
        let weight = 1 + if let Kind::String(text) = &kind { text.len() / 32 } else { 0 };
        self.place(Built { node: Node { span, kind }, weight, height: 0 }, anchor)
    }

    fn alias(&mut self, target: Option<Rc<Built>>, problem: &str, span: Span) -> Result<(), Stop> {
        let Some(target) = target else {
            self.loader.report(Diagnostic::error("SINEW-1011", problem).at(span));
            return self.place(Built { node: Node { span, kind: Kind::Null }, weight: 1, height: 0 }, 0);
        };
        self.loader.pay_copy(target.weight, span)?;
        self.loader.check_depth(self.depth + self.open.len() + target.height, span)?;
        self.place(Built::clone(&target), 0)
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

    /// Reports every key that stands twice, at its second place.
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

/// Returns the finding for a tag that may not stand in a text of this origin.
fn tag_finding(origin: Origin<'_>, tag: Option<&Tag>) -> Diagnostic {
    let tag: String = tag.map(Tag::original).unwrap_or_default().chars().take(40).collect();
    let (problem, hint) = match origin {
        Origin::Data => ("cannot stand in data", DATA_HINT),
        Origin::Authored { .. } => (
            "is not known here",
            "known are !include and the core tags !!str !!int !!float !!bool !!null !!seq !!map",
        ),
    };
    Diagnostic::error("SINEW-1012", format!("tag {tag} {problem}")).hint(hint)
}

/// Returns the finding for a reference that cannot be replaced, with advice.
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
    Diagnostic::error("SINEW-1005", format!("key '{shown}' stands twice in one object"))
        .at(second)
        .related(first, "first here")
}

fn merge_finding(value: &Node, span: Span) -> Option<Diagnostic> {
    let good = match &value.kind {
        Kind::Object(_) => true,
        Kind::Array(items) => items.iter().all(|item| matches!(item.kind, Kind::Object(_))),
        _ => false,
    };
    (!good).then(|| Diagnostic::error("SINEW-1011", "<< takes an object or a list of objects").at(span))
}

/// Puts merged members where the `<<` stood. Own keys win, then earlier merges.
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

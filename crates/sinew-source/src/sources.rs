//! The texts of the files of a document, kept for snippets.

use std::sync::Arc;

use crate::Span;

/// One file as it was read (without a byte order mark).
#[derive(Clone, Debug)]
pub struct SourceFile {
    /// The name shown to people: as given to [`load`](crate::load()), or the path of an include.
    pub name: String,
    /// The text; spans count in its bytes.
    pub text: Arc<str>,
}

/// The files of one document: the first is the one that was asked for, the rest are includes.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    files: Vec<SourceFile>,
}

impl Sources {
    /// The sources of a document that is one text.
    pub fn single(name: impl Into<String>, text: impl Into<Arc<str>>) -> Self {
        let mut sources = Self::default();
        sources.add(name, text);
        sources
    }

    /// Adds a file and returns its index for [`Span::file`](crate::Span::file).
    pub fn add(&mut self, name: impl Into<String>, text: impl Into<Arc<str>>) -> u32 {
        self.files.push(SourceFile { name: name.into(), text: text.into() });
        (self.files.len() - 1) as u32
    }

    /// The file at this index.
    pub fn get(&self, file: u32) -> Option<&SourceFile> {
        self.files.get(file as usize)
    }

    /// All files, in the order they were read.
    pub fn files(&self) -> &[SourceFile] {
        &self.files
    }

    /// Line and column (from 1) right behind a span.
    pub fn end_of(&self, span: Span) -> (u32, u32) {
        let text = self.get(span.file).and_then(|file| file.text.get(span.start..span.end)).unwrap_or("");
        match text.rfind('\n') {
            Some(last) => {
                let lines = text.bytes().filter(|b| *b == b'\n').count() as u32;
                (span.line + lines, text[last + 1..].chars().count() as u32 + 1)
            }
            None => (span.line, span.column + text.chars().count() as u32),
        }
    }
}

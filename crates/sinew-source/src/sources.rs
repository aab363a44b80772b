//! Contents of the files of a document, for snippets.

use std::sync::Arc;

use crate::Span;

/// Loaded file, without a byte order mark.
#[derive(Clone, Debug)]
pub struct SourceFile {
    /// Name shown to people: the one given to [`load`](crate::load()), or the path of an include.
    pub name: String,
    /// Contents; spans are byte offsets into it.
    pub text: Arc<str>,
}

/// Files of one document: the first is the loaded one, the others are includes.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    files: Vec<SourceFile>,
}

impl Sources {
    /// Creates the sources of a document with a single file.
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

    /// Returns the file at this index.
    pub fn get(&self, file: u32) -> Option<&SourceFile> {
        self.files.get(file as usize)
    }

    /// Returns all files, in the order they were read.
    pub fn files(&self) -> &[SourceFile] {
        &self.files
    }

    /// Returns line and column (from 1) after the end of a span.
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

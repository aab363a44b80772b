//! The list of all dialects, and which of them a file is in.

use sinew_engine::Adapter;
use sinew_source::Document;

use crate::dialect::Dialect;

/// All dialects, in the order in which they are tried.
pub fn all() -> &'static [&'static dyn Dialect] {
    &[
        &crate::sam::Sam,
        &crate::agentflow::AgentFlow,
        &crate::agentteam::AgentTeam,
        &crate::covalt::Covalt,
        &crate::sweny::Sweny,
    ]
}

/// The dialect of this name.
pub fn by_name(name: &str) -> Option<&'static dyn Dialect> {
    all().iter().copied().find(|dialect| dialect.name() == name)
}

/// The adapter of plans with this name in `dialect`: that of a dialect, or of workflows which Sinew makes itself.
pub fn adapter(name: &str) -> Option<&'static dyn Adapter> {
    if name == crate::person_question::NAME {
        return Some(&crate::person_question::PersonQuestionAdapter);
    }
    by_name(name).map(Dialect::adapter)
}

/// The dialect that is surest of the document, if any is.
pub fn detect(document: &Document) -> Option<&'static dyn Dialect> {
    all()
        .iter()
        .map(|dialect| (dialect.detect(document), *dialect))
        .filter(|(sure, _)| *sure > 0)
        .reduce(|best, next| if next.0 > best.0 { next } else { best })
        .map(|(_, dialect)| dialect)
}

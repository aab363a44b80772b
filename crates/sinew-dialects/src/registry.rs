//! List of all dialects, and dialect detection.

use sinew_engine::Adapter;
use sinew_source::Document;

use crate::dialect::Dialect;

/// Returns all dialects, in detection order.
pub fn all() -> &'static [&'static dyn Dialect] {
    &[
        &crate::sam::Sam,
        &crate::agentflow::AgentFlow,
        &crate::agentteam::AgentTeam,
        &crate::covalt::Covalt,
        &crate::sweny::Sweny,
    ]
}

/// Returns the dialect with this name.
pub fn by_name(name: &str) -> Option<&'static dyn Dialect> {
    all().iter().copied().find(|dialect| dialect.name() == name)
}

/// Returns the adapter of plans with this `dialect`: a dialect's, or that of workflows that Sinew
/// generates.
pub fn adapter(name: &str) -> Option<&'static dyn Adapter> {
    if name == crate::person_question::NAME {
        return Some(&crate::person_question::PersonQuestionAdapter);
    }
    by_name(name).map(Dialect::adapter)
}

/// Returns the dialect with the highest confidence for the document, if any.
pub fn detect(document: &Document) -> Option<&'static dyn Dialect> {
    all()
        .iter()
        .map(|dialect| (dialect.detect(document), *dialect))
        .filter(|(sure, _)| *sure > 0)
        .reduce(|best, next| if next.0 > best.0 { next } else { best })
        .map(|(_, dialect)| dialect)
}

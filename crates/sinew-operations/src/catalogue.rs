//! The catalogue of a mesh: its agents and workflows, listed and searched.
//!
//! Each process has its own index ([`CatalogueIndex`]), which takes over changed cards when it is
//! asked. A caller sees, and its searches count, only the entries that it may see.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use schemars::JsonSchema;
use serde::Deserialize;
use sinew_documents::catalogue::{CatalogueEntry, CatalogueMatch, CataloguePage, MatchedWord};
use sinew_mesh::card::AnnouncedCard;
use sinew_protocol::a2a::AgentCard;
use sinew_protocol::card::{self, AgentKind};
use sinew_protocol::catalogue::{Catalogue, Stage};
use sinew_protocol::catalogue_record::CatalogueRecord;
use sinew_search::{Lookalikes, SearchDocument, SearchIndex, SearchQuery};

use crate::catalogue_records::RecordSet;

/// Entries of a page, unless the caller asks for another number.
pub const CATALOGUE_PAGE: usize = 20;
/// Maximum number of entries of a page.
pub const MAX_CATALOGUE_PAGE: usize = 100;
/// Maximum length of a description in results, in characters.
const MAX_DESCRIPTION: usize = 300;
/// Changes of a card within [`CHANGE_WINDOW`] after which its entry keeps its text until the window
/// ends.
const MAX_CHANGES: u32 = 10;
/// Time over which the changes of a card are counted.
const CHANGE_WINDOW: Duration = Duration::from_mins(1);

/// What a caller searches the catalogue for.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CatalogueQuery {
    /// What the caller wants to do, in any words. Without it, the entries are listed by name.
    pub q: Option<String>,
    /// Only `agent` or only `workflow`.
    pub kind: Option<CatalogueKind>,
    /// Only entries of this stage: `experimental`, `stable` or `deprecated`.
    pub stage: Option<Stage>,
    /// Only entries of this maintainer.
    pub maintainer: Option<String>,
    /// Only entries with this label: `KEY=VALUE`, or `KEY` for any value.
    pub label: Option<String>,
    /// Only entries with a skill of this tag.
    pub tag: Option<String>,
    /// Include entries that administrators hide.
    #[serde(default)]
    pub hidden: bool,
    /// Maximum number of entries.
    pub limit: Option<usize>,
    /// The name in `next` of the previous page of a list.
    pub after: Option<String>,
}

/// Kind of entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CatalogueKind {
    /// Agents that process tasks themselves.
    Agent,
    /// Workflows.
    Workflow,
}

/// The index of a process over the cards that it follows.
#[derive(Debug, Default)]
pub struct CatalogueIndex {
    state: Mutex<IndexState>,
}

#[derive(Debug, Default)]
struct IndexState {
    index: SearchIndex,
    known: BTreeMap<String, KnownCard>,
    lookalikes: Lookalikes,
}

#[derive(Debug)]
struct KnownCard {
    announced: Arc<AnnouncedCard>,
    record: Option<Arc<CatalogueRecord>>,
    changes: u32,
    since: Instant,
}

impl CatalogueIndex {
    /// Returns the entries for a query among the cards that the caller may see. `all` are the cards and
    /// records of the mesh, which keep the index current.
    pub fn find(
        &self,
        (all, records): (&[Arc<AnnouncedCard>], &RecordSet),
        query: &CatalogueQuery,
        visible: impl Fn(&AgentCard) -> bool,
    ) -> CataloguePage {
        let limit = query.limit.unwrap_or(CATALOGUE_PAGE).clamp(1, MAX_CATALOGUE_PAGE);
        self.find_up_to(limit, (all, records), query, visible)
    }

    /// Like [`CatalogueIndex::find`], with any maximum number of entries.
    pub fn find_up_to(
        &self,
        limit: usize,
        (all, records): (&[Arc<AnnouncedCard>], &RecordSet),
        query: &CatalogueQuery,
        visible: impl Fn(&AgentCard) -> bool,
    ) -> CataloguePage {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.refresh(all, records, Instant::now());
        let visible = |card: &AgentCard| (query.hidden || !records.hides(&card.name)) && visible(card);
        let wanted = |known: &KnownCard| {
            visible(&known.announced.card) && query.admits(&known.announced.card, records)
        };
        if let Some(text) = query.q.as_deref().filter(|text| !text.trim().is_empty()) {
            let search = SearchQuery { text, limit };
            let results = state.index.search(&search, |name| state.known.get(name).is_some_and(wanted));
            let entries = results.hits.into_iter().filter_map(|hit| {
                let mut entry = state.entry(state.known.get(&hit.name)?, &visible);
                let words = hit.matches.into_iter();
                let words = words.map(|(field, word)| MatchedWord { field: field.name().to_owned(), word });
                entry.found =
                    Some(CatalogueMatch { score: hit.score, words: words.collect(), skill: hit.skill });
                Some(entry)
            });
            CataloguePage {
                entries: entries.collect(),
                total: results.total,
                corrections: results.corrections.into_iter().collect(),
                next: None,
            }
        } else {
            let listed: Vec<&KnownCard> = state.known.values().filter(|known| wanted(known)).collect();
            let after = query.after.as_deref();
            let rest = listed.iter().filter(|known| after.is_none_or(|after| known.name() > after));
            let mut page: Vec<&KnownCard> = rest.take(limit.saturating_add(1)).copied().collect();
            let next = (page.len() > limit).then(|| page[limit - 1].name().to_owned());
            page.truncate(limit);
            CataloguePage {
                entries: page.into_iter().map(|known| state.entry(known, &visible)).collect(),
                total: listed.len(),
                corrections: BTreeMap::new(),
                next,
            }
        }
    }
}

impl IndexState {
    /// Takes over new, changed and removed cards.
    fn refresh(&mut self, all: &[Arc<AnnouncedCard>], records: &RecordSet, now: Instant) {
        let names: HashSet<&str> = all.iter().map(|one| one.card.name.as_str()).collect();
        let gone: Vec<String> =
            self.known.keys().filter(|name| !names.contains(name.as_str())).cloned().collect();
        let mut other_names = !gone.is_empty();
        for name in gone {
            self.known.remove(&name);
            self.index.remove(&name);
        }
        for announced in all {
            let name = &announced.card.name;
            let known = self.known.get(name);
            let record = records.get(name);
            if known.is_some_and(|known| known.is_same(announced, record)) {
                continue;
            }
            let (changes, since) = match known {
                // Only changes of the card count: its publisher does not write the record.
                Some(known) if known.has_card(announced) => (known.changes, known.since),
                Some(known) if now.duration_since(known.since) < CHANGE_WINDOW => {
                    if known.changes >= MAX_CHANGES {
                        continue;
                    }
                    (known.changes + 1, known.since)
                }
                _ => (0, now),
            };
            let mut document = SearchDocument::of(&announced.card);
            document.stage = records.attributes(&announced.card).stage;
            document.pinned = records.pins(&announced.card);
            if self.index.add(&document) {
                other_names |= known.is_none();
                let record = record.cloned();
                let known = KnownCard { announced: Arc::clone(announced), record, changes, since };
                self.known.insert(name.clone(), known);
            }
        }
        if other_names {
            self.lookalikes = Lookalikes::new(self.known.keys().map(String::as_str));
        }
    }

    /// Returns the entry of a card. A name that looks like it is named only if the caller may see it.
    fn entry(&self, known: &KnownCard, visible: &impl Fn(&AgentCard) -> bool) -> CatalogueEntry {
        let card = &known.announced.card;
        let resembles = self.lookalikes.of(&card.name, |other| {
            self.known.get(other).is_some_and(|known| visible(&known.announced.card))
        });
        let mut entry = entry_of(card, known.record.as_deref());
        entry.resembles = resembles.map(str::to_owned);
        entry
    }
}

impl KnownCard {
    fn name(&self) -> &str {
        &self.announced.card.name
    }

    /// Returns whether an announcement repeats this card.
    fn has_card(&self, announced: &Arc<AnnouncedCard>) -> bool {
        Arc::ptr_eq(&self.announced, announced) || self.announced.raw == announced.raw
    }

    /// Returns whether neither the card nor its record has changed.
    fn is_same(&self, announced: &Arc<AnnouncedCard>, record: Option<&Arc<CatalogueRecord>>) -> bool {
        self.has_card(announced) && self.record.as_ref() == record
    }
}

/// Returns the names of the cards that a query selects. Lists of agents and workflows apply it to their rows,
/// so that they agree with searches.
pub(crate) fn selected_names(
    cards: impl Iterator<Item = AgentCard>,
    records: &RecordSet,
    query: &CatalogueQuery,
) -> BTreeSet<String> {
    let cards: Vec<Arc<AnnouncedCard>> =
        cards.map(|card| Arc::new(AnnouncedCard { card, raw: Bytes::new() })).collect();
    let query = CatalogueQuery { hidden: true, after: None, ..query.clone() };
    let page = CatalogueIndex::default().find_up_to(usize::MAX, (&cards, records), &query, |_| true);
    page.entries.into_iter().map(|entry| entry.name).collect()
}

impl CatalogueQuery {
    /// Returns whether the query selects entries, instead of all.
    pub fn selects(&self) -> bool {
        let texts = [&self.q, &self.maintainer, &self.label, &self.tag];
        texts.into_iter().flatten().any(|text| !text.trim().is_empty())
            || self.kind.is_some()
            || self.stage.is_some()
    }

    /// Returns whether a card passes the filters; `q`, `hidden` and the page are not among them.
    pub fn admits(&self, card: &AgentCard, records: &RecordSet) -> bool {
        let catalogue = records.attributes(card);
        let kind = match card::kind(card) {
            AgentKind::Agent => CatalogueKind::Agent,
            AgentKind::Workflow => CatalogueKind::Workflow,
        };
        let has_label = |label: &str| match label.split_once('=') {
            Some((key, value)) => catalogue.labels.get(key).is_some_and(|own| own == value),
            None => catalogue.labels.contains_key(label),
        };
        self.kind.is_none_or(|wanted| wanted == kind)
            && self.stage.is_none_or(|wanted| wanted == catalogue.stage)
            && given(self.maintainer.as_ref())
                .is_none_or(|wanted| catalogue.maintainer.as_deref() == Some(wanted))
            && given(self.label.as_ref()).is_none_or(has_label)
            && given(self.tag.as_ref())
                .is_none_or(|tag| card.skills.iter().any(|skill| skill.tags.iter().any(|one| one == tag)))
    }
}

/// Returns a filter's text; forms send empty fields.
fn given(filter: Option<&String>) -> Option<&str> {
    filter.map(String::as_str).filter(|text| !text.is_empty())
}

impl RecordSet {
    /// Returns the entry of a card, without the name that it resembles.
    pub fn entry(&self, card: &AgentCard) -> CatalogueEntry {
        entry_of(card, self.get(&card.name).map(AsRef::as_ref))
    }
}

/// Returns the entry of a card; what its record sets takes precedence.
fn entry_of(card: &AgentCard, record: Option<&CatalogueRecord>) -> CatalogueEntry {
    let of_author = Catalogue::of(card);
    let catalogue = record.map_or_else(|| of_author.clone(), |record| record.merged(of_author.clone()));
    let mut tags: Vec<String> = card.skills.iter().flat_map(|skill| skill.tags.iter().cloned()).collect();
    tags.sort();
    tags.dedup();
    let of_skills = card.skills.iter().flat_map(|skill| skill.examples.iter().flatten().cloned());
    CatalogueEntry {
        name: card.name.clone(),
        kind: card::kind(card),
        stage: catalogue.stage,
        replaced_by: catalogue.replaced_by,
        description: shortened(&card.description),
        maintainer: catalogue.maintainer,
        labels: catalogue.labels,
        links: catalogue.links,
        tags,
        examples: catalogue.examples.into_iter().chain(of_skills).collect(),
        side_effects: catalogue.side_effects,
        resembles: None,
        pinned: record.is_some_and(|record| record.pinned),
        hidden: record.is_some_and(|record| record.hidden),
        input_schema: None,
        output_schema: None,
        found: None,
    }
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(MAX_DESCRIPTION) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use sinew_protocol::card::Announcement;

    use super::*;

    fn announced(name: &str, description: &str, catalogue: Catalogue) -> Arc<AnnouncedCard> {
        let (name, description) = (name.to_owned(), description.to_owned());
        let card = Announcement { name, description, catalogue, ..Announcement::default() }.card("test");
        let raw = serde_json::to_vec(&card).unwrap().into();
        Arc::new(AnnouncedCard { card, raw })
    }

    fn names(page: &CataloguePage) -> Vec<&str> {
        page.entries.iter().map(|entry| entry.name.as_str()).collect()
    }

    fn query(text: &str) -> CatalogueQuery {
        CatalogueQuery { q: Some(text.to_owned()), ..CatalogueQuery::default() }
    }

    #[test]
    fn the_catalogue_is_listed_filtered_and_searched() {
        let label = |team: &str| Catalogue {
            labels: BTreeMap::from([("team".to_owned(), team.to_owned())]),
            maintainer: Some(format!("team-{team}")),
            ..Catalogue::default()
        };
        let deprecated =
            Catalogue { stage: Stage::Deprecated, replaced_by: Some("refund".into()), ..label("a") };
        let all = [
            announced("refund", "Refunds an order.", label("a")),
            announced("refund-old", "Refunds an order.", deprecated),
            announced("orders", "Ships an order.", label("b")),
        ];
        let index = CatalogueIndex::default();
        let none = RecordSet::default();
        let find = |query: CatalogueQuery| index.find((&all, &none), &query, |_| true);
        assert_eq!(names(&find(CatalogueQuery::default())), ["orders", "refund", "refund-old"]);
        let first = find(CatalogueQuery { limit: Some(2), ..CatalogueQuery::default() });
        assert_eq!((first.total, first.next.as_deref()), (3, Some("refund")));
        let rest = find(CatalogueQuery { after: first.next, ..CatalogueQuery::default() });
        assert_eq!(names(&rest), ["refund-old"]);

        let found = find(query("refund an order"));
        assert_eq!(names(&found), ["refund", "orders", "refund-old"]);
        assert_eq!(found.entries[2].replaced_by.as_deref(), Some("refund"));
        let of_team = CatalogueQuery { label: Some("team=b".into()), ..query("refund an order") };
        assert_eq!(names(&find(of_team)), ["orders"]);
        let stage = CatalogueQuery { stage: Some(Stage::Deprecated), ..CatalogueQuery::default() };
        assert_eq!(names(&find(stage)), ["refund-old"]);
        let maintainer = CatalogueQuery { maintainer: Some("team-b".into()), ..CatalogueQuery::default() };
        assert_eq!(names(&find(maintainer)), ["orders"]);
        let kind = CatalogueQuery { kind: Some(CatalogueKind::Workflow), ..CatalogueQuery::default() };
        assert_eq!(names(&find(kind)), Vec::<&str>::new());
    }

    #[test]
    fn hidden_entries_are_not_named() {
        let all = [
            announced("orders", "Ships an order.", Catalogue::default()),
            announced("0rders", "Ships an order.", Catalogue::default()),
        ];
        let index = CatalogueIndex::default();
        let none = RecordSet::default();
        let page = index.find((&all, &none), &query("order"), |_| true);
        assert_eq!(page.entries[0].resembles.as_deref(), Some("0rders"));
        let page = index.find((&all, &none), &query("order"), |card| card.name == "orders");
        assert_eq!((names(&page), page.entries[0].resembles.as_deref()), (vec!["orders"], None));
    }

    #[test]
    fn a_card_that_changes_all_the_time_keeps_its_text() {
        let (index, none) = (CatalogueIndex::default(), RecordSet::default());
        for version in 0..=MAX_CHANGES {
            let card = announced("flood", &format!("version{version}"), Catalogue::default());
            index.find((&[card], &none), &query("x"), |_| true);
        }
        let later = announced("flood", "lemons", Catalogue::default());
        assert_eq!(names(&index.find((&[later], &none), &query("lemons"), |_| true)), Vec::<&str>::new());
        assert_eq!(
            names(&index.find((&[], &none), &CatalogueQuery::default(), |_| true)),
            Vec::<&str>::new()
        );
    }

    #[test]
    fn records_pin_hide_and_deprecate() {
        let all = ["a", "b", "c", "d"].map(|name| announced(name, "Refunds an order.", Catalogue::default()));
        let record = |name: &str| CatalogueRecord { name: name.to_owned(), ..CatalogueRecord::default() };
        let records: RecordSet = [
            CatalogueRecord { hidden: true, ..record("a") },
            CatalogueRecord {
                stage: Some(Stage::Deprecated),
                pinned: true,
                replaced_by: Some("d".to_owned()),
                ..record("b")
            },
            CatalogueRecord { pinned: true, ..record("d") },
        ]
        .into_iter()
        .collect();
        let index = CatalogueIndex::default();
        // The same index before and after the records: a changed record changes the ranking.
        let none = RecordSet::default();
        assert_eq!(names(&index.find((&all, &none), &query("refund"), |_| true)), ["a", "b", "c", "d"]);
        let found = index.find((&all, &records), &query("refund"), |_| true);
        assert_eq!(names(&found), ["d", "c", "b"]);
        assert_eq!(found.entries[2].replaced_by.as_deref(), Some("d"));
        assert_eq!(
            all.iter().map(|one| records.pins(&one.card)).collect::<Vec<_>>(),
            [false, false, false, true]
        );
        let listed = CatalogueQuery { hidden: true, ..CatalogueQuery::default() };
        let listed = index.find((&all, &records), &listed, |_| true);
        assert_eq!((names(&listed), listed.entries[0].hidden), (vec!["a", "b", "c", "d"], true));
        let deprecated = CatalogueQuery { stage: Some(Stage::Deprecated), ..CatalogueQuery::default() };
        assert_eq!(names(&index.find((&all, &records), &deprecated, |_| true)), ["b"]);
    }
}

//! Searches over a small mesh.

use proptest::prelude::*;
use sinew_protocol::card::Announcement;
use sinew_protocol::catalogue::{Catalogue, Stage};
use sinew_search::{Field, SearchDocument, SearchIndex, SearchQuery, SearchResults};

fn document(name: &str, description: &str, examples: &[&str]) -> SearchDocument {
    SearchDocument {
        name: name.to_owned(),
        description: description.to_owned(),
        examples: examples.iter().map(|&one| one.to_owned()).collect(),
        ..SearchDocument::default()
    }
}

fn documents() -> Vec<SearchDocument> {
    vec![
        document(
            "refund",
            "Refunds an order after a person approved it.",
            &["give the customer the money back"],
        ),
        SearchDocument { stage: Stage::Deprecated, ..document("refund_legacy", "Refunds an order.", &[]) },
        document("orders", "Takes an order, reserves stock and ships it.", &["ship order A-17"]),
        document("forecast", "Weather for the next days in a city.", &[]),
        document("salaries", "Pays the salaries of employees.", &["pay everybody"]),
    ]
}

fn index(documents: &[SearchDocument]) -> SearchIndex {
    let mut index = SearchIndex::default();
    for document in documents {
        assert!(index.add(document));
    }
    index
}

fn search(index: &SearchIndex, text: &str) -> SearchResults {
    index.search(&SearchQuery { text, limit: 10 }, |_| true)
}

fn names(results: &SearchResults) -> Vec<&str> {
    results.hits.iter().map(|hit| hit.name.as_str()).collect()
}

#[test]
fn entries_are_found_by_words_of_their_users() {
    let index = index(&documents());
    for (text, first) in [
        ("refund an order", "refund"),
        ("I want my money back", "refund"),
        ("how is the weather", "forecast"),
        ("shipping orders", "orders"),
        ("PAY_SALARY", "salaries"),
    ] {
        assert_eq!(names(&search(&index, text)).first(), Some(&first), "{text}");
    }
    assert_eq!(search(&index, "quantum chromodynamics"), SearchResults::default());
    assert_eq!(search(&index, "").hits, []);
}

#[test]
fn hits_say_why_they_were_found() {
    let index = index(&documents());
    let results = search(&index, "refund an oder");
    assert_eq!(results.corrections, [("oder".to_owned(), "order".to_owned())]);
    let hit = &results.hits[0];
    assert_eq!(hit.name, "refund");
    assert!(hit.matches.contains(&(Field::Name, "refund".to_owned())), "{:?}", hit.matches);
    assert!(hit.matches.contains(&(Field::Description, "order".to_owned())), "{:?}", hit.matches);
    assert!((1..=100).contains(&hit.score), "{}", hit.score);
}

#[test]
fn a_hit_names_the_skill_that_fits() {
    let mut card = Announcement { name: "Clerk".to_owned(), ..Announcement::default() }.card("test");
    let mut skill = card.skills[0].clone();
    (skill.id, skill.name, skill.description) =
        ("cancel".into(), "Cancel".into(), "Cancels a booking".into());
    card.skills.push(skill);
    let index = index(&[SearchDocument::of(&card)]);
    assert_eq!(search(&index, "cancel my booking").hits[0].skill.as_deref(), Some("cancel"));
}

#[test]
fn deprecated_entries_rank_last() {
    let results = search(&index(&documents()), "refund an order");
    assert_eq!(names(&results), ["refund", "orders", "refund_legacy"]);
    assert_eq!(results.hits[2].stage, Stage::Deprecated);
}

#[test]
fn catalogue_attributes_are_searched() {
    let catalogue = Catalogue {
        aliases: vec!["reimburse".to_owned()],
        examples: vec!["the parcel never came".to_owned()],
        ..Catalogue::default()
    };
    let schema = serde_json::json!({"properties": {"iban": {"description": "account number"}}});
    let card = Announcement {
        name: "refund".to_owned(),
        input_schema: Some(schema),
        catalogue,
        ..Announcement::default()
    };
    let index = index(&[SearchDocument::of(&card.card("test"))]);
    for text in ["reimburse", "parcel", "iban", "account"] {
        assert_eq!(names(&search(&index, text)), ["refund"], "{text}");
    }
}

#[test]
fn repetition_does_not_win() {
    let mut all = documents();
    let stuffed = "refund order ".repeat(200);
    all.push(document("spam", &stuffed, &[&stuffed, &stuffed, &stuffed]));
    assert_eq!(names(&search(&index(&all), "refund order")).first(), Some(&"refund"));
}

#[test]
fn other_languages_are_found() {
    let index = index(&[
        document("bestellung", "Nimmt eine Bestellung an und prüft die Rückzahlung.", &[]),
        document("tuikuan", "为客户的订单退款", &[]),
        document("konto", "Gleicht ein Konto aus.", &[]),
    ]);
    assert_eq!(names(&search(&index, "rueckzahlung Rückzahlung")), ["bestellung"]);
    assert_eq!(names(&search(&index, "订单退款")), ["tuikuan"]);
    // A word of two known words is split.
    assert_eq!(names(&search(&index, "Bestellungkonto")).len(), 2);
}

#[test]
fn replaced_entries_leave_nothing_behind() {
    let mut index = index(&documents());
    index.add(&document("refund", "Answers questions about contracts.", &[]));
    assert_eq!(names(&search(&index, "money back")), Vec::<&str>::new());
    assert_eq!(names(&search(&index, "contracts")), ["refund"]);
    for document in documents() {
        index.remove(&document.name);
    }
    assert!(index.is_empty());
    assert_eq!(search(&index, "refund order contracts weather"), SearchResults::default());
}

proptest! {
    /// A caller's results are equal on a mesh without the entries that are hidden from it.
    #[test]
    fn hidden_entries_have_no_influence(
        hidden in proptest::collection::vec(any::<bool>(), 5),
        text in "(refund|oder|order|pay|wether|money|ship|city|salaris| ){1,6}",
    ) {
        let all = documents();
        let seen: Vec<SearchDocument> =
            all.iter().zip(&hidden).filter(|(_, hidden)| !**hidden).map(|(one, _)| one.clone()).collect();
        let query = SearchQuery { text: &text, limit: 10 };
        let limited = index(&all).search(&query, |name| seen.iter().any(|one| one.name == name));
        prop_assert_eq!(limited, index(&seen).search(&query, |_| true));
    }

    /// The order in which entries arrive, and entries that came and went, change no result.
    #[test]
    fn arrival_has_no_influence(
        order in Just(documents()).prop_shuffle(),
        text in "(refund|oder|order|pay|wether|money|ship|city|salaris| ){1,6}",
    ) {
        let mut later = index(&order);
        later.add(&document("gone", "Refunds orders and pays salaries.", &[]));
        later.remove("gone");
        prop_assert_eq!(search(&later, &text), search(&index(&documents()), &text));
    }
}

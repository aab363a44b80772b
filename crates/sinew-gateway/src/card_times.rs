//! When a gateway first showed a card, for clients that ask by time.

use std::time::SystemTime;

/// Cards whose time is kept.
const MAX_CARDS: u64 = 10_000;

/// Times of cards, by tag. Another gateway has seen a card at another time: the tag tells whether it is the same.
#[derive(Debug)]
pub(crate) struct CardTimes(moka::sync::Cache<String, SystemTime>);

impl Default for CardTimes {
    fn default() -> Self {
        Self(moka::sync::Cache::new(MAX_CARDS))
    }
}

impl CardTimes {
    /// When the card with this tag was first shown: now, if it never was.
    pub(crate) fn first_shown(&self, tag: &str) -> SystemTime {
        if let Some(known) = self.0.get(tag) {
            return known;
        }
        self.0.get_with(tag.to_owned(), SystemTime::now)
    }
}

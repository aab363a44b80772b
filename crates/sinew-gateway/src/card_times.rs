//! Time at which a gateway first served a card, for conditional requests by time.

use std::time::SystemTime;

/// Maximum number of cards whose time is cached.
const MAX_CARDS: u64 = 10_000;

/// Times of cards, by tag. Times differ between gateways; the tag identifies the card.
#[derive(Debug)]
pub(crate) struct CardTimes(moka::sync::Cache<String, SystemTime>);

impl Default for CardTimes {
    fn default() -> Self {
        Self(moka::sync::Cache::new(MAX_CARDS))
    }
}

impl CardTimes {
    /// Returns when the card with this tag was first served, or now if it is new.
    pub(crate) fn first_shown(&self, tag: &str) -> SystemTime {
        if let Some(known) = self.0.get(tag) {
            return known;
        }
        self.0.get_with(tag.to_owned(), SystemTime::now)
    }
}

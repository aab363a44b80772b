//! The embedded fonts: how wide text is, and what PNG text is set in.
//!
//! DejaVu Sans is embedded because a container often has no fonts at all. Verdana, its twin on
//! desktops, is next in the SVG's font list, so text fits its box there too.

use std::sync::{Arc, OnceLock};

use resvg::usvg::fontdb;
use skrifa::instance::{LocationRef, Size};
use skrifa::{FontRef, MetadataProvider};
use unicode_width::UnicodeWidthChar;

/// Families of all drawings' text, widest first: what fits the first fits the others.
pub(crate) const FAMILIES: &str = "DejaVu Sans, Verdana, Geneva, sans-serif";

/// Width of one line of text in px, in the embedded font.
pub(crate) fn width(text: &str, size: f64, bold: bool) -> f64 {
    let data = if bold { dejavu::sans::bold() } else { dejavu::sans::regular() };
    let Ok(font) = FontRef::new(data) else {
        return text.chars().map(|c| guess(c) * size).sum();
    };
    let (charmap, metrics) = (font.charmap(), font.glyph_metrics(Size::unscaled(), LocationRef::default()));
    let units = f64::from(font.metrics(Size::unscaled(), LocationRef::default()).units_per_em.max(1));
    text.chars()
        .map(|c| match charmap.map(c).and_then(|glyph| metrics.advance_width(glyph)) {
            Some(advance) => f64::from(advance) / units * size,
            None => guess(c) * size,
        })
        .sum()
}

/// Width in em of a character the embedded font lacks: full for wide scripts, most of one otherwise.
fn guess(c: char) -> f64 {
    match c.width() {
        Some(0) => 0.0,
        Some(2) => 1.05,
        _ => 0.75,
    }
}

fn covers(text: &str) -> bool {
    FontRef::new(dejavu::sans::regular()).is_ok_and(|font| {
        let map = font.charmap();
        text.chars().all(|c| c.is_whitespace() || map.map(c).is_some())
    })
}

/// Fonts to set `text` in: the embedded ones, and the system's only where these lack a character,
/// so that a drawing looks the same on every machine wherever that is possible.
pub(crate) fn database(text: &str) -> Arc<fontdb::Database> {
    static EMBEDDED: OnceLock<Arc<fontdb::Database>> = OnceLock::new();
    static WITH_SYSTEM: OnceLock<Arc<fontdb::Database>> = OnceLock::new();
    if covers(text) {
        Arc::clone(EMBEDDED.get_or_init(|| Arc::new(embedded())))
    } else {
        Arc::clone(WITH_SYSTEM.get_or_init(|| {
            let mut fonts = embedded();
            fonts.load_system_fonts();
            Arc::new(fonts)
        }))
    }
}

fn embedded() -> fontdb::Database {
    let mut fonts = fontdb::Database::new();
    for data in [dejavu::sans::regular(), dejavu::sans::bold()] {
        fonts.load_font_source(fontdb::Source::Binary(Arc::new(data)));
    }
    fonts.set_sans_serif_family("DejaVu Sans");
    fonts
}

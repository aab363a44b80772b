//! The embedded fonts, to measure text and to render PNG.
//!
//! DejaVu Sans is embedded because containers often have no fonts. Verdana, which has similar
//! metrics, is next in the SVG's font list, so text fits its box on desktops too.

use std::sync::{Arc, OnceLock};

use resvg::usvg::fontdb;
use skrifa::instance::{LocationRef, Size};
use skrifa::{FontRef, MetadataProvider};
use unicode_width::UnicodeWidthChar;

/// Font families of drawings, widest first: text that fits with the first fits with the others.
pub(crate) const FAMILIES: &str = "DejaVu Sans, Verdana, Geneva, sans-serif";

/// Returns the width of a line of text in px, in the embedded font.
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

/// Estimates the width in em of a character that the embedded font lacks, by its script.
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

/// Returns the fonts for `text`: the embedded ones, and those of the system only if these lack a
/// character, so that drawings look the same on all machines where possible.
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

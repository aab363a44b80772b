//! Rasterises the SVG to PNG with embedded fonts.

use resvg::{tiny_skia, usvg};

use crate::model::{DrawError, Drawing};
use crate::theme::DrawingTheme;
use crate::{fonts, paint};

/// Maximum pixels of a picture, because each needs four bytes and viewers have limits.
const MAX_PIXELS: u64 = 100_000_000;

/// Returns the drawing as PNG bytes with `scale` pixels per px of the SVG; 2.0 is readable everywhere.
pub fn png(drawing: &Drawing, scale: f32) -> Result<Vec<u8>, DrawError> {
    png_in(drawing, scale, DrawingTheme::Light)
}

/// As [`png`], in a theme.
pub fn png_in(drawing: &Drawing, scale: f32, theme: DrawingTheme) -> Result<Vec<u8>, DrawError> {
    let svg = paint::svg_in(drawing, theme)?;
    let raster = |reason: String| DrawError::Raster { reason };
    let options = usvg::Options { fontdb: fonts::database(&svg), ..usvg::Options::default() };
    let tree = usvg::Tree::from_str(&svg, &options).map_err(|e| raster(e.to_string()))?;
    let side = |length: f32| {
        if scale.is_finite() { (f64::from(length) * f64::from(scale)).ceil().max(0.0) } else { 0.0 }
    };
    let (width, height) = (side(tree.size().width()), side(tree.size().height()));
    #[expect(clippy::cast_sign_loss, reason = "never negative: max(0.0) above")]
    let (width, height) = (width as u64, height as u64);
    let refused = DrawError::Pixels { width, height };
    if width.saturating_mul(height) > MAX_PIXELS {
        return Err(refused);
    }
    let (Ok(columns), Ok(rows)) = (u32::try_from(width), u32::try_from(height)) else {
        return Err(refused);
    };
    let mut pixels = tiny_skia::Pixmap::new(columns, rows).ok_or(refused)?;
    resvg::render(&tree, tiny_skia::Transform::from_scale(scale, scale), &mut pixels.as_mut());
    pixels.encode_png().map_err(|e| raster(e.to_string()))
}

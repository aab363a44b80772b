//! Themes. Drawings are painted in light colours, which the dark theme replaces by their counterparts.

/// Background and colours of a picture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DrawingTheme {
    /// Dark text on white.
    #[default]
    Light,
    /// Light text on a dark background.
    Dark,
}

/// Colours of the light theme with their dark counterparts.
const DARK: [(&str, &str); 32] = [
    ("#ffffff", "#0d1117"),
    ("#424a53", "#c9d1d9"),
    ("#eef1fb", "#1b2238"),
    ("#5a6ea8", "#8fa3dd"),
    ("#1f2328", "#e6edf3"),
    ("#eef6f7", "#12262a"),
    ("#4a808a", "#7fb8c4"),
    ("#fbf5e6", "#2b2412"),
    ("#94783a", "#cdb06c"),
    ("#f6f8fa", "#161b22"),
    ("#57606a", "#9aa4af"),
    ("#d0d7de", "#30363d"),
    ("#afb8c1", "#484f58"),
    ("#6e7781", "#8b949e"),
    ("#32383f", "#c9d1d9"),
    ("#8c959f", "#6e7681"),
    ("#dcedfb", "#0c2d48"),
    ("#0072b2", "#58b0e3"),
    ("#04304b", "#cfe8fa"),
    ("#dcf3ea", "#0d3326"),
    ("#00795a", "#3fb68e"),
    ("#053d2f", "#c8f0e1"),
    ("#fde4d7", "#471f0b"),
    ("#c24e00", "#f08a4b"),
    ("#571f00", "#fde0d0"),
    ("#f3f4f6", "#1c2128"),
    ("#a3abb3", "#6e7681"),
    ("#6a737c", "#9aa4af"),
    ("#e4e7ea", "#2a2f36"),
    ("#fdf1cc", "#3d2f05"),
    ("#b07a00", "#e3b341"),
    ("#4d3500", "#fbe7b0"),
];

impl DrawingTheme {
    /// Converts an SVG from light colours to this theme. Replaces only attributes: quotes in texts are
    /// entities, so no text of a workflow can match.
    pub(crate) fn apply(self, svg: String) -> String {
        if self == Self::Light {
            return svg;
        }
        let mut out = String::with_capacity(svg.len());
        let mut rest = svg.as_str();
        while let Some(at) = rest.find("=\"#") {
            let (before, color) = rest.split_at(at + 2);
            out.push_str(before);
            let known = DARK.iter().find(|(light, _)| color.starts_with(light));
            let (light, shown) = known.map_or(("#", "#"), |(light, dark)| (*light, *dark));
            out.push_str(shown);
            rest = &color[light.len()..];
        }
        out.push_str(rest);
        out
    }
}

/// Returns CSS rules that apply the dark theme to inline light pictures below the selector `scope`, for
/// pages that follow the reader's preference.
pub fn dark_rules(scope: &str) -> String {
    let rules = DARK.iter().flat_map(|(light, dark)| {
        ["fill", "stroke"].map(|paint| format!("{scope} [{paint}=\"{light}\"]{{{paint}:{dark}}}\n"))
    });
    rules.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Status;

    #[test]
    fn rules_for_pages_replace_every_colour() {
        let rules = dark_rules(".drawing");
        for (light, dark) in DARK {
            assert!(rules.contains(&format!(".drawing [stroke=\"{light}\"]{{stroke:{dark}}}\n")), "{light}");
        }
        assert_eq!(rules.lines().count(), 2 * DARK.len());
    }

    /// Returns the relative luminance of WCAG 2.
    fn luminance(color: &str) -> f64 {
        let part = |at: usize| {
            let value = f64::from(u8::from_str_radix(&color[at..at + 2], 16).unwrap()) / 255.0;
            if value <= 0.039_28 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
        };
        0.2126 * part(1) + 0.7152 * part(3) + 0.0722 * part(5)
    }

    fn contrast(one: &str, other: &str) -> f64 {
        let (one, other) = (luminance(one), luminance(other));
        (one.max(other) + 0.05) / (one.min(other) + 0.05)
    }

    #[test]
    fn every_status_can_be_read_in_both_themes() {
        let dark = |color: &str| DARK.iter().find(|(light, _)| *light == color).expect(color).1.to_owned();
        for status in Status::ALL {
            let look = status.look();
            for [fill, text, stroke, ground] in [
                [look.fill, look.text, look.stroke, "#ffffff"].map(str::to_owned),
                [look.fill, look.text, look.stroke, "#ffffff"].map(dark),
            ] {
                assert!(contrast(&fill, &text) >= 4.3, "{} {fill} {text}", look.word);
                assert!(contrast(&stroke, &ground) >= 2.0, "{} {stroke} {ground}", look.word);
            }
        }
    }

    #[test]
    fn only_attributes_change() {
        let svg =
            "<rect fill=\"#ffffff\" stroke=\"#123456\"/><text>a=&quot;#ffffff #ffffff</text>".to_owned();
        let dark = DrawingTheme::Dark.apply(svg.clone());
        assert_eq!(dark, svg.replacen("#ffffff", "#0d1117", 1));
        assert_eq!(DrawingTheme::Light.apply(svg.clone()), svg);
    }
}

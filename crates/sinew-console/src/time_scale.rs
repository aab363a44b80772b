//! The scale of a time chart: a range of milliseconds, optionally without idle gaps.

/// A gap is removed if it is at least this fraction of the range: one in `GAP_PARTS`.
const GAP_PARTS: u64 = 20;
/// Number of labels.
const TICKS: u64 = 5;

/// Maps times to positions in a chart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TimeScale {
    /// Shown intervals, in order, without overlap. Never empty.
    parts: Vec<(u64, u64)>,
    /// Starts of the intervals that follow a gap.
    gaps: Vec<u64>,
}

impl TimeScale {
    /// Shows a range completely.
    pub(crate) fn whole((from, to): (u64, u64)) -> Self {
        Self { parts: vec![(from, to.max(from.saturating_add(1)))], gaps: Vec::new() }
    }

    /// Shows a range without long gaps that contain no span.
    pub(crate) fn cut(range: (u64, u64), spans: &[(u64, u64)]) -> Self {
        let whole = Self::whole(range);
        let (from, to) = whole.range();
        let min_gap = (to - from).div_ceil(GAP_PARTS).max(1);
        let mut busy: Vec<(u64, u64)> = spans
            .iter()
            .map(|(begin, end)| ((*begin).max(from), (*end).min(to)))
            .filter(|(begin, end)| begin <= end)
            .collect();
        busy.sort_unstable();
        let mut parts: Vec<(u64, u64)> = Vec::new();
        for (begin, end) in busy {
            match parts.last_mut() {
                Some(last) if begin.saturating_sub(last.1) < min_gap => last.1 = last.1.max(end),
                _ => parts.push((begin, end.max(begin.saturating_add(1)))),
            }
        }
        let gaps = parts.iter().skip(1).map(|part| part.0).collect();
        if parts.is_empty() { whole } else { Self { parts, gaps } }
    }

    /// First and last shown time.
    pub(crate) fn range(&self) -> (u64, u64) {
        let first = self.parts.first().map_or(0, |part| part.0);
        (first, self.parts.last().map_or(first, |part| part.1))
    }

    /// Total shown milliseconds.
    fn length(&self) -> u64 {
        self.parts.iter().map(|(from, to)| to - from).sum::<u64>().max(1)
    }

    /// Position of a time, from 0 to 1. Times outside the range and in gaps are at the nearest
    /// shown position.
    pub(crate) fn place(&self, at: u64) -> f64 {
        let before: u64 = self.parts.iter().map(|(from, to)| at.clamp(*from, *to) - from).sum();
        before as f64 / self.length() as f64
    }

    /// Returns true if any part of a span is shown.
    pub(crate) fn shows(&self, from: u64, to: u64) -> bool {
        self.parts.iter().any(|part| from <= part.1 && to >= part.0)
    }

    pub(crate) fn gaps(&self) -> &[u64] {
        &self.gaps
    }

    pub(crate) fn has_gaps(&self) -> bool {
        !self.gaps.is_empty()
    }

    /// Times at equal distances in the chart.
    pub(crate) fn ticks(&self) -> Vec<u64> {
        (0..TICKS).map(|tick| self.time_at(self.length() * tick / TICKS)).collect()
    }

    /// The time after a number of shown milliseconds.
    fn time_at(&self, mut shown: u64) -> u64 {
        for (from, to) in &self.parts {
            if shown < to - from {
                return from + shown;
            }
            shown -= to - from;
        }
        self.range().1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_places() {
        let whole = TimeScale::whole((100, 300));
        let check = |scale: &TimeScale, at: u64, expected: f64| {
            assert!((scale.place(at) - expected).abs() < 1e-9, "{at}: {}", scale.place(at));
        };
        for (at, expected) in [(0, 0.0), (100, 0.0), (200, 0.5), (300, 1.0), (900, 1.0)] {
            check(&whole, at, expected);
        }
        let cut = TimeScale::cut((0, 1_000_000), &[(0, 100), (900_000, 900_100), (50, 80)]);
        assert_eq!((cut.parts.clone(), cut.gaps()), (vec![(0, 100), (900_000, 900_100)], &[900_000][..]));
        for (at, expected) in [(50, 0.25), (500_000, 0.5), (900_050, 0.75)] {
            check(&cut, at, expected);
        }
        assert_eq!(cut.ticks(), [0, 40, 80, 900_020, 900_060]);
        assert!(cut.shows(80, 500) && !cut.shows(200, 800_000));
        // Empty ranges divide by one, not by zero.
        for empty in [
            TimeScale::whole((5, 5)),
            TimeScale::whole((9, 3)),
            TimeScale::cut((0, 0), &[]),
            TimeScale::cut((u64::MAX, u64::MAX), &[(1, u64::MAX)]),
        ] {
            assert!(empty.place(5).is_finite() && empty.ticks().len() == 5, "{empty:?}");
        }
    }
}

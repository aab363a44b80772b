//! Patterns of workflow files: compiled once, matched at a bounded cost.
//!
//! The engine matches while it decides, so every match must be short for any pattern and string. A
//! pattern that the linear engine supports is matched there; a pattern with look-around or back
//! references backtracks, in limited steps.

use sinew_protocol::code;
use std::sync::{Arc, LazyLock};

use sinew_protocol::Fault;

/// Longest pattern.
const MAX_PATTERN_BYTES: usize = 4 << 10;
/// Sizes of a compiled pattern, in bytes: the smallest that fits determines the cost per byte of
/// input.
const PROGRAM_SIZES: [usize; 4] = [4 << 10, 16 << 10, 64 << 10, 256 << 10];
/// Bytes of a compiled pattern that one step covers.
const PROGRAM_BYTES_PER_STEP: u64 = 64;
/// Maximum steps of all matches of a rule or expression: less than a second.
const MAX_STEPS: u64 = 500_000_000;
/// Maximum backtracks of a match in a short string and in a longer one: each may be followed by a
/// scan of the string.
const MAX_BACKTRACKS: [usize; 2] = [100_000, 10_000];
/// The same for a pattern that repeats scans without a backtrack.
const MAX_NESTED_BACKTRACKS: usize = 1_000;
/// Maximum length of a short string, in bytes.
const SHORT_TEXT_BYTES: usize = 1 << 10;
/// Maximum states of a pattern that may use all its backtracks; a pattern with more states may use
/// fewer.
const SIMPLE_STATES: u64 = 16;
/// States of a pattern that one step covers, in a match that backtracks.
const STATES_PER_STEP: u64 = 4;
/// Assumed cost of a match that backtracks, in steps, in addition to the cost of its input.
const BACKTRACK_STEPS: u64 = 1_000_000;
/// Maximum memory that a pattern, or a scan of a pattern that backtracks, keeps between matches, in
/// bytes.
const MAX_DFA_BYTES: usize = 64 << 10;
/// Maximum memory of all cached patterns, in bytes.
const MAX_CACHE_BYTES: u64 = 16 << 20;

type CompileResult = Result<Arc<MatchPattern>, String>;

static PATTERNS: LazyLock<moka::sync::Cache<String, CompileResult>> = LazyLock::new(|| {
    moka::sync::Cache::builder()
        .max_capacity(MAX_CACHE_BYTES)
        .weigher(|text: &String, compiled: &CompileResult| weight(text, compiled))
        .build()
});

/// Returns the maximum memory of a pattern, in bytes.
fn weight(text: &str, compiled: &CompileResult) -> u32 {
    let compiled = match compiled {
        Ok(pattern) => pattern.bytes(),
        Err(problem) => problem.len(),
    };
    u32::try_from(text.len().saturating_add(compiled)).unwrap_or(u32::MAX)
}

/// A compiled pattern.
#[derive(Debug)]
pub(crate) enum MatchPattern {
    /// Matched in linear time; with the size of the program in bytes.
    Linear(regex::Regex, usize),
    /// Matched by backtracking.
    Backtracking(BacktrackingPattern),
}

/// A pattern that is matched by backtracking.
#[derive(Debug)]
pub(crate) struct BacktrackingPattern {
    short_texts: fancy_regex::Regex,
    long_texts: fancy_regex::Regex,
    shape: PatternShape,
    /// Maximum memory of one scan, in bytes.
    scan_bytes: usize,
}

/// Remaining steps for the matches of one rule or expression.
#[derive(Clone, Debug)]
pub(crate) struct MatchBudget(u64);

impl Default for MatchBudget {
    fn default() -> Self {
        Self(MAX_STEPS)
    }
}

impl MatchBudget {
    /// Consumes `steps`; fails if fewer remain.
    pub(crate) fn pay(&mut self, steps: u64) -> Result<(), Fault> {
        self.0 = self.0.checked_sub(steps).ok_or_else(|| too_costly("the rule compares too much data"))?;
        Ok(())
    }
}

fn too_costly(text: &str) -> Fault {
    Fault::failure(code::RULE_TOO_COSTLY.as_str(), text).with_retryable(false)
}

impl MatchPattern {
    /// Returns the compiled pattern, from the cache if possible. The error is the reason why the
    /// pattern is not usable.
    pub(crate) fn of(text: &str) -> Result<Arc<Self>, String> {
        PATTERNS.get_with_by_ref(text, || Self::compile(text).map(Arc::new))
    }

    #[expect(clippy::disallowed_methods, reason = "the place where patterns get their bounds")]
    fn compile(text: &str) -> Result<Self, String> {
        if text.len() > MAX_PATTERN_BYTES {
            return Err(format!("it is longer than {MAX_PATTERN_BYTES} bytes"));
        }
        for size in PROGRAM_SIZES {
            match regex::RegexBuilder::new(text).size_limit(size).dfa_size_limit(MAX_DFA_BYTES).build() {
                Ok(pattern) => return Ok(Self::Linear(pattern, size)),
                Err(regex::Error::CompiledTooBig(_)) => {}
                Err(_) => return Self::compile_backtracking(text),
            }
        }
        Err("it is too large".to_owned())
    }

    fn compile_backtracking(text: &str) -> Result<Self, String> {
        let tree = fancy_regex::Expr::parse_tree(text).map_err(|error| error.to_string())?;
        let shape = PatternShape::of(&tree.expr);
        let mut result = Err("it is too large".to_owned());
        for scan_bytes in PROGRAM_SIZES {
            result = BacktrackingPattern::compile(text, shape, scan_bytes);
            if result.is_ok() {
                break;
            }
        }
        result.map(Self::Backtracking)
    }

    /// Returns the maximum memory of the compiled pattern, in bytes.
    fn bytes(&self) -> usize {
        match self {
            Self::Linear(_, program_bytes) => program_bytes + MAX_DFA_BYTES,
            Self::Backtracking(pattern) => {
                (pattern.scan_bytes + MAX_DFA_BYTES).saturating_mul(2 * (1 + pattern.shape.scans))
            }
        }
    }

    /// Returns whether the linear engine supports the pattern.
    pub(crate) fn is_linear(&self) -> bool {
        matches!(self, Self::Linear(..))
    }

    /// Returns whether a part of the string matches.
    pub(crate) fn is_match(&self, text: &str, budget: &mut MatchBudget) -> Result<bool, Fault> {
        let bytes = text.len() as u64;
        match self {
            Self::Linear(pattern, program_bytes) => {
                budget.pay(bytes.saturating_mul(*program_bytes as u64 / PROGRAM_BYTES_PER_STEP))?;
                Ok(pattern.is_match(text))
            }
            Self::Backtracking(pattern) => {
                budget.pay(pattern.shape.price(bytes))?;
                let sized =
                    if text.len() > SHORT_TEXT_BYTES { &pattern.long_texts } else { &pattern.short_texts };
                sized.is_match(text).map_err(|_| too_costly("the pattern takes too many steps"))
            }
        }
    }
}

impl BacktrackingPattern {
    #[expect(clippy::disallowed_methods, reason = "the place where patterns get their bounds")]
    fn compile(text: &str, shape: PatternShape, scan_bytes: usize) -> Result<Self, String> {
        let build = |max_backtracks| {
            fancy_regex::RegexBuilder::new(text)
                .backtrack_limit(shape.max_backtracks(max_backtracks))
                .delegate_size_limit(scan_bytes)
                .delegate_dfa_size_limit(MAX_DFA_BYTES)
                .build()
                .map_err(|error| error.to_string())
        };
        let [short, long] = MAX_BACKTRACKS;
        Ok(Self { short_texts: build(short)?, long_texts: build(long)?, shape, scan_bytes })
    }
}

/// The parts of a backtracking pattern that determine the cost of a match.
#[derive(Clone, Copy, Debug, Default)]
struct PatternShape {
    /// Maximum number of states that are active at the same time.
    states: u64,
    /// Number of repetitions: each may be a scan of the string with its own program.
    scans: usize,
    /// Whether it has a look-around or another part that discards its backtracks.
    has_cut: bool,
    /// Whether it repeats such a part.
    has_cut_loop: bool,
    /// Whether such a repetition is inside such a part: its cost is not counted as backtracks.
    nested: bool,
}

impl PatternShape {
    fn of(expression: &fancy_regex::Expr) -> Self {
        use fancy_regex::Expr;
        let mut shape = Self { states: 1, ..Self::default() };
        for child in expression.children_iter() {
            let child = Self::of(child);
            shape.states = shape.states.saturating_add(child.states);
            shape.scans += child.scans;
            shape.has_cut |= child.has_cut;
            shape.has_cut_loop |= child.has_cut_loop;
            shape.nested |= child.nested;
        }
        match expression {
            Expr::Literal { val, .. } => shape.states = val.len() as u64,
            Expr::Repeat { lo, hi, .. } => {
                let times = if *hi == usize::MAX { *lo } else { *hi };
                shape.states = shape.states.saturating_mul(times.max(1) as u64);
                shape.scans += 1;
                shape.has_cut_loop |= shape.has_cut;
            }
            Expr::LookAround(..) | Expr::AtomicGroup(_) | Expr::Absent(_) | Expr::Conditional { .. } => {
                shape.has_cut = true;
                shape.nested |= shape.has_cut_loop;
            }
            Expr::BacktrackingControlVerb(_) | Expr::SubroutineCall(_) => shape.nested = true,
            _ => {}
        }
        shape
    }

    /// Returns the maximum backtracks of a match.
    fn max_backtracks(&self, most: usize) -> usize {
        let most = if self.nested { MAX_NESTED_BACKTRACKS } else { most };
        let share = usize::try_from(self.states / SIMPLE_STATES).unwrap_or(usize::MAX);
        most / share.clamp(1, 100)
    }

    /// Returns the assumed cost of a match in a string of `bytes` bytes, in steps: each position
    /// may be followed by a scan of the rest of the string.
    fn price(&self, bytes: u64) -> u64 {
        let scans = bytes.saturating_mul(bytes).saturating_mul(self.states.div_ceil(STATES_PER_STEP));
        let rounds = if self.nested { MAX_NESTED_BACKTRACKS as u64 } else { 1 };
        BACKTRACK_STEPS.saturating_add(scans.saturating_mul(rounds))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pattern: &str, text: &str) -> Result<bool, String> {
        let pattern = MatchPattern::of(pattern)?;
        pattern.is_match(text, &mut MatchBudget::default()).map_err(|fault| fault.code.to_string())
    }

    #[test]
    fn patterns_of_both_kinds_match() {
        for (pattern, text, holds) in [
            ("^[a-z]+$", "abc", true),
            ("^[a-z]+$", "Abc", false),
            (r"\w+@\w+", "größe@haus", true),
            (r"^(?!draft).*$", "draft 1", false),
            (r"^(?!draft).*$", "final", true),
            (r"(\w)\1", "hello", true),
            (r"(?<=€)\d+", "€42", true),
        ] {
            assert_eq!(check(pattern, text), Ok(holds), "{pattern}");
        }
    }

    /// A string in which each position may start another match of a pattern over `a` and `b`.
    fn random_letters(bytes: usize) -> String {
        let mut state = 1_u64;
        let mut letter = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            if state >> 63 == 0 { 'a' } else { 'b' }
        };
        (0..bytes).map(|_| letter()).collect()
    }

    #[test]
    fn scans_of_patterns_that_backtrack_are_bounded() {
        let costly = r"(?:(?=(?:a|b)*a(?:a|b){60}c)x|[ab])*d";
        for (pattern, bytes) in [
            (costly, 20_000),
            (r"^[ab]*[ab]*(?>(?:(?=[ab]*c?)[ab])*)z", 5_000),
            (r"^[ab]*[ab]*(?!(?:(?=[ab]*c?)[ab])*z)c", 5_000),
        ] {
            let started = std::time::Instant::now();
            let result = check(pattern, &random_letters(bytes));
            assert_eq!(result, Err(code::RULE_TOO_COSTLY.as_str().to_owned()), "{pattern}");
            assert!(started.elapsed().as_secs() < 5, "{pattern}: {:?}", started.elapsed());
        }
        // The longest strings that the price permits also terminate.
        for (pattern, bytes) in [
            (costly, 1_000),
            (costly, 3_000),
            (r"(?:(?=(?:a|b)*a(?:a|b)(?:a|b)(?:a|b)c)x|[ab])*d", 5_000),
            (r"^[ab]*[ab]*(?>(?:(?=[ab]*c?)[ab])*)z", 300),
        ] {
            let started = std::time::Instant::now();
            let result = check(pattern, &random_letters(bytes));
            println!("{pattern} on {bytes} bytes: {result:?} in {:?}", started.elapsed());
            assert!(started.elapsed().as_secs() < 60, "{pattern}: {:?}", started.elapsed());
        }
        assert_eq!(check(r"^(?!draft).*$", &"x".repeat(10_000)), Ok(true));
        assert_eq!(check(r"^(?!.*draft)[\w ]+$", &"größe ".repeat(500)), Ok(true));
    }

    #[test]
    fn patterns_in_memory_are_weighed() {
        let weigh = |text: &str| weight(text, &MatchPattern::of(text)) as usize;
        assert!(weigh("^a$") >= MAX_DFA_BYTES);
        assert!(weigh("[ab]{3000}") > weigh("^a$"));
        assert!(weigh(r"(?=a+)(?=b+)c") >= 4 * MAX_DFA_BYTES);
        assert!(weigh("(") < 4 << 10);
        assert_eq!(PATTERNS.policy().max_capacity(), Some(MAX_CACHE_BYTES));
    }

    #[test]
    fn bombs_end_with_a_code_or_harmlessly() {
        let text = "a".repeat(30_000);
        let long = "a".repeat(1 << 20);
        let nested = format!("{}a{}", "(".repeat(2_000), ")".repeat(2_000));
        let wide = format!("(?:{})", vec![r"\w{50}"; 500].join("|"));
        let mut seen = 0;
        for pattern in [
            "(a+)+$",
            "(a|a)*b",
            "(a|aa)+$",
            "(.*)*x",
            "(a*)*b",
            "(?:a{0,100}){0,100}b",
            r"(\w{1,200}){1,200}!",
            "a{1000}{1000}",
            r"(a+)+\1b",
            r"(?=(a+))a*b\1",
            r"(?=.*x)a",
            r"^(?=(a|aa)+$)b",
            r"(a*)*\1b",
            r"(?<!b)(a+)+$b",
            r"((a+)+)\2+b",
            r"(?:(?=a*b)a)*c",
            r"(a?){40}\1{40}b",
            r"(.+)+\1(.+)+\2!",
            r"(?>a+)+b",
            r"(\w+\s?)+\1$!",
            r"(?:(?!b).)*b",
            r"(x+x+)+y",
            r"([a-z]+)*[0-9]\1",
            &nested,
            &wide,
        ] {
            for text in [&text[..40], &text, &long] {
                let started = std::time::Instant::now();
                let result = check(pattern, text);
                println!("{pattern:.40} on {} bytes: {result:?} in {:?}", text.len(), started.elapsed());
                seen += usize::from(result.is_err());
            }
        }
        assert!(seen > 10, "{seen}");
        assert_eq!(check(r"(a)\1", "aa"), Ok(true));
    }
}

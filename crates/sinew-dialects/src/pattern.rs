//! Patterns of workflow files: compiled once, matched at a bounded cost.
//!
//! The engine asks for a match while it decides, so no match may take long, whatever pattern and text are. A pattern
//! that the linear engine takes is matched there; one with look-around or back references backtracks, in limited steps.

use std::sync::{Arc, LazyLock};

use sinew_protocol::Fault;

/// A match would cost more than the budget of a rule.
const TOO_COSTLY: &str = "SINEW-6504";
/// Longest pattern.
const MAX_PATTERN_BYTES: usize = 4 << 10;
/// Sizes of a compiled pattern, in bytes: the smallest that holds it says what a byte of text costs.
const PROGRAM_SIZES: [usize; 4] = [4 << 10, 16 << 10, 64 << 10, 256 << 10];
/// Bytes of a compiled pattern that one step looks at.
const PROGRAM_BYTES_PER_STEP: u64 = 64;
/// Steps of all matches of a rule or expression together: less than a second.
const MAX_STEPS: u64 = 500_000_000;
/// Steps back that one match may take.
const MAX_BACKTRACKS: usize = 100_000;
/// Steps that a match which backtracks is taken to cost beside its text.
const BACKTRACK_STEPS: u64 = 1_000_000;

static PATTERNS: LazyLock<moka::sync::Cache<String, Result<Arc<MatchPattern>, String>>> =
    LazyLock::new(|| moka::sync::Cache::new(1_000));

/// A compiled pattern.
#[derive(Debug)]
pub(crate) enum MatchPattern {
    /// Matched in time that grows with the text; with the steps for each of its bytes.
    Linear(regex::Regex, u64),
    /// Matched by trying and stepping back.
    Backtracking(fancy_regex::Regex),
}

/// Steps that the matches of one rule or expression have left.
#[derive(Clone, Debug)]
pub(crate) struct MatchBudget(u64);

impl Default for MatchBudget {
    fn default() -> Self {
        Self(MAX_STEPS)
    }
}

impl MatchBudget {
    /// Pays for so many steps; fails if fewer are left.
    pub(crate) fn pay(&mut self, steps: u64) -> Result<(), Fault> {
        self.0 = self.0.checked_sub(steps).ok_or_else(|| too_costly("the rule compares too much data"))?;
        Ok(())
    }
}

fn too_costly(text: &str) -> Fault {
    Fault::failure(TOO_COSTLY, text).with_retryable(false)
}

impl MatchPattern {
    /// The compiled pattern, from memory if it was compiled before. The error says why it cannot be used.
    pub(crate) fn of(text: &str) -> Result<Arc<Self>, String> {
        PATTERNS.get_with_by_ref(text, || Self::compile(text).map(Arc::new))
    }

    #[expect(clippy::disallowed_methods, reason = "the place where patterns get their bounds")]
    fn compile(text: &str) -> Result<Self, String> {
        if text.len() > MAX_PATTERN_BYTES {
            return Err(format!("it is longer than {MAX_PATTERN_BYTES} bytes"));
        }
        for size in PROGRAM_SIZES {
            match regex::RegexBuilder::new(text).size_limit(size).build() {
                Ok(pattern) => return Ok(Self::Linear(pattern, size as u64 / PROGRAM_BYTES_PER_STEP)),
                Err(regex::Error::CompiledTooBig(_)) => {}
                Err(_) => return Self::compile_backtracking(text),
            }
        }
        Err("it is too large".to_owned())
    }

    #[expect(clippy::disallowed_methods, reason = "the place where patterns get their bounds")]
    fn compile_backtracking(text: &str) -> Result<Self, String> {
        let [.., largest] = PROGRAM_SIZES;
        let pattern = fancy_regex::RegexBuilder::new(text)
            .backtrack_limit(MAX_BACKTRACKS)
            .delegate_size_limit(largest)
            .delegate_dfa_size_limit(largest)
            .build();
        pattern.map(Self::Backtracking).map_err(|error| error.to_string())
    }

    /// Whether the linear engine takes the pattern.
    pub(crate) fn is_linear(&self) -> bool {
        matches!(self, Self::Linear(..))
    }

    /// Whether a part of the text matches.
    pub(crate) fn is_match(&self, text: &str, budget: &mut MatchBudget) -> Result<bool, Fault> {
        let bytes = text.len() as u64;
        match self {
            Self::Linear(pattern, steps) => {
                budget.pay(bytes.saturating_mul(*steps))?;
                Ok(pattern.is_match(text))
            }
            Self::Backtracking(pattern) => {
                // Each position of the text may be followed by a look at all that comes after it.
                budget.pay(BACKTRACK_STEPS.saturating_add(bytes.saturating_mul(bytes)))?;
                pattern.is_match(text).map_err(|_| too_costly("the pattern takes too many steps"))
            }
        }
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

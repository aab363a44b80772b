//! Terms of a text: normalized, split and stemmed words.

use rust_stemmers::{Algorithm, Stemmer};
use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::is_combining_mark;

/// Maximum length of a term in characters; longer words are cut.
const MAX_TERM_CHARS: usize = 64;

/// A word of a text and the term that it is indexed under.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Word {
    /// The word in lower case.
    pub(crate) text: String,
    /// Its stem.
    pub(crate) term: String,
}

/// English words without a meaning for a search, sorted. They do not count in queries, unless a query
/// has no others.
const FUNCTION_WORDS: &[&str] = &[
    "a", "about", "all", "also", "am", "an", "and", "any", "are", "as", "at", "be", "been", "being", "but",
    "by", "can", "could", "did", "do", "does", "doing", "for", "from", "had", "has", "have", "having", "he",
    "here", "how", "i", "if", "in", "into", "is", "it", "its", "just", "may", "me", "might", "mine", "must",
    "my", "no", "nor", "not", "of", "on", "or", "our", "ours", "please", "shall", "she", "should", "so",
    "some", "than", "that", "the", "their", "them", "there", "these", "they", "this", "those", "to", "too",
    "us", "very", "was", "we", "were", "what", "when", "where", "which", "who", "whom", "whose", "why",
    "will", "with", "would", "you", "your", "yours",
];

/// Returns whether a lower-case word is a function word of English.
pub(crate) fn is_function_word(word: &str) -> bool {
    FUNCTION_WORDS.binary_search(&word).is_ok()
}

/// Splits a text into words, in order.
///
/// Compatibility forms are unified (NFKC) and diacritics removed. Words end at every character that
/// is neither letter nor digit, where a lower-case letter precedes an upper-case one, before the
/// last letter of a run of capitals (`HTTPServer`), and between letters and digits. Runs of a script
/// without spaces between words become pairs of characters.
pub(crate) fn words(text: &str) -> Vec<Word> {
    let stemmer = Stemmer::create(Algorithm::English);
    let plain: String = text.nfkd().filter(|character| !is_combining_mark(*character)).nfkc().collect();
    let mut found = Vec::new();
    for run in plain.split(|character: char| !character.is_alphanumeric()) {
        for piece in pieces(run) {
            if piece.first().copied().is_some_and(has_no_spaces) {
                found.extend(pairs(&piece));
            } else if !piece.is_empty() {
                let text: String = piece.iter().take(MAX_TERM_CHARS).flat_map(|c| c.to_lowercase()).collect();
                let term = stemmer.stem(&text).into_owned();
                found.push(Word { text, term });
            }
        }
    }
    found
}

/// Kind of a character; words end where it changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Lower,
    Upper,
    Digit,
    Pair,
}

fn class(character: char) -> Class {
    if has_no_spaces(character) {
        Class::Pair
    } else if character.is_numeric() {
        Class::Digit
    } else if character.is_uppercase() {
        Class::Upper
    } else {
        Class::Lower
    }
}

/// Splits a run of letters and digits at changes of case, script and kind.
fn pieces(run: &str) -> Vec<Vec<char>> {
    let characters: Vec<char> = run.chars().collect();
    let mut pieces = Vec::new();
    let mut begin = 0;
    for at in 1..characters.len() {
        let (before, here) = (class(characters[at - 1]), class(characters[at]));
        let is_last_capital = before == Class::Upper
            && here == Class::Upper
            && characters.get(at + 1).is_some_and(|next| class(*next) == Class::Lower);
        let continues = before == here || (before == Class::Upper && here == Class::Lower);
        if !continues || is_last_capital {
            pieces.push(characters[begin..at].to_vec());
            begin = at;
        }
    }
    pieces.push(characters[begin..].to_vec());
    pieces
}

/// Returns the pairs of neighbouring characters of a run; a single character is a term by itself.
fn pairs(run: &[char]) -> Vec<Word> {
    let word = |characters: &[char]| {
        let text: String = characters.iter().collect();
        Word { term: text.clone(), text }
    };
    if run.len() < 2 { vec![word(run)] } else { run.windows(2).map(word).collect() }
}

/// Returns whether the script of a character writes words without spaces: Thai, Lao, Khmer, kana and
/// Han.
fn has_no_spaces(character: char) -> bool {
    matches!(u32::from(character),
        0x0E00..=0x0EFF | 0x1780..=0x17FF | 0x3040..=0x30FF | 0x3400..=0x4DBF | 0x4E00..=0x9FFF | 0xF900..=0xFAFF | 0x2_0000..=0x3_134F)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(text: &str) -> Vec<String> {
        words(text).into_iter().map(|word| word.text).collect()
    }

    #[test]
    fn words_end_at_case_digits_and_punctuation() {
        assert_eq!(texts("getOrder2Status"), ["get", "order", "2", "status"]);
        assert_eq!(
            texts("HTTPServer refund_an-order.v2"),
            ["http", "server", "refund", "an", "order", "v", "2"]
        );
        assert_eq!(texts("Rückzahlung ﬁle"), ["ruckzahlung", "file"]);
    }

    #[test]
    fn scripts_without_spaces_become_pairs() {
        assert_eq!(texts("退款订单"), ["退款", "款订", "订单"]);
        assert_eq!(texts("API退款"), ["api", "退款"]);
        assert_eq!(texts("退"), ["退"]);
    }

    #[test]
    fn function_words_are_sorted() {
        assert!(FUNCTION_WORDS.is_sorted());
        assert!(is_function_word("the") && !is_function_word("refund"));
    }

    #[test]
    fn inflected_words_share_a_term() {
        let terms: Vec<String> =
            words("refunds refunding refunded").into_iter().map(|word| word.term).collect();
        assert_eq!(terms, ["refund", "refund", "refund"]);
    }
}

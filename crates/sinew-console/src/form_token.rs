//! The token that ties a form to the browser that loaded it.

use axum::http::{HeaderMap, header};

/// Cookie with the form token.
pub(crate) const COOKIE: &str = "sinew-console";
/// Form field with the token.
pub(crate) const TOKEN_FIELD: &str = "form_token";
/// Characters of a token.
const TOKEN_CHARS: usize = 32;

/// Token of the forms of a page. If it is empty, no form is accepted.
#[derive(Clone, Debug, Default)]
pub(crate) struct FormToken(String);

impl FormToken {
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the token of the cookie and true, or a new token and false.
    pub(crate) fn of(headers: &HeaderMap) -> (Self, bool) {
        let cookies = headers.get_all(header::COOKIE).into_iter().filter_map(|value| value.to_str().ok());
        let named = cookies.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
        let known = named
            .filter(|(name, _)| *name == COOKIE)
            .map(|(_, value)| value)
            .find(|value| value.len() == TOKEN_CHARS && value.bytes().all(|byte| byte.is_ascii_hexdigit()));
        match known {
            Some(token) => (Self(token.to_owned()), true),
            None => (Self(uuid::Uuid::new_v4().simple().to_string()), false),
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn a_token_is_read_whole_or_made() {
        let good = "0123456789abcdef0123456789abcdef";
        let check = |cookie: String, expected: bool| {
            let mut headers = HeaderMap::new();
            headers.insert(header::COOKIE, HeaderValue::from_str(&cookie).unwrap());
            let (token, is_known) = FormToken::of(&headers);
            assert_eq!((is_known, token.0.len()), (expected, TOKEN_CHARS), "{cookie}");
        };
        check(format!("{COOKIE}={good}"), true);
        check(format!("other=1; {COOKIE}={good}; more=2"), true);
        check(format!("{COOKIE}="), false);
        check(format!("{COOKIE}=<script>"), false);
        check(format!("x{COOKIE}={good}"), false);
    }
}

//! Origins of web pages whose scripts may call a gateway.

use axum::http::{HeaderMap, HeaderValue, header};
use url::Url;

/// Origins of web pages whose scripts may call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AllowedOrigins(Vec<String>);

impl AllowedOrigins {
    /// Parses origins such as `https://app.example.com`. Rejects everything else: a wildcard would
    /// share responses with every page.
    pub(crate) fn read(origins: &[String]) -> Result<Self, String> {
        let read = origins.iter().map(|text| {
            let wrong = || {
                format!(
                    "{text:?} is not an origin: expected https://HOST or http://HOST with an optional port"
                )
            };
            let url = Url::parse(text).map_err(|_| wrong())?;
            let origin = url.origin().ascii_serialization();
            let is_web = matches!(url.scheme(), "http" | "https");
            if is_web && text.trim_end_matches('/').eq_ignore_ascii_case(&origin) {
                Ok(origin)
            } else {
                Err(wrong())
            }
        });
        read.collect::<Result<_, _>>().map(Self)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the origin of a request if its scripts may call.
    pub(crate) fn origin_of(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        let mut all = headers.get_all(header::ORIGIN).iter();
        let (origin, None) = (all.next()?, all.next()) else { return None };
        self.0.iter().any(|known| known.as_bytes() == origin.as_bytes()).then(|| origin.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_are_named_exactly() {
        for (text, expected) in [
            ("https://app.example.com", Some("https://app.example.com")),
            ("http://localhost:3000/", Some("http://localhost:3000")),
            ("HTTPS://App.example.com", Some("https://app.example.com")),
            ("https://app.example.com/path", None),
            ("https://user@app.example.com", None),
            ("app.example.com", None),
            ("*", None),
            ("null", None),
            ("file:///x", None),
        ] {
            let read = AllowedOrigins::read(&[text.to_owned()]).ok();
            assert_eq!(read, expected.map(|origin| AllowedOrigins(vec![origin.to_owned()])), "{text}");
        }
    }
}

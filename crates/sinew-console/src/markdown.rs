//! Untrusted Markdown as HTML: no raw HTML, no images, and links to web and mail addresses only.

use maud::{Markup, PreEscaped, Render as _, html};
use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag};
use sinew_source::escape_text;

use crate::shown_text::{MAX_SHOWN_BYTES, size};

/// Schemes of links; other links are shown as text.
const SCHEMES: [&str; 3] = ["https://", "http://", "mailto:"];

/// A text as Markdown (CommonMark with tables and strikethrough), truncated like a value. `whole` links
/// to the full text.
pub(crate) fn markdown(text: &str, whole: &str) -> Markup {
    let end = text.floor_char_boundary(MAX_SHOWN_BYTES);
    html! {
        div.markdown { (rendered(&escape_text(&text[..end]))) }
        @if end < text.len() {
            p.more { "First " (size(end as u64)) " of " (size(text.len() as u64)) ". " a href=(whole) { "Show all" } }
        }
    }
}

fn rendered(text: &str) -> Markup {
    let mut page = MarkdownPage::default();
    for event in Parser::new_ext(text, Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH) {
        page.add(event);
    }
    PreEscaped(page.html)
}

/// A page that is being written.
#[derive(Default)]
struct MarkdownPage {
    html: String,
    /// Ends of the open elements.
    ends: Vec<&'static str>,
    is_table_head: bool,
}

impl MarkdownPage {
    fn add(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.open(&tag),
            Event::End(_) => {
                let end = self.ends.pop().unwrap_or_default();
                self.is_table_head &= end != TABLE_HEAD_END;
                self.html.push_str(end);
            }
            Event::Code(text) => self.html.push_str(&html! { code { (text.as_ref()) } }.into_string()),
            Event::SoftBreak => self.html.push('\n'),
            Event::HardBreak => self.html.push_str("<br>"),
            Event::Rule => self.html.push_str("<hr>"),
            Event::Text(text) | Event::Html(text) | Event::InlineHtml(text) => {
                text.as_ref().render_to(&mut self.html);
            }
            // Only enabled extensions have other events.
            _ => {}
        }
    }

    fn open(&mut self, tag: &Tag<'_>) {
        let (begin, end) = match tag {
            Tag::Link { dest_url, .. } if SCHEMES.iter().any(|scheme| dest_url.starts_with(scheme)) => {
                self.html.push_str("<a rel=\"noopener noreferrer nofollow\" href=\"");
                dest_url.as_ref().render_to(&mut self.html);
                ("\">", "</a>")
            }
            Tag::List(Some(first)) => {
                self.html.push_str("<ol start=\"");
                self.html.push_str(&first.to_string());
                self.html.push('"');
                (">", "</ol>")
            }
            Tag::TableHead => {
                self.is_table_head = true;
                ("<thead><tr>", TABLE_HEAD_END)
            }
            Tag::TableCell if self.is_table_head => ("<th scope=\"col\">", "</th>"),
            other => elements(other),
        };
        self.html.push_str(begin);
        self.ends.push(end);
    }
}

/// End of the head of a table, and begin of its body.
const TABLE_HEAD_END: &str = "</tr></thead><tbody>";

/// Begin and end of the element of a tag.
fn elements(tag: &Tag<'_>) -> (&'static str, &'static str) {
    match tag {
        Tag::Paragraph => ("<p>", "</p>"),
        // Untrusted text must not change the outline of the page.
        Tag::Heading { .. } => ("<p class=\"heading\">", "</p>"),
        Tag::BlockQuote(_) => ("<blockquote>", "</blockquote>"),
        Tag::CodeBlock(CodeBlockKind::Indented | CodeBlockKind::Fenced(_)) => {
            ("<pre class=\"value\" tabindex=\"0\"><code>", "</code></pre>")
        }
        Tag::List(_) => ("<ul>", "</ul>"),
        Tag::Item => ("<li>", "</li>"),
        Tag::Table(_) => (
            "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Table\"><table class=\"rows\">",
            "</tbody></table></div>",
        ),
        Tag::TableRow => ("<tr>", "</tr>"),
        Tag::TableCell => ("<td>", "</td>"),
        Tag::Emphasis => ("<em>", "</em>"),
        Tag::Strong => ("<strong>", "</strong>"),
        Tag::Strikethrough => ("<del>", "</del>"),
        // The texts of images, and of links with other schemes.
        _ => ("", ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markdown_is_html_without_anything_active() {
        let check = |text: &str, expected: &str| {
            assert_eq!(rendered(text).into_string().replace('\n', ""), expected, "{text}");
        };
        check("**on its way**", "<p><strong>on its way</strong></p>");
        check("# A <b>", "<p class=\"heading\">A &lt;b&gt;</p>");
        check("<script>alert(1)</script>", "&lt;script&gt;alert(1)&lt;/script&gt;");
        check("a <img src=x onerror=y> b", "<p>a &lt;img src=x onerror=y&gt; b</p>");
        check("[x](javascript:alert(1))", "<p>x</p>");
        check("![x](https://a.example/b.png)", "<p>x</p>");
        check(
            "[x](https://a.example/?\"b)",
            "<p><a rel=\"noopener noreferrer nofollow\" href=\"https://a.example/?&quot;b\">x</a></p>",
        );
        check("`<b>`", "<p><code>&lt;b&gt;</code></p>");
        check("3. a\n4. b", "<ol start=\"3\"><li>a</li><li>b</li></ol>");
        check(
            "|a|\n|-|\n|1|",
            "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Table\"><table class=\"rows\">\
             <thead><tr><th scope=\"col\">a</th></tr></thead><tbody><tr><td>1</td></tr></tbody></table></div>",
        );
    }

    #[test]
    fn long_texts_are_cut_and_hidden_characters_are_visible() {
        let html = markdown(&"é".repeat(MAX_SHOWN_BYTES), "/whole").into_string();
        assert!(html.contains("First 16.0 KiB of 32.0 KiB. <a href=\"/whole\">Show all</a>"));
        assert!(!markdown("a\u{202e}b", "/").into_string().contains('\u{202e}'));
    }
}

//! The catalogue: agents and workflows by what they do, and what their authors and administrators state.

use axum::extract::Path;
use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;
use sinew_documents::agent::AgentKind;
use sinew_documents::catalogue::{CatalogueEntry, CataloguePage};

use super::node_inspector::is_nothing;
use crate::api_client::ApiPath;
use crate::command_text::CommandText;
use crate::console_error::ConsoleError;
use crate::page_frame::{ConsolePage, ConsoleSection, EntryFilter, entry_filter_fields, page_or_problem};
use crate::page_request::{PageAddress, PageRequest};
use crate::schema_form::schema_of;
use crate::shown_text::{self, command_line, value_block};

/// Number of entries of a page.
const ENTRIES: &str = "50";
/// Numbers of tags and examples shown in a list.
const SHOWN_TAGS: usize = 8;
const SHOWN_EXAMPLES: usize = 3;

/// Search and filters, as the address stores them.
#[derive(Clone, Debug, Default, Deserialize)]
struct CatalogueFilter {
    #[serde(default)]
    q: String,
    #[serde(default)]
    kind: String,
    #[serde(default)]
    after: String,
    #[serde(flatten)]
    entries: EntryFilter,
}

pub(crate) async fn show(request: PageRequest) -> Response {
    let page = list_page(&request).await;
    page_or_problem(&request, page)
}

pub(crate) async fn entry(Path(name): Path<String>, request: PageRequest) -> Response {
    let page = entry_page(&name, &request).await;
    page_or_problem(&request, page)
}

async fn list_page(request: &PageRequest) -> Result<ConsolePage, ConsoleError> {
    let filter: CatalogueFilter = request.query()?;
    let path = ApiPath::of(&["catalogue"]).with("limit", ENTRIES).with_some("q", Some(&filter.q));
    let path = path.with_some("kind", Some(&filter.kind)).with_some("after", Some(&filter.after));
    let page = request.api.get::<CataloguePage>(&filter.entries.on(path)).await?;
    let command = CommandText::new("sinew tool search");
    let command = if filter.q.is_empty() { command } else { command.word(&filter.q) };
    let body = html! {
        div.head { h1 { "Catalogue" } (command_line(&command)) }
        (search_form(&filter))
        @for (word, instead) in &page.corrections {
            p.quiet { "No entry contains “" (shown_text::line(word, 60)) "”: searched for “" (shown_text::line(instead, 60)) "”." }
        }
        (entries(&page))
        @if let Some(next) = &page.next {
            p { a href=(next_page(&filter, next)) { "More entries" } }
        }
    };
    Ok(ConsolePage::new(ConsoleSection::Catalogue, "Catalogue", body))
}

fn next_page(filter: &CatalogueFilter, next: &str) -> PageAddress {
    let address = PageAddress::of(&["catalogue"]).with_some("kind", Some(&filter.kind)).with("after", next);
    filter.entries.pairs().into_iter().fold(address, |address, (name, value)| address.with_some(name, value))
}

fn search_form(filter: &CatalogueFilter) -> Markup {
    html! {
        form.filter method="get" role="search" aria-label="Catalogue" {
            label.wide { span { "What do you want to do?" } input type="search" name="q" value=(filter.q) maxlength="400" data-filter autocomplete="off"; }
            label { span { "Kind" }
                select name="kind" {
                    @for (value, title) in [("", "any"), ("agent", "agent"), ("workflow", "workflow")] {
                        option value=(value) selected[filter.kind == value] { (title) }
                    }
                }
            }
            (entry_filter_fields(&filter.entries))
            button type="submit" { "Search" }
        }
    }
}

fn entries(page: &CataloguePage) -> Markup {
    let is_search = page.entries.iter().any(|entry| entry.found.is_some());
    html! {
        @if page.entries.is_empty() { p.empty { "No entry found." } } @else {
            p.quiet { (page.entries.len()) " of " (page.total) " entries" @if is_search { ", the best first" } "." }
            div.scroll tabindex="0" role="region" aria-label="Entries" {
                table.rows {
                    thead {
                        tr {
                            @if is_search { th.number scope="col" { "Score" } }
                            th scope="col" { "Name" } th scope="col" { "Kind" } th scope="col" { "Stage" }
                            th.wide scope="col" { "Purpose" } th scope="col" { "Maintainer" } th scope="col" { "Tags" }
                        }
                    }
                    tbody { @for entry in &page.entries { (entry_line(entry, is_search)) } }
                }
            }
        }
    }
}

fn entry_line(entry: &CatalogueEntry, is_search: bool) -> Markup {
    html! {
        tr data-row {
            @if is_search { td.number { @match &entry.found { Some(found) => (found.score), None => "–" } } }
            td { a href=(entry_address(&entry.name)) { (shown_text::line(&entry.name, 80)) } }
            td { (entry.kind.word()) }
            td { (stage(entry)) }
            td.wide {
                (shown_text::line(&entry.description, 200))
                (notes(entry))
                @for example in entry.examples.iter().take(SHOWN_EXAMPLES) { p.quiet { "“" (shown_text::line(example, 120)) "”" } }
            }
            td { (shown_text::line(entry.maintainer.as_deref().unwrap_or("–"), 40)) }
            td { (shown_text::line(&entry.tags.iter().take(SHOWN_TAGS).cloned().collect::<Vec<_>>().join(", "), 120)) }
        }
    }
}

fn entry_address(name: &str) -> PageAddress {
    PageAddress::of(&["catalogue", name])
}

fn stage(entry: &CatalogueEntry) -> Markup {
    html! { (entry.stage.name()) @if entry.pinned { ", pinned" } @if entry.hidden { ", hidden" } }
}

/// What a reader must know before a call.
fn notes(entry: &CatalogueEntry) -> Markup {
    html! {
        @if let Some(name) = &entry.replaced_by { p.notice { "Use " a href=(entry_address(name)) { (shown_text::line(name, 80)) } " instead." } }
        @if let Some(name) = &entry.resembles { p.notice { "The name looks like " a href=(entry_address(name)) { (shown_text::line(name, 80)) } "." } }
        @if entry.side_effects { p.quiet { "A call changes something outside the mesh." } }
    }
}

async fn entry_page(name: &str, request: &PageRequest) -> Result<ConsolePage, ConsoleError> {
    let path = ApiPath::of(&["catalogue", name]);
    let entry = request.api.get::<CatalogueEntry>(&path).await?;
    let whole = path.address();
    let own_page = match entry.kind {
        AgentKind::Agent => PageAddress::agent(&entry.name),
        AgentKind::Workflow => PageAddress::workflow(&entry.name),
    };
    let body = html! {
        div.head { h1 { (shown_text::line(&entry.name, 80)) } (command_line(&CommandText::new("sinew agent describe").word(&entry.name))) }
        p { (shown_text::paragraph(&entry.description)) }
        (notes(&entry))
        dl.facts {
            dt { "Kind" } dd { a href=(own_page) { (entry.kind.word()) } }
            dt { "Stage" } dd { (stage(&entry)) }
            @if let Some(maintainer) = &entry.maintainer { dt { "Maintainer" } dd { (shown_text::line(maintainer, 200)) } }
            @if !entry.tags.is_empty() { dt { "Tags" } dd { (shown_text::line(&entry.tags.join(", "), 400)) } }
            @for (key, value) in &entry.labels { dt { "Label " (shown_text::line(key, 60)) } dd { (shown_text::line(value, 200)) } }
            @for (title, link) in entry.links.iter().filter(|(_, link)| link.starts_with("https://")) {
                dt { "Link" } dd { a href=(link) rel="noopener noreferrer nofollow" { (shown_text::line(title, 80)) } " " span.quiet { (shown_text::line(link, 120)) } }
            }
        }
        @if !entry.examples.is_empty() {
            section { h2 { "Example requests" } ul { @for example in &entry.examples { li { (shown_text::line(example, 200)) } } } }
        }
        @for (title, schema) in [("Input schema", schema_of(entry.input_schema.as_ref())), ("Output schema", schema_of(entry.output_schema.as_ref()))] {
            @if !is_nothing(schema) { section { h2 { (title) } (value_block(schema, &whole)) } }
        }
    };
    Ok(ConsolePage::new(ConsoleSection::Catalogue, entry.name.clone(), body))
}

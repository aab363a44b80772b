//! The layout of every page: header, navigation, and the error page.

use std::convert::Infallible;

use axum::body::Body;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{self, Stream, StreamExt as _};
use maud::{DOCTYPE, Markup, PreEscaped, html};
use serde::Deserialize;

use crate::api_client::ApiPath;
use crate::assets::{ICON, MODULES, STYLE};
use crate::console_error::ConsoleError;
use crate::console_state::ConsoleMode;
use crate::form_token::{FormToken, TOKEN_FIELD};
use crate::page_request::{PageAddress, PageRequest};
use crate::shown_text;

/// Sections of the console, in the order of the navigation, each with its key after `g`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConsoleSection {
    Pulse,
    Executions,
    Approvals,
    Workflows,
    Agents,
    Catalogue,
    Chat,
    Artifacts,
    Traffic,
    Help,
}

impl ConsoleSection {
    const ALL: [Self; 10] = [
        Self::Pulse,
        Self::Executions,
        Self::Approvals,
        Self::Workflows,
        Self::Agents,
        Self::Catalogue,
        Self::Chat,
        Self::Artifacts,
        Self::Traffic,
        Self::Help,
    ];

    const fn title(self) -> &'static str {
        match self {
            Self::Pulse => "Pulse",
            Self::Executions => "Executions",
            Self::Approvals => "Approvals",
            Self::Workflows => "Workflows",
            Self::Agents => "Agents",
            Self::Catalogue => "Catalogue",
            Self::Chat => "Chat",
            Self::Artifacts => "Artifacts",
            Self::Traffic => "Traffic",
            Self::Help => "Help",
        }
    }

    const fn key(self) -> &'static str {
        match self {
            Self::Pulse => "p",
            Self::Executions => "e",
            Self::Approvals => "a",
            Self::Workflows => "w",
            Self::Agents => "n",
            Self::Catalogue => "f",
            Self::Chat => "c",
            Self::Artifacts => "r",
            Self::Traffic => "t",
            Self::Help => "h",
        }
    }

    /// The API address of the number that the navigation shows next to the section.
    fn count_address(self) -> Option<String> {
        (self == Self::Approvals).then(|| ApiPath::of(&["approval-count"]).address())
    }

    fn address(self) -> PageAddress {
        match self {
            Self::Pulse => PageAddress::of(&[]),
            other => PageAddress::of(&[&other.title().to_ascii_lowercase()]),
        }
    }
}

/// A page before it is rendered into the layout.
#[derive(Clone, Debug)]
pub(crate) struct ConsolePage {
    status: StatusCode,
    title: String,
    section: Option<ConsoleSection>,
    has_navigation: bool,
    body: Markup,
    source: LiveSource,
}

/// The user of a page, whom its header names.
#[derive(Clone, Debug, Default)]
pub(crate) struct PageViewer {
    /// Name of the signed-in user; `None` without sign-in.
    name: Option<String>,
    /// Role, and why the page has no actions; `None` if the user can change the mesh.
    read_only: Option<&'static str>,
    token: FormToken,
}

impl PageViewer {
    pub(crate) fn of(request: &PageRequest) -> Self {
        Self {
            name: request.signed_in.clone(),
            read_only: read_only_reason(request),
            token: request.token.clone(),
        }
    }

    /// Name, role and sign-out.
    fn header(&self) -> Markup {
        html! {
            @if let Some(reason) = self.read_only { span.role title=(reason) { "read-only" } }
            @if let Some(name) = &self.name {
                form.sign-out method="post" action=(PageAddress::of(&["sign-out"])) {
                    input type="hidden" name=(TOKEN_FIELD) value=(self.token.as_str());
                    span.user { (shown_text::line(name, 40)) } " "
                    button type="submit" { "Sign out" }
                }
            }
        }
    }
}

/// Source of live updates of a page.
#[derive(Clone, Debug, Default)]
pub(crate) enum LiveSource {
    /// The page is static.
    #[default]
    Still,
    /// Events of an execution: the address of the stream, starting after the last shown event.
    Events(String),
    /// The page itself: it is reloaded when the mesh reports a change of these kinds, and every few
    /// seconds.
    List(&'static str),
}

/// Kinds of changes that lists of executions and agents subscribe to.
pub(crate) const EXECUTIONS_CHANGE: &str = "executions";
pub(crate) const AGENTS_CHANGE: &str = "agents";

/// Filter of the agent list with which a page checks that the mesh responds.
const PROBED_AGENT: &str = "?";

/// Marker of the position where a streamed page continues.
const GROWTH_MARK: &str = "<!-- grows here -->";

/// Seconds between two polls.
const POLL_SECONDS: u32 = 5;

impl ConsolePage {
    pub(crate) fn new(section: ConsoleSection, title: impl Into<String>, body: Markup) -> Self {
        Self {
            status: StatusCode::OK,
            title: title.into(),
            section: Some(section),
            has_navigation: true,
            body,
            source: LiveSource::Still,
        }
    }

    /// A page without navigation, for users who are not signed in.
    pub(crate) fn without_navigation(title: &str, body: Markup) -> Self {
        Self { has_navigation: false, section: None, ..Self::new(ConsoleSection::Pulse, title, body) }
    }

    #[must_use]
    pub(crate) fn live(self, source: LiveSource) -> Self {
        Self { source, ..self }
    }

    #[must_use]
    pub(crate) fn with_status(self, status: StatusCode) -> Self {
        Self { status, ..self }
    }

    /// Streams the page: the items of the stream are inserted at [`ConsolePage::growth`].
    pub(crate) fn grown(
        self,
        viewer: &PageViewer,
        parts: impl Stream<Item = Markup> + Send + 'static,
    ) -> Response {
        let page = self.markup(viewer).into_string();
        let (head, tail) = page.split_once(GROWTH_MARK).unwrap_or((&page, ""));
        let (head, tail) = (head.to_owned(), tail.to_owned());
        let parts = stream::once(async { head })
            .chain(parts.map(Markup::into_string))
            .chain(stream::once(async { tail }));
        let headers = [(header::CONTENT_TYPE, "text/html; charset=utf-8")];
        (self.status, headers, Body::from_stream(parts.map(Ok::<_, Infallible>))).into_response()
    }

    /// The position in the body where a streamed page continues.
    pub(crate) fn growth() -> Markup {
        // Untrusted text cannot contain the marker, because it is escaped.
        PreEscaped(GROWTH_MARK.to_owned())
    }

    /// The page as its viewer sees it.
    pub(crate) fn markup(&self, viewer: &PageViewer) -> Markup {
        let (events, list) = match &self.source {
            LiveSource::Still => (None, None),
            LiveSource::Events(address) => (Some(address), None),
            LiveSource::List(kind) => (None, Some(*kind)),
        };
        let changes = list.map(|_| ApiPath::of(&["changes"]).address());
        // A filtered agent list is the cheapest API request that reads from the mesh.
        let probe = events
            .map(|_| ApiPath::of(&["agents"]).with("workflows", "true").with("text", PROBED_AGENT).address());
        let poll = (events.is_some() || list.is_some()).then_some(POLL_SECONDS);
        html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta name="color-scheme" content="light dark";
                    title { (shown_text::line(&self.title, 80)) " · Sinew" }
                    link rel="icon" href=(ICON.address);
                    link rel="stylesheet" href=(STYLE.address);
                    @for module in MODULES.iter() {
                        script type="module" src=(module.address) {}
                    }
                }
                body {
                    a.skip href="#main" { "Skip to content" }
                    header.top {
                        a.brand href=(PageAddress::of(&[])) { "Sinew" }
                        @if self.has_navigation { (navigation(self.section)) }
                        button #times type="button" hidden title="Show times relative to now, in your zone, or in UTC" {}
                        @if self.has_navigation { (viewer.header()) }
                        span #live role="status" data-events=[events] data-list=[list] data-changes=[changes] data-probe=[probe] data-poll=[poll] {}
                        @if poll.is_some() { time #as-of {} }
                    }
                    main #main tabindex="-1" { (self.body) }
                }
            }
        }
    }
}

impl IntoResponse for ConsolePage {
    /// A response without its body: the guard of all pages renders it, because it knows the viewer.
    fn into_response(self) -> Response {
        let headers = [(header::CONTENT_TYPE, "text/html; charset=utf-8")];
        let retry = (self.status == StatusCode::SERVICE_UNAVAILABLE).then_some([(header::RETRY_AFTER, "1")]);
        let mut response = (self.status, headers, retry, ()).into_response();
        response.extensions_mut().insert(self);
        response
    }
}

fn navigation(shown: Option<ConsoleSection>) -> Markup {
    html! {
        nav aria-label="Sections" {
            ul {
                @for section in ConsoleSection::ALL {
                    li {
                        a href=(section.address()) data-go=(section.key()) data-count=[section.count_address()]
                            aria-current=[(shown == Some(section)).then_some("page")] {
                            (section.title())
                        }
                    }
                }
            }
        }
    }
}

/// The page, or the error page.
pub(crate) fn page_or_problem(request: &PageRequest, page: Result<ConsolePage, ConsoleError>) -> Response {
    match page {
        Ok(page) => page.into_response(),
        Err(error) => error_page(request, &error).into_response(),
    }
}

/// The error page, with the error code.
pub(crate) fn error_page(request: &PageRequest, error: &ConsoleError) -> ConsolePage {
    let body = html! {
        h1 { "Request failed" }
        (problem_box(error))
        p { a href=(request.address()) { "Retry" } " · " a href=(PageAddress::of(&["executions"])) { "Executions" } }
    };
    ConsolePage {
        status: error.status(),
        title: "Error".to_owned(),
        section: None,
        has_navigation: true,
        body,
        source: LiveSource::Still,
    }
}

/// An error box: title, message, hint, and a link to the page of the code.
pub(crate) fn problem_box(error: &ConsoleError) -> Markup {
    let code = error.code();
    let title = sinew_codes::title(code);
    html! {
        div.problem role="alert" {
            @if let Some(title) = title { strong { (title) } }
            p.message { (shown_text::paragraph(&error.to_string())) }
            @if let Some(hint) = error.hint() { p.hint { (shown_text::sentence(hint, 600)) } }
            p { (code_link(code)) }
        }
    }
}

/// A code, with a link to its page if it has one.
pub(crate) fn code_link(code: &str) -> Markup {
    html! {
        @if sinew_codes::page(code).is_some() {
            a.code href=(PageAddress::of(&["help", code])) { (code) }
        } @else {
            span.code { (shown_text::line(code, 60)) }
        }
    }
}

/// The hidden field of every form.
pub(crate) fn token_field(request: &PageRequest) -> Markup {
    html! { input type="hidden" name=(TOKEN_FIELD) value=(request.token.as_str()); }
}

/// Filters by what authors and administrators state about agents and workflows; the server applies them.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct EntryFilter {
    stage: Option<String>,
    maintainer: Option<String>,
    label: Option<String>,
    tag: Option<String>,
}

impl EntryFilter {
    /// The set parameters, by their names in addresses.
    pub(crate) fn pairs(&self) -> [(&'static str, Option<&str>); 4] {
        [
            ("stage", self.stage.as_deref()),
            ("maintainer", self.maintainer.as_deref()),
            ("label", self.label.as_deref()),
            ("tag", self.tag.as_deref()),
        ]
    }

    /// Adds the filters to an address of the API.
    pub(crate) fn on(&self, path: ApiPath) -> ApiPath {
        self.pairs().into_iter().fold(path, |path, (name, value)| path.with_some(name, value))
    }

    fn is_set(&self) -> bool {
        self.pairs().iter().any(|(_, value)| value.is_some_and(|value| !value.is_empty()))
    }
}

/// The fields of a form with filters of entries.
pub(crate) fn entry_filter_fields(filter: &EntryFilter) -> Markup {
    let stage = filter.stage.as_deref().unwrap_or_default();
    html! {
        label { span { "Stage" }
            select name="stage" {
                @for value in ["", "experimental", "stable", "deprecated"] {
                    option value=(value) selected[stage == value] { @if value.is_empty() { "any" } @else { (value) } }
                }
            }
        }
        @for (title, name, value) in [("Maintainer", "maintainer", &filter.maintainer), ("Label", "label", &filter.label), ("Tag", "tag", &filter.tag)] {
            label { span { (title) } input type="text" name=(name) value=[value.as_deref()] autocomplete="off"; }
        }
    }
}

/// The filters of a list of agents or workflows; the server applies them.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct TextFilter {
    pub(crate) text: Option<String>,
    #[serde(flatten)]
    pub(crate) entries: EntryFilter,
}

impl TextFilter {
    /// Adds the filters to an address of the API.
    pub(crate) fn on(&self, path: ApiPath) -> ApiPath {
        self.entries.on(path.with_some("text", self.text.as_deref()))
    }
}

/// The form of a list's filters.
pub(crate) fn list_filter(filter: &TextFilter) -> Markup {
    html! {
        form.filter method="get" role="search" aria-label="Filter" {
            label.wide { span { "Name or description contains" } input type="text" name="text" value=[filter.text.as_deref()] data-filter autocomplete="off"; }
            details open[filter.entries.is_set()] { summary { "More filters" } (entry_filter_fields(&filter.entries)) }
            button type="submit" { "Filter" }
        }
    }
}

/// The form of a text filter.
pub(crate) fn text_filter(text: Option<&str>) -> Markup {
    html! {
        form.filter method="get" role="search" aria-label="Filter" {
            label.wide { span { "Name or description contains" } input type="text" name="text" value=[text] data-filter autocomplete="off"; }
            button type="submit" { "Filter" }
        }
    }
}

/// Returns true if the page shows forms that change the mesh.
pub(crate) fn may_steer(request: &PageRequest) -> bool {
    request.mode == ConsoleMode::Full
}

/// Why the actions of a page are disabled; `None` if they are not.
pub(crate) fn read_only_reason(request: &PageRequest) -> Option<&'static str> {
    match (may_steer(request), request.is_read_only_role) {
        (true, _) => None,
        (false, true) => Some("Your role is operator, which is read-only."),
        (false, false) => Some("This console is read-only."),
    }
}

/// An action that the user may not perform, with the reason.
pub(crate) fn disabled_action(title: &str, reason: &str) -> Markup {
    html! { button type="button" disabled title=(reason) aria-description=(reason) { (title) } }
}

/// A part of a page that live updates replace.
pub(crate) fn live_part(name: &str, content: &Markup) -> Markup {
    html! { div data-part=(name) { (content) } }
}

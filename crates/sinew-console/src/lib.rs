//! The web console: pages that show a mesh and send commands to it.
//!
//! Place in the data flow: a page calls the REST API of its gateway, within the process, and
//! renders the response documents. A page therefore can do nothing that a program cannot do, and
//! every error has the code of the API.
//!
//! The crate never accesses a mesh and keeps no state; the API enforces the rights of the caller.
//! Text of workflows and agents is data: `maud` escapes it, characters that hide or reorder text
//! become visible, and the content policy allows only the console's own scripts.

mod agent_messages;
mod api_client;
mod api_problem;
mod assets;
mod command_text;
mod confirmations;
mod console_error;
mod console_state;
mod drawing_view;
mod form_guard;
mod form_token;
mod glossary;
mod markdown;
mod page_file;
mod page_frame;
mod page_request;
mod pages;
mod retry_confirmation;
mod routes;
mod schema_form;
mod shown_text;
mod source_text;
mod status_mark;
mod text_diff;
mod time_scale;
mod vendored_editor;

pub use api_client::ApiPort;
pub use console_state::{
    ConsoleCaller, ConsoleMode, ConsoleOptions, ProviderSignIn, ProviderVisit, SignInPort,
};
pub use page_request::BASE;
pub use pages::PROVIDER_RETURN;
pub use routes::{console_router, described_pages};

//! The web console: pages in which people see, understand and steer a mesh.
//!
//! Place in the flow: a page asks the REST API of its gateway, within the process, and renders the documents that it answers
//! with. So a page shows and does nothing that a program could not, and every refusal has the code of the API.
//!
//! The crate never talks to a mesh, decides nothing, and keeps no state. Text of workflows and agents is data: `maud` escapes
//! it, characters that hide or reorder text become visible, and the content policy runs no script but its own files.

mod api_client;
mod api_problem;
mod assets;
mod command_text;
mod confirmations;
mod console_error;
mod console_state;
mod documents;
mod editor_documents;
mod form_guard;
mod form_token;
mod glossary;
mod mesh_documents;
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

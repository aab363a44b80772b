//! The web console: pages over plain HTTP, and in a real browser.

mod browser;
mod chats;
mod desks;
mod figures;
mod flows;
mod glances;
mod graphs;
mod looks;
mod mesh_figures;
mod node_lists;
mod overviews;
mod pages;
mod provider_sign_in;
mod quiet_nodes;
mod recorded_cases;
mod retry_versions;
mod scripted_model;
mod signed_out;
mod views;
mod world;

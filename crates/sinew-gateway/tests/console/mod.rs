//! The web console: pages over plain HTTP, and in a real browser.

mod browser;
mod chats;
mod flows;
mod graphs;
mod looks;
mod pages;
mod views;
mod world;

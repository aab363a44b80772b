//! The web console: pages over plain HTTP, and in a real browser.

mod browser;
mod flows;
mod looks;
mod pages;
mod world;

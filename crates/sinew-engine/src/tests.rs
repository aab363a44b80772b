//! Tests of the engine, case by case and in general.
//!
//! Cases are data: a plan in short hand ([`plan`]), its inputs, and the facts that must follow ([`check`]).
//! After every input of every test the state must be the fold of the journal, as stored ([`world`]).

mod adapter;
mod plan;
mod script;
mod world;

mod children;
mod clocks;
mod failure;
mod hostile;
mod joins;
mod lifecycle;
mod limits;
mod model;
mod modes;
mod operators;
mod order;
mod people;
mod properties;
mod retry;
mod time;
mod wire;

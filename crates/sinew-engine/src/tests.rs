//! Tests of the engine, by case and by property.
//!
//! Cases are data: a plan in short notation ([`plan`]), its inputs, and the expected facts
//! ([`check`]). After every input of every test, the state must equal the fold of the stored
//! journal ([`world`]).

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

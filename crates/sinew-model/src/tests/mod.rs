//! Tests of the whole machine: conversations with scripted models, from every prefix of their logs.

mod budgets;
mod codecs;
mod conversations;
mod discovery;
mod effects;
mod fixture;
mod hostile_bytes;
mod injection;
mod logs;
mod outputs;
mod replay;
mod wire_quirks;
mod wires;

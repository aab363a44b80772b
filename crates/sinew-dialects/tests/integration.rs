//! Tests over all dialects: orders of events, conversions, the kept corpus.

mod any_order;
mod convert;
mod corpus;

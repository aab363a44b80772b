//! Tests over all dialects: orders of events, conversions, the kept corpus, files without warnings.

mod any_order;
mod convert;
mod corpus;
mod quiet_files;

//! Unit tests of rules that several files share.

mod membership;

#![no_main]
#[path = "../src/events.rs"]
mod events;
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| events::events(bytes));

#![no_main]
#[path = "../src/wire.rs"]
mod wire;
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| wire::wire_message(bytes));

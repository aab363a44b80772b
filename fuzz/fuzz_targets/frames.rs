#![no_main]
#[path = "../src/frames.rs"]
mod frames;
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| frames::frames(bytes));

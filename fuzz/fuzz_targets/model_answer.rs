#![no_main]
#[path = "../src/conversations.rs"]
mod conversations;
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| conversations::model_answer(bytes));

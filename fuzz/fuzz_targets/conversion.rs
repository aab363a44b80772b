#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sinew_fuzz::conversion(bytes));

//! Everything that is kept for a target, through the function that the fuzzer calls. For tests.

use std::fs;
use std::path::Path;

/// Places at which each file is cut, beside its end: a message may break off anywhere.
const CUTS: usize = 100;

/// Feeds a target each file that is kept for it, whole and cut.
pub(crate) fn replay(target: &str, check: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut paths: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(paths.len() >= 8, "{} holds next to nothing", folder.display());
    let mut wrong = Vec::new();
    for path in paths {
        let bytes = fs::read(&path).unwrap();
        let places = (0..=bytes.len()).step_by(bytes.len() / CUTS + 1).chain([bytes.len()]);
        for end in places {
            if std::panic::catch_unwind(|| check(&bytes[..end])).is_err() {
                wrong.push(format!("the first {end} bytes of {} broke it", path.display()));
                break;
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

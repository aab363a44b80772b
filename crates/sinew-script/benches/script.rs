//! Compiling and calling, the way an execution does it. Run with `cargo bench -p sinew-script`.

#![expect(clippy::unwrap_used, reason = "a benchmark that cannot be set up should stop")]

use divan::Bencher;
use serde_json::json;
use sinew_script::{Function, use_worker_program};

const FUNCTION: &str = "\
def convert(d):
    v = d['value']
    title = str(v.get('title', '')).strip().upper()
    tags = [t for t in v.get('tags', []) if t]
    level = 'high' if v.get('urgent') else 'normal'
    return {'title': title, 'tags': tags, 'level': level, 'n': len(tags)}
";

fn main() {
    use_worker_program(env!("CARGO_BIN_EXE_sinew-script-worker"));
    divan::main();
}

#[divan::bench]
fn compile_function() -> Function {
    Function::compile(FUNCTION).unwrap()
}

#[divan::bench]
fn call_function(bencher: Bencher<'_, '_>) {
    let function = Function::compile(FUNCTION).unwrap();
    let input = json!({"value": {"title": " hello ", "tags": ["a", "", "b"], "urgent": true}});
    bencher.bench(|| function.call(&input));
}

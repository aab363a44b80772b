//! Compiling and evaluating, the way a run does it. Run with `cargo bench -p sinew-script`.

#![expect(clippy::unwrap_used, reason = "a benchmark that cannot be set up should stop")]

use divan::Bencher;
use serde_json::json;
use sinew_script::{Expression, Function};

const CONDITION: &str = "status == 'ok' and len(items) > 2";
const LOOPING: &str = "status == 'ok' and any(x > 2 for x in items)";
const FUNCTION: &str = "\
def convert(d):
    v = d['value']
    title = str(v.get('title', '')).strip().upper()
    tags = [t for t in v.get('tags', []) if t]
    level = 'high' if v.get('urgent') else 'normal'
    return {'title': title, 'tags': tags, 'level': level, 'n': len(tags)}
";

fn main() {
    divan::main();
}

#[divan::bench]
fn compile_condition() -> Expression {
    Expression::compile(CONDITION, &["status", "items"]).unwrap()
}

#[divan::bench(args = [CONDITION, LOOPING])]
fn test_condition(bencher: Bencher<'_, '_>, source: &str) {
    let condition = Expression::compile(source, &["status", "items"]).unwrap();
    let values = [json!("ok"), json!([1, 2, 3])];
    bencher.bench(|| condition.test(&values));
}

#[divan::bench]
fn eval_condition(bencher: Bencher<'_, '_>) {
    let condition = Expression::compile(CONDITION, &["status", "items"]).unwrap();
    let values = [json!("ok"), json!([1, 2, 3])];
    bencher.bench(|| condition.eval(&values));
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

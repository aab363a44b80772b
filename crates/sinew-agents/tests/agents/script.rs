use serde_json::json;

use crate::fixture::{Fixture, told};

#[tokio::test]
async fn scripts_answer_and_fail() {
    for (script, input, expected) in [
        (
            json!({"source": "lambda order: {'total': order['price'] * order['count']}"}),
            json!({"price": 2, "count": 3}),
            Ok(json!({"total": 6})),
        ),
        (
            json!({"source": "def run(x):\n    return [word.upper() for word in x['words']]\n"}),
            json!({"words": ["a", "b"]}),
            Ok(json!(["A", "B"])),
        ),
        (json!({"file": "double.py"}), json!(21), Ok(json!(42))),
        (
            json!({"source": "lambda x: x['missing']"}),
            json!({}),
            Err("SINEW-3002 failure: the script failed in line 1: KeyError"),
        ),
        (
            json!({"source": "def run(x):\n    while True:\n        pass\n", "timeout": "20ms"}),
            json!({}),
            Err("SINEW-3003 failure"),
        ),
        (
            json!({"source": "def run(x):\n    return open('/etc/passwd').read()\n"}),
            json!({}),
            Err("SINEW-300"),
        ),
    ] {
        let folder = tempfile::TempDir::new().unwrap();
        std::fs::write(folder.path().join("double.py"), "def double(x):\n    return x * 2\n").unwrap();
        let path = folder.path().join("x.agent.json");
        std::fs::write(&path, json!({"name": "x", "run": {"script": script}}).to_string()).unwrap();
        let fixture = Fixture::load(folder, &path);
        match (fixture.output(input).await, expected) {
            (Ok(output), Ok(expected)) => assert_eq!(output, expected, "{script}"),
            (Err(fault), Err(expected)) => {
                assert!(told(&fault).starts_with(expected) && !fault.retryable, "{}", told(&fault));
            }
            (got, expected) => panic!("{script}: {got:?}, expected {expected:?}"),
        }
    }
}

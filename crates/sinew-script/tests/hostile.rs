//! Code that tries to hang, to eat the machine or to reach the host: each case ends soon, as an error or as a
//! harmless value.

use std::time::{Duration, Instant};

use serde_json::json;
use sinew_script::{Function, Limits, ScriptErrorKind, use_worker_program};

/// Far above every limit, far below a hang.
const SOON: Duration = Duration::from_secs(8);

#[derive(Clone, Copy, PartialEq, Debug)]
enum End {
    Error,
    Kind(ScriptErrorKind),
    /// Any error, or a value that says nothing about the host.
    Harmless,
    /// Too slow or too large, whichever is met first.
    Exhausted,
}

use End::{Error, Exhausted, Harmless, Kind};
use ScriptErrorKind::{Memory, Recursion, Syntax, Timeout, Value};

fn check(source: &str, end: End) {
    let shown: String = source.chars().take(70).collect();
    let started = Instant::now();
    use_worker_program(env!("CARGO_BIN_EXE_sinew-script-worker"));
    let source = if source.starts_with("def ") || source.contains("\ndef ") || source.starts_with("lambda") {
        source.to_owned()
    } else {
        format!("lambda x: {source}")
    };
    let result = Function::compile(&source).and_then(|function| function.call(&json!(1)));
    assert!(started.elapsed() < SOON, "{shown}: took {:?}", started.elapsed());
    match (end, &result) {
        (Error | Harmless, Err(_)) => {}
        (Harmless, Ok(value)) => {
            let text = value.to_string();
            assert!(text.len() < 2_000 && !text.contains("root:"), "{shown}: {text:.200}");
        }
        (Exhausted, Err(error)) => assert!(matches!(error.kind, Timeout | Memory), "{shown}: {error:?}"),
        (Kind(kind), Err(error)) => assert_eq!(error.kind, kind, "{shown}: {error:?}"),
        (_, Ok(value)) => unreachable!("{shown}: gave {:.200}", value.to_string()),
    }
}

fn body(lines: &str) -> String {
    format!("def f(d):\n{}", lines.lines().flat_map(|line| ["    ", line, "\n"]).collect::<String>())
}

#[test]
fn endless_work() {
    for (lines, end) in [
        ("while True: pass", Kind(Timeout)),
        ("try:\n    while True: pass\nexcept BaseException:\n    return 1", Kind(Timeout)),
        ("try:\n    while True: pass\nfinally:\n    while True: pass", Kind(Timeout)),
        ("for i in range(10 ** 12): pass", Kind(Timeout)),
        ("return sum(range(10 ** 12))", Kind(Timeout)),
        ("return [0 for i in range(10 ** 10)]", Error),
        ("l = [1]\nfor i in l: l.append(i)", Error),
        ("return any(x < 0 for x in range(10 ** 12))", Kind(Timeout)),
        ("import itertools\nfor i in itertools.count(): pass", Error),
        ("import itertools\nreturn list(itertools.repeat(1))", Error),
        ("import re\nreturn bool(re.match('(a+)+$', 'a' * 40 + 'b'))", Harmless),
        ("import re\nreturn bool(re.match(r'(a|aa)+\\1$', 'a' * 60 + 'b'))", Harmless),
        ("import re\nreturn re.sub('(x+x+)+y', '', 'x' * 2000)[:9]", Harmless),
        ("import re\nre.compile('(' * 3000 + ')' * 3000)", Error),
        ("import re\nre.compile(r'(\\w{1,1000}){1,1000}')", Harmless),
    ] {
        check(&body(lines), end);
    }
}

#[test]
fn bombs() {
    for (lines, end) in [
        ("return 'a' * 10 ** 9", Kind(Memory)),
        ("return [0] * 10 ** 10", Kind(Memory)),
        ("return (0,) * 10 ** 10", Kind(Memory)),
        ("return b'a' * 10 ** 10", Kind(Memory)),
        ("return 10 ** 10 ** 8", Kind(Memory)),
        ("return 1 << 10 ** 10", Kind(Memory)),
        ("return pow(10, 10 ** 8)", Kind(Memory)),
        ("return pow(7, 10 ** 2000, 10 ** 2000 + 1)", Error),
        ("global pow\ndel pow\nreturn pow(7, 10 ** 20000, 10 ** 20000 + 1)", Error),
        ("return len(str(3 ** 100000))", Error),
        ("return list(range(10 ** 9))", Error),
        ("return 'a'.ljust(10 ** 9)", Kind(Memory)),
        ("return 'a'.zfill(10 ** 9)", Kind(Memory)),
        ("return f'{1:>1000000000}'", Error),
        ("return '{:>1000000000}'.format(1)", Error),
        ("return ('a' * 10000).replace('a', 'b' * 10000)", Kind(Memory)),
        ("return ('a' * 3000).join(['b'] * 3000)", Error),
        ("s = 'a'\nwhile True: s += s", Error),
        ("l = [0]\nwhile True: l = l + l", Error),
        ("l = []\nwhile True: l.append('x' * 1000)", Error),
        ("s = {0}\ni = 0\nwhile True:\n    i += 1\n    s.add(i)", Error),
        ("a = []\nfor i in range(40): a = [a, a]\nreturn a", Error),
        ("a = 'x' * 1000\nfor i in range(40): a = {'l': a, 'r': a}\nreturn a", Error),
        ("a = []\nfor i in range(40): a = [a, a]\nreturn str(a)", Error),
        ("a = []\nfor i in range(40): a = [a, a]\nreturn a == [a, a]", Harmless),
        ("import json\nreturn json.loads('[' * 100000)", Error),
        ("import json\na = []\nfor i in range(50): a = [a, a]\nreturn json.dumps(a)", Error),
        ("x = 10 ** 1000\nfor i in range(60): x = x * x\nreturn 1", Error),
        ("raise ValueError('x' * 3000000)", Error),
    ] {
        check(&body(lines), end);
    }
}

/// Scripts beyond the interpreter's own limits: each of them ended its process, or never ended.
#[test]
fn bombs_that_only_a_process_of_their_own_survives() {
    for (lines, end) in [
        ("import json\nreturn json.dumps([1], indent=10 ** 12)", Kind(Memory)),
        ("import json\nreturn json.dumps({'a': [1]}, indent=10 ** 10)", Kind(Memory)),
        ("import json\nreturn json.dumps([[1]], indent='x' * 4000000)", Harmless),
        ("import json\nreturn len(json.dumps([[1] * 1000] * 100, indent='x' * 1000000))", Exhausted),
        ("import json\nreturn len(json.dumps([1] * 100000, separators=('x' * 100000, ':')))", Exhausted),
        ("import json\nreturn len(json.dumps([1] * 1000, separators=(',' * 1000000, ':')))", Exhausted),
        (
            "import json\nreturn len(json.dumps({str(i): 1 for i in range(1000)}, separators=(',', ':' * 1000000)))",
            Exhausted,
        ),
        ("a, b = [], []\nfor i in range(40): a, b = [a, a], [b, b]\nreturn a == b", Exhausted),
        ("a, b = (), ()\nfor i in range(40): a, b = (a, a), (b, b)\nreturn a < b", Exhausted),
        (
            "a, b = {}, {}\nfor i in range(40): a, b = {'l': a, 'r': a}, {'l': b, 'r': b}\nreturn a == b",
            Exhausted,
        ),
        ("a = ()\nfor i in range(40): a = (a, a)\nreturn hash(a)", Harmless),
        ("a = []\nfor i in range(40): a = [a, a]\nreturn repr(a)", Exhausted),
        ("l = []\nwhile True: l.append('x' * 1000000)", Exhausted),
        ("l = []\nwhile True: l.append([0] * 100000)", Exhausted),
        ("d = {}\ni = 0\nwhile True:\n    d[i] = 'x' * 10000\n    i += 1", Exhausted),
    ] {
        check(&body(lines), end);
    }
}

#[test]
fn a_bomb_costs_its_worker_and_no_capacity() {
    use_worker_program(env!("CARGO_BIN_EXE_sinew-script-worker"));
    let innocent = Function::compile("lambda d: d + 1").unwrap();
    let bomb = Function::compile("lambda d: json.dumps([d], indent=10 ** 12)").unwrap();
    for round in 0..20 {
        assert_eq!(bomb.call(&json!(1)).unwrap_err().kind, Memory);
        assert_eq!(innocent.call(&json!(round)), Ok(json!(round + 1)));
    }
}

/// A bomb of the table as a function: `;` ends a line, `> ` at the start of a line is a level of indent.
fn function_of(bomb: &str) -> String {
    let statements = ["while", "for ", "raise", "assert", "try"];
    let returns = !bomb.contains(';') && !statements.iter().any(|word| bomb.starts_with(word));
    let mut text = String::from("import json\ndef f(d):\n");
    for line in bomb.split(';') {
        let inner = line.trim_start_matches("> ");
        text.push_str(&"    ".repeat(1 + (line.len() - inner.len()) / 2));
        text.push_str(if returns { "return " } else { "" });
        text.push_str(inner);
        text.push('\n');
    }
    text
}

/// The whole table: each bomb ends with an error that has a code, or with a small value, within its deadline; workers are
/// free for others right after, and this process has not grown.
#[test]
fn every_bomb_of_the_table_ends_soon_and_costs_no_capacity() {
    use_worker_program(env!("CARGO_BIN_EXE_sinew-script-worker"));
    let limits = Limits { max_duration: Duration::from_millis(50), ..Limits::function() };
    let bombs: Vec<&str> = include_str!("bombs.txt")
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with("# "))
        .collect();
    assert!(bombs.len() >= 150, "{}", bombs.len());
    let innocent = Function::compile("lambda d: d + 1").unwrap();
    let before = resident_kib();
    let next = std::sync::atomic::AtomicUsize::new(0);
    let ended = std::sync::Mutex::new(std::collections::BTreeMap::new());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while let Some(bomb) = bombs.get(next.fetch_add(1, std::sync::atomic::Ordering::SeqCst)) {
                    let started = Instant::now();
                    let result = Function::compile_with(&function_of(bomb), limits.clone())
                        .and_then(|function| function.call(&json!(1)));
                    let took = started.elapsed();
                    assert!(took < SOON, "{bomb}: took {took:?}");
                    let end = match result {
                        Ok(value) => {
                            assert!(value.to_string().len() < 1_200_000, "{bomb}");
                            "a value"
                        }
                        Err(error) => {
                            use ScriptErrorKind::{Internal, Syntax, Unavailable};
                            let ours = [Internal, Syntax, Unavailable].contains(&error.kind);
                            assert!(!ours, "{bomb}: {error:?}");
                            error.code()
                        }
                    };
                    let mut ended = ended.lock().unwrap();
                    ended.entry(end).or_insert_with(Vec::new).push((took, *bomb));
                    drop(ended);
                    assert_eq!(innocent.call(&json!(1)), Ok(json!(2)), "after {bomb}");
                }
            });
        }
    });
    for (end, all) in ended.into_inner().unwrap() {
        let slowest = all.iter().max().unwrap();
        println!("{end}: {} bombs, the slowest took {:?}: {}", all.len(), slowest.0, slowest.1);
    }
    let grown = resident_kib().saturating_sub(before);
    println!("this process grew by {grown} KiB");
    assert!(grown < 64 * 1024, "{grown} KiB");
}

/// Memory of this process, in kibibytes.
fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS"));
    line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok()).unwrap_or_default()
}

/// Short scripts, and the process that asks for them, find a core however many long ones there are.
#[test]
#[cfg(target_os = "linux")]
fn a_long_script_leaves_one_core_to_others() {
    use_worker_program(env!("CARGO_BIN_EXE_sinew-script-worker"));
    let cores = std::thread::available_parallelism().unwrap().get();
    let limits = Limits { max_duration: Duration::from_secs(2), ..Limits::function() };
    let endless = Function::compile_with("def f(d):\n    while True: pass", limits).unwrap();
    let running = std::thread::spawn(move || endless.call(&json!(1)));
    while cores > 1 && !cores_of_workers().contains(&(cores - 1)) {
        assert!(!running.is_finished(), "the script ran on {:?} of {cores} cores", cores_of_workers());
        std::thread::yield_now();
    }
    assert_eq!(running.join().unwrap().unwrap_err().kind, Timeout);
}

/// Numbers of cores that the threads of this process's children may use.
#[cfg(target_os = "linux")]
fn cores_of_workers() -> Vec<usize> {
    let read = |path: std::path::PathBuf| std::fs::read_to_string(path).unwrap_or_default();
    let list = |path: std::path::PathBuf| std::fs::read_dir(path).into_iter().flatten().flatten();
    let own = std::process::id().to_string();
    list("/proc".into())
        .filter(|process| {
            let stat = read(process.path().join("stat"));
            stat.rsplit(')').next().unwrap_or_default().split_whitespace().nth(1) == Some(&*own)
        })
        .flat_map(|process| list(process.path().join("task")))
        .map(|thread| {
            let status = read(thread.path().join("status"));
            let mask = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed:")).unwrap_or_default();
            mask.chars().filter_map(|digit| digit.to_digit(16)).map(|digit| digit.count_ones() as usize).sum()
        })
        .collect()
}

/// Printed, not judged: machines differ. The aim is one millisecond for a warm call.
#[test]
fn time_of_a_warm_call() {
    use_worker_program(env!("CARGO_BIN_EXE_sinew-script-worker"));
    let function = Function::compile("lambda d: {'title': d['value'].upper()}").unwrap();
    let mut times: Vec<_> = (0..200)
        .map(|_| {
            let started = Instant::now();
            function.call(&json!({"value": "hello"})).unwrap();
            started.elapsed()
        })
        .collect();
    times.sort();
    println!("warm call: median {:?}, 99 % {:?}", times[100], times[198]);
}

#[test]
fn recursion() {
    check("def f(n): return f(1)", Kind(Recursion));
    check("(f := lambda n: f(n + 1))(0)", Error);
    check("def f(n):\n    try:\n        return f(n)\n    except RecursionError:\n        return f(n)", Error);
    check("def f(n):\n    a = []\n    for i in range(1000): a = [a]\n    return a", Kind(Value));
    check("def f(n):\n    a = []\n    for i in range(10 ** 5): a = [a]\n    return str(a)", Harmless);
    check("def f(n):\n    a = []\n    for i in range(10 ** 5): a = (a,)\n    return hash(a)", Harmless);
    check("def f(n): return sorted([2, 1], key=lambda x: f(x))", Error);
}

#[test]
fn parser_bombs() {
    for (open, middle, close) in
        [("(", "1", ")"), ("[", "", "]"), ("{1:", "1", "}"), ("-", "1", ""), ("not ", "1", "")]
    {
        check(&format!("{}{middle}{}", open.repeat(9_000), close.repeat(9_000)), Kind(Syntax));
    }
    check(&"lambda: ".repeat(8_000), Kind(Syntax));
    check(&format!("x{}", ".a".repeat(30_000)), Error);
    check(&format!("x{}", "[0]".repeat(20_000)), Error);
    check(&"1 + ".repeat(16_000), Kind(Syntax));
    check(&format!("{}1", "1 if x else ".repeat(5_000)), Error);
    check(&format!("f'{}'", "{".repeat(20_001)), Kind(Syntax));
    check(
        &format!("def f(d):\n{}", (0..300).map(|n| " ".repeat(n + 1) + "if d:\n").collect::<String>()),
        Kind(Syntax),
    );
    check("\0", Kind(Syntax));
    check("'\\ud800'", Harmless);
}

#[test]
fn the_host_is_out_of_reach() {
    for module in [
        "os",
        "sys",
        "subprocess",
        "socket",
        "shutil",
        "ctypes",
        "importlib",
        "builtins",
        "pickle",
        "threading",
        "http.client",
        "urllib.request",
        "inspect",
        "gc",
    ] {
        check(&body(&format!("import {module}\nreturn str({module}.environ)")), Error);
    }
    for lines in [
        "return open('/etc/passwd').read()",
        "open('sinew-script-was-here', 'w').write('x')",
        "from pathlib import Path\nreturn Path('/etc/passwd').read_text()",
        "from pathlib import Path\nreturn Path('/').exists()",
        "import os\nreturn os.getcwd()",
        "import os\nreturn os.environ['PATH']",
        "from os import *\nreturn getenv('PATH')",
        "import datetime\nreturn str(datetime.datetime.now())",
        "return __import__('os').getcwd()",
        "return eval('1')",
        "exec('import os')",
        "return compile('1', 'x', 'eval')",
        "return globals()",
        "return input()",
        "breakpoint()",
        "return ().__class__.__bases__[0].__subclasses__()",
        "return (lambda: 0).__globals__",
        "return f.__code__",
        "return getattr((), '__class__')",
        "return getattr(f, '__' + 'globals__')",
        "return '{0.__class__}'.format(d)",
        "return '{0.__class__.__init__.__globals__}'.format(f)",
        "return f'{f.__globals__}'",
        "return __builtins__",
        "import json\nreturn json.__dict__",
        "import json\nreturn json.decoder.os",
        "return type(d).__mro__",
        "return type('X', (), {})",
        "try:\n    open('/etc/passwd')\nexcept BaseException:\n    return 'caught'\n",
        "exit()",
        "raise SystemExit",
    ] {
        let end = if lines.contains("caught") { Harmless } else { Error };
        check(&body(lines), end);
    }
    assert!(!std::path::Path::new("sinew-script-was-here").exists());
}

#[test]
fn our_own_lines_hold() {
    for (source, end) in [
        (
            "import json\njson.dumps = lambda *a, **k: ''\ndef f(d):\n    a = []\n    for i in range(40): a = [a, a]\n    return a",
            Error,
        ),
        (
            "class json:\n    pass\ndef f(d):\n    a = []\n    for i in range(40): a = [a, a]\n    return a",
            Error,
        ),
        ("class C:\n    def __repr__(self): return 'x'\ndef f(d):\n    return C()", Kind(Value)),
        ("def f(d):\n    return 1\n'''", Kind(Syntax)),
        ("def f(d):\n    return 1\n(", Kind(Syntax)),
        ("def f(d):\n    return 1\nif 0:", Kind(Syntax)),
        ("def f(d):\n    return 1\nif 0: \\", Kind(Syntax)),
        ("async def g(): pass\ndef f(d):\n    return g()", Error),
        ("def f(d):\n    yield 1", Error),
    ] {
        check(source, end);
    }
}

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use sinew_agents::{ArtifactFolder, ArtifactLimits, Artifacts};
use tempfile::TempDir;

/// Names that lead out of the folder, hide, or look like another one.
fn hostile() -> Vec<String> {
    let mut names: Vec<String> = [
        "",
        ".",
        "..",
        "...",
        "/",
        "//",
        "\\",
        "/etc/passwd",
        "\\\\server\\share",
        "../x",
        "..\\x",
        "../../../../tmp/x",
        "a/../b",
        "a/b",
        "a\\b",
        "./a",
        "a/.",
        "a/..",
        "~/../x/y",
        "C:",
        "C:\\x",
        "c:x",
        "a:b",
        "a::$DATA",
        "file:///etc/passwd",
        "artifact://a/b/c/d",
        "a\0b",
        "\0",
        "a\nb",
        "a\r\nb",
        "a\tb",
        "\u{1b}[31m",
        "a\u{7f}b",
        "a\u{85}b",
        "con",
        "CON",
        "Con.txt",
        "prn",
        "aux.json",
        "nul",
        "NUL.tar.gz",
        "com1",
        "COM9.log",
        "lpt1",
        "lpt0.txt",
        " a",
        "a ",
        "\u{a0}a",
        "a\u{3000}",
        "a.",
        "a..",
        "e\u{301}.txt",
        "A\u{30a}",
        "\u{212b}.txt",
        "\u{1112}\u{1161}",
        "a\u{202e}txt.exe",
        "a\u{200b}b",
        "a\u{feff}b",
        "\u{2066}a",
        "a\u{2028}b",
        "a\u{2029}b",
        "a\u{200d}b",
        "a\u{200e}b",
        "a\u{2060}b",
        "../index.jsonl",
        "objects/x",
        "..%2fx/y",
    ]
    .map(str::to_owned)
    .to_vec();
    names.extend(["a".repeat(256), "ü".repeat(128), "a".repeat(100_000), format!("{}x", "../".repeat(50))]);
    names
}

/// Every file below a folder.
fn files(folder: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        }
        found.insert(path.to_string_lossy().into_owned());
    }
    found
}

#[test]
fn hostile_names_are_refused_and_write_nothing() {
    let names = hostile();
    assert!(names.len() >= 60);
    let outer = TempDir::new().unwrap();
    let folder = ArtifactFolder::open(outer.path().join("inner/artifacts")).unwrap();
    let before = files(outer.path());
    for name in &names {
        let error = folder.put(name, b"x", None).expect_err(name);
        assert_eq!(error.code(), "SINEW-5001", "{name:?}: {error}");
        assert_eq!(folder.get(name, None).expect_err(name).code(), "SINEW-5001", "{name:?}");
        assert!(!error.to_string().chars().any(char::is_control), "{name:?} reaches the terminal");
    }
    assert_eq!(files(outer.path()), before);
}

#[test]
fn legal_names_come_back_and_never_become_paths() {
    let outer = TempDir::new().unwrap();
    let folder = ArtifactFolder::open(outer.path()).unwrap();
    let names = [
        "a",
        "A",
        "a.json",
        ".hidden",
        "-rf",
        "$(id)",
        "`id`",
        "a b",
        "a'b\"c",
        "%2e%2e",
        "..a",
        "a..b",
        "größe.txt",
        "结果.md",
        "😀.png",
        "*",
        "?",
        "|",
        "<script>",
        "index.jsonl",
        "objects",
        "é.txt",
        "~",
        "&",
        "com10",
        "null",
        "con_",
    ];
    let longest = "é".repeat(127);
    for name in names.into_iter().chain([longest.as_str()]) {
        folder.put(name, name.as_bytes(), None).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    for name in names {
        assert_eq!(folder.get(name, None).unwrap(), name.as_bytes(), "{name}");
    }
    let is_hash = |name: &str| name.len() == 64 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
    for entry in std::fs::read_dir(outer.path().join("objects")).unwrap() {
        assert!(is_hash(entry.unwrap().file_name().to_str().unwrap()));
    }
    assert_eq!(folder.list().unwrap().len(), names.len() + 1);
}

#[test]
fn versions_count_from_zero_and_stay() {
    let outer = TempDir::new().unwrap();
    let folder = ArtifactFolder::open(outer.path()).unwrap();
    for (version, bytes) in [b"one".as_slice(), b"two", b"one", b""].iter().enumerate() {
        let reference = folder.put("a.txt", bytes, None).unwrap();
        assert_eq!(reference.to_string(), format!("a.txt:v{version}"));
    }
    folder.put("b.bin", b"x", Some("image/x-own")).unwrap();
    let again = ArtifactFolder::open(outer.path()).unwrap();
    for folder in [&folder, &again] {
        for (version, bytes) in
            [(Some(0), "one"), (Some(1), "two"), (Some(2), "one"), (Some(3), ""), (None, "")]
        {
            assert_eq!(folder.get("a.txt", version).unwrap(), bytes.as_bytes(), "{version:?}");
        }
        let shown: Vec<_> = folder
            .list()
            .unwrap()
            .iter()
            .map(|meta| format!("{}:v{} {} {}", meta.name, meta.version, meta.media_type, meta.size))
            .collect();
        assert_eq!(
            shown,
            [
                "a.txt:v0 text/plain 3",
                "a.txt:v1 text/plain 3",
                "a.txt:v2 text/plain 3",
                "a.txt:v3 text/plain 0",
                "b.bin:v0 image/x-own 1"
            ]
        );
        for (name, version) in [("a.txt", Some(4)), ("a.txt", Some(u32::MAX)), ("c", None), ("A.TXT", None)] {
            assert_eq!(folder.get(name, version).unwrap_err().code(), "SINEW-5041", "{name} {version:?}");
        }
    }
}

#[test]
fn many_writers_at_once_lose_nothing() {
    let outer = TempDir::new().unwrap();
    // Two views of one folder stand for two processes.
    let views = [(); 2].map(|()| Arc::new(ArtifactFolder::open(outer.path()).unwrap()));
    std::thread::scope(|scope| {
        for writer in 0..8 {
            let view = views[writer % 2].clone();
            scope.spawn(move || {
                for turn in 0..20 {
                    view.put("shared", format!("{writer}-{turn}").as_bytes(), None).unwrap();
                }
            });
        }
    });
    for view in views {
        let all: BTreeSet<_> = (0..160).map(|version| view.get("shared", Some(version)).unwrap()).collect();
        assert_eq!(all.len(), 160);
    }
}

#[test]
fn survives_a_crash_in_the_middle_of_a_line() {
    let outer = TempDir::new().unwrap();
    let index = outer.path().join("index.jsonl");
    ArtifactFolder::open(outer.path()).unwrap().put("a", b"one", None).unwrap();
    let whole = std::fs::read(&index).unwrap();
    for cut in 0..whole.len() {
        std::fs::write(&index, [&whole, &whole[..cut]].concat()).unwrap();
        let folder = ArtifactFolder::open(outer.path()).unwrap();
        assert_eq!(folder.put("a", b"two", None).unwrap().to_string(), "a:v1", "{cut}");
        assert_eq!(
            (folder.get("a", Some(0)).unwrap(), folder.get("a", None).unwrap()),
            (b"one".to_vec(), b"two".to_vec()),
            "{cut}"
        );
    }
}

#[test]
fn damage_is_found() {
    let outer = TempDir::new().unwrap();
    let folder = ArtifactFolder::open(outer.path()).unwrap();
    let reference = folder.put("a", b"payload", None).unwrap();
    let meta = folder.meta("a", reference.version).unwrap();
    let object = outer.path().join("objects").join(&meta.sha256);
    for changed in [b"paylOad".as_slice(), b"payload!", b""] {
        std::fs::write(&object, changed).unwrap();
        assert_eq!(folder.get("a", None).unwrap_err().code(), "SINEW-5003", "{changed:?}");
    }
    let line = std::fs::read_to_string(outer.path().join("index.jsonl")).unwrap();
    for bad in [
        "nonsense\n".to_owned(),
        "\n".to_owned(),
        line.clone(), // version 0 twice
        line.replace("\"version\":0", "\"version\":7"),
        line.replace(&meta.sha256, "../../../../etc/passwd"),
        line.replace("\"name\":\"a\"", "\"name\":\"../a\""),
    ] {
        std::fs::write(outer.path().join("index.jsonl"), format!("{line}{bad}")).unwrap();
        let error = ArtifactFolder::open(outer.path()).unwrap_err();
        assert_eq!(
            (error.code(), error.to_string().as_str()),
            ("SINEW-5043", "line 2 of the artifact index is damaged"),
            "{bad}"
        );
    }
}

#[test]
fn limits_hold() {
    let outer = TempDir::new().unwrap();
    let folder = ArtifactFolder::with_limits(outer.path(), ArtifactLimits { each: 10, total: 25 }).unwrap();
    for (bytes, fits) in [(11, false), (10, true), (10, true), (6, false), (5, true), (1, false), (0, true)] {
        let result = folder.put("a", &vec![b'x'; bytes], None);
        assert_eq!(result.is_ok(), fits, "{bytes}");
        if let Err(error) = result {
            assert_eq!(error.code(), "SINEW-5042");
        }
    }
}

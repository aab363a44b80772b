use std::collections::BTreeMap;
use std::fs;

use super::*;

/// A user's configuration folder with these contexts, and the environment of a process.
struct World {
    home: tempfile::TempDir,
    variables: BTreeMap<&'static str, String>,
}

impl World {
    fn new(contexts: &[(&str, &str)], selected: &str, variables: &[(&'static str, &str)]) -> Self {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join(".config/nats/context");
        fs::create_dir_all(&folder).unwrap();
        for (name, text) in contexts {
            fs::write(folder.join(format!("{name}.json")), text).unwrap();
        }
        fs::write(home.path().join(".config/nats/context.txt"), format!("{selected}\n")).unwrap();
        let mut variables: BTreeMap<_, _> = variables.iter().map(|(k, v)| (*k, (*v).to_owned())).collect();
        variables.insert("HOME", home.path().to_str().unwrap().to_owned());
        Self { home, variables }
    }

    fn settle(&self, given: Connect) -> Result<ConnectionSettings, MeshError> {
        given.settle(&|name| self.variables.get(name).cloned())
    }

    /// The settings as one line: address, credentials, origin of the address.
    fn line(&self, given: Connect) -> String {
        let settings = self.settle(given).unwrap();
        let auth = match settings.auth.clone() {
            ConnectionCredentials::Nobody => "nobody".to_owned(),
            ConnectionCredentials::Creds(path) => format!("creds {}", path.display()),
            ConnectionCredentials::Nkey(path) => format!("nkey {}", path.display()),
            ConnectionCredentials::User(user, password) => format!("user {user} {password}"),
            ConnectionCredentials::Token(token) => format!("token {token}"),
            ConnectionCredentials::Jwt { jwt, seed } => format!("jwt {jwt} {seed}"),
        };
        let line = format!("{} | {auth}", settings.address());
        line.replace(self.home.path().to_str().unwrap(), "~")
    }
}

fn url(url: &str) -> Connect {
    Connect { url: Some(url.into()), ..Connect::default() }
}

const CONTEXTS: [(&str, &str); 7] = [
    ("prod", r#"{"description": "x", "url": "nats://prod:4333", "user": "pat", "password": "secret"}"#),
    ("keys", r#"{"url": "tls://keys", "creds": "~/k.creds", "user": "", "color_scheme": "red"}"#),
    ("token", r#"{"url": "a:1,b:2", "token": "t", "inbox_prefix": "_INBOX.me", "jetstream_domain": "hub"}"#),
    ("jwt", r#"{"url": "a", "user_jwt": "j", "user_seed": "s"}"#),
    ("nowhere", r#"{"user": "pat", "password": "secret"}"#),
    ("nsc", r#"{"url": "a", "nsc": "nsc://operator/account/user"}"#),
    ("broken", "{\"password\": \"hunter2\", \"url\": 7}"),
];

#[test]
fn given_before_environment_before_context_before_localhost() {
    let plain = |variables: &[(&'static str, &str)]| World::new(&CONTEXTS, "", variables);
    let selected = |variables: &[(&'static str, &str)]| World::new(&CONTEXTS, "prod", variables);
    let context = |name: &str| Connect { context: Some(name.into()), ..Connect::default() };
    let cases = [
        (plain(&[]), Connect::default(), "localhost:4222 (the default) | nobody"),
        (plain(&[("NATS_URL", "x:1")]), Connect::default(), "x:1 (from NATS_URL) | nobody"),
        (plain(&[("NATS_URL", "x:1")]), url("y"), "y:4222 (as given) | nobody"),
        (plain(&[("NATS_URL", "")]), url(""), "localhost:4222 (the default) | nobody"),
        (selected(&[]), Connect::default(), "prod:4333 (from context prod) | user pat secret"),
        // A selected context's password is for its server.
        (selected(&[]), url("y"), "y:4222 (as given) | nobody"),
        (selected(&[("NATS_URL", "x")]), Connect::default(), "x:4222 (from NATS_URL) | nobody"),
        // A named context must exist.
        (selected(&[("NATS_CONTEXT", "prod")]), url("y"), "y:4222 (as given) | user pat secret"),
        (
            selected(&[("NATS_CONTEXT", "keys")]),
            Connect::default(),
            "keys:4222 (from context keys) | creds ~/k.creds",
        ),
        (selected(&[("NATS_CONTEXT", "keys")]), context("token"), "a:1,b:2 (from context token) | token t"),
        (plain(&[]), context("jwt"), "a:4222 (from context jwt) | jwt j s"),
        (plain(&[]), context("nowhere"), "localhost:4222 (the default) | user pat secret"),
        // Credentials come from one source.
        (selected(&[("NATS_CREDS", "/c")]), Connect::default(), "prod:4333 (from context prod) | creds /c"),
        (
            selected(&[("NATS_USER", "u"), ("NATS_PASSWORD", "p")]),
            Connect { nkey: Some("/n".into()), ..Connect::default() },
            "prod:4333 (from context prod) | nkey /n",
        ),
        (selected(&[("NATS_USER", "u")]), Connect::default(), "prod:4333 (from context prod) | token u"),
        (plain(&[]), url("nats://u%40x:p%3a@h:1"), "h:1 (as given) | user u@x p:"),
        (plain(&[]), url("nats://tok@h:1, nats://h:2"), "h:1,h:2 (as given) | token tok"),
        (
            plain(&[("NATS_USER", "e"), ("NATS_PASSWORD", "p")]),
            url("nats://u:p@h"),
            "h:4222 (as given) | user u p",
        ),
        (plain(&[]), url("[::1]:7"), "::1:7 (as given) | nobody"),
    ];
    for (world, given, line) in cases {
        assert_eq!(world.line(given), line);
    }
}

#[test]
fn the_rest_of_a_context_counts() {
    let world = World::new(&CONTEXTS, "token", &[("NATS_TIMEOUT", "1m0.5s"), ("SINEW_NAMESPACE", "mine")]);
    let settings = world.settle(Connect::default()).unwrap();
    assert_eq!(settings.inbox.as_deref(), Some("_INBOX.me"));
    assert_eq!(settings.domain.as_deref(), Some("hub"));
    assert_eq!(settings.timeout, Duration::from_millis(60_500));
    assert_eq!(settings.namespace, "mine");
    let settings = world.settle(Connect { namespace: Some("other".into()), ..url("a") }).unwrap();
    assert_eq!((settings.namespace.as_str(), settings.inbox), ("other", None));
}

type Variables = &'static [(&'static str, &'static str)];
const NO: Variables = &[];

#[test]
fn what_cannot_be_used_is_named_and_never_shown() {
    let context = |name: &str| Connect { context: Some(name.into()), ..Connect::default() };
    let cases = [
        (NO, context("missing"), "SINEW-7018 not found"),
        (&[], context("missing"), "SINEW-7018 available contexts: broken, jwt, keys"),
        (&[], context("../prod"), "SINEW-7018 not a valid context name"),
        (&[], context("a/b"), "SINEW-7018 not a valid context name"),
        (&[], context("nsc"), "SINEW-7018 `nsc` is not supported"),
        (&[], context("broken"), "SINEW-7018 broken.json:1:"),
        (&[("HOME", "relative")], context("prod"), "SINEW-7018 neither HOME nor XDG_CONFIG_HOME"),
        (&[], url("http://hunter2@h"), "SINEW-7020 as given: not the address"),
        (&[], url("nats://:hunter2@h"), "SINEW-7020 as given: not the address"),
        (&[], url("nats://hunter2:hunter2@"), "SINEW-7020 as given: not the address"),
        (&[], url("nats://u:%ffhunter2@h"), "SINEW-7020 as given: not the address"),
        (&[], url(" , "), "SINEW-7020 as given: not the address"),
        (&[("NATS_PASSWORD", "hunter2")], Connect::default(), "SINEW-7020 NATS_PASSWORD"),
        (&[("NATS_CERT", "/c")], Connect::default(), "SINEW-7020 NATS_KEY"),
        (&[("NATS_KEY", "/k")], Connect::default(), "SINEW-7020 NATS_CERT"),
        (&[("NATS_TIMEOUT", "soon")], Connect::default(), "SINEW-7020 NATS_TIMEOUT"),
        (&[("NATS_TIMEOUT", "0s")], Connect::default(), "SINEW-7020 NATS_TIMEOUT"),
    ];
    for (variables, given, expected) in cases {
        let mut world = World::new(&CONTEXTS, "", &[]);
        world.variables.extend(variables.iter().map(|(name, value)| (*name, (*value).to_owned())));
        let Err(error) = world.settle(given) else { panic!("{expected}: no error") };
        let said = format!("{} {error}", error.code());
        let (code, words) = expected.split_at(10);
        assert!(said.starts_with(code) && said.contains(words.trim()), "{expected}: {said}");
        assert!(!said.contains("hunter2"), "{said}");
    }
    let given = Connect { password: Some("hunter2".into()), ..url("nats://u:hunter2@h") };
    assert!(!format!("{given:?}").contains("hunter2"));
}

#[test]
fn durations_are_read_as_go_writes_them() {
    for (text, millis) in [
        ("5s", Some(5_000)),
        ("500ms", Some(500)),
        ("1m30s", Some(90_000)),
        ("0.5h", Some(1_800_000)),
        ("2000us", Some(2)),
        ("5", None),
        ("", None),
        ("s", None),
        ("5 s", None),
        ("-5s", None),
        ("1e400s", None),
        ("99999999999999999999h", None),
        ("1.2.3s", None),
    ] {
        assert_eq!(go_duration(text), millis.map(Duration::from_millis), "{text}");
    }
}

#[test]
fn credentials_name_their_user() {
    let jwt = |claims: &str| format!("head.{}.sig", BASE64URL_NOPAD.encode(claims.as_bytes()));
    let creds = |claims: &str| format!("-----BEGIN NATS USER JWT-----\n{}\n------END\n", jwt(claims));
    assert_eq!(name_in(&creds(r#"{"name": "billing"}"#)).as_deref(), Some("billing"));
    for nameless in [creds("{}"), creds(r#"{"name": ""}"#), creds("no json"), "a.!.b".into(), String::new()] {
        assert_eq!(name_in(&nameless), None, "{nameless}");
    }
}

#[test]
fn a_caller_without_credentials_is_readable() {
    let named = caller_of(&|name| (name == "USER").then(|| "pat o'brien".to_owned()));
    assert!(named.starts_with("pat-o-brien"), "{named}");
    assert_eq!(Token::of(&named).as_str(), named);
}

#[test]
fn clients_come_back_apart_from_each_other_and_never_too_late() {
    for attempt in [0, 1, 2, 5, 10, 11, 100, usize::MAX] {
        let (soonest, latest) = (reconnect_after(attempt, 0.0), reconnect_after(attempt, 1.0));
        assert!(
            soonest >= Duration::from_millis(5) && latest <= LONGEST_WAIT && soonest * 2 == latest,
            "{attempt}"
        );
    }
    assert_eq!(reconnect_after(1, 1.0), SHORTEST_WAIT);
    assert_eq!(reconnect_after(100, 1.0), LONGEST_WAIT);
}

#[test]
fn losses_that_come_together_or_often_are_the_work_of_messages() {
    let begin = Instant::now();
    for (seconds, screened) in [
        (&[0][..], false),
        (&[0, 5], true),
        (&[0, 40], false),
        (&[0, 40, 80, 120], false),
        (&[0, 40, 80, 120, 160], true),
        (&[0, 1_800, 3_700, 5_500, 7_300, 9_100], false),
    ] {
        let mut record = LossRecord::default();
        let last = seconds.iter().map(|at| record.lost(begin + Duration::from_secs(*at), true)).last();
        assert_eq!(last, Some(screened), "{seconds:?}");
    }
}

#[test]
fn a_loss_without_a_word_from_a_server_that_goes_on_is_the_work_of_a_message() {
    let begin = Instant::now();
    for (is_explained, milliseconds, server, screened) in [
        (false, 100, "same", true),
        (false, 100, "restarted", false),
        (true, 100, "same", false),
        (false, 2_100, "same", false),
    ] {
        let mut record = LossRecord::default();
        assert!(!record.connected(begin, "same".to_owned()), "the first connection follows no loss");
        assert!(!record.lost(begin, is_explained));
        let again = record.connected(begin + Duration::from_millis(milliseconds), server.to_owned());
        assert_eq!(again, screened, "{is_explained} {milliseconds} {server}");
    }
}

#[test]
fn connections_over_websocket_are_refused() {
    let settled = |address: &str| World::new(&[], "", &[]).settle(url(address)).map(drop);
    for address in ["ws://h:1", "wss://h:1", "nats://h:1,ws://i:2", "WSS://h"] {
        let error = settled(address).unwrap_err();
        assert!(
            error.code() == "SINEW-7020" && error.to_string().contains("WebSocket"),
            "{address}: {error}"
        );
    }
    for address in ["nats://h:1", "tls://h:1", "h:1"] {
        settled(address).unwrap();
    }
}

use super::*;
use crate::{
    ActivationKey, ExecutionId, ResultKey, ResultToken, Subject, TaskId,
    subject::{AccessKind, Operation},
};

const NAMESPACE: &str = "prod";

fn of(role: Role, name: &str) -> Permissions {
    role.permissions(NAMESPACE, &Token::of(name))
}

/// One subject of each kind, for agent `reviewer` and caller `billing`.
fn subjects() -> Vec<Subject> {
    let execution = ExecutionId::of(NAMESPACE, "billing", "k");
    let activation = ActivationKey::of::<&str>(&execution, "n", &[], 0);
    let task = TaskId::of(&execution, &activation, 1);
    let token = ResultToken::of(&ResultKey::new([0; 32]), &task);
    let (agent, caller) = (Token::of("reviewer"), Token::of("billing"));
    let command =
        |operation| Subject::Command { shard: 3, operation, caller: caller.clone(), id: Token::of("k") };
    let mut all: Vec<Subject> = Operation::ALL.map(command).to_vec();
    all.extend([
        Subject::Journal { shard: 3 },
        Subject::History { execution: execution.clone() },
        Subject::Task { agent: agent.clone(), execution: execution.clone(), task: task.clone() },
        Subject::Result {
            shard: 3,
            agent: agent.clone(),
            execution: execution.clone(),
            task: task.clone(),
            token,
        },
        Subject::Event { workflow: Token::of("w"), execution: execution.clone(), kind: Token::of("command") },
        Subject::Card { agent: agent.clone() },
        Subject::Rpc { agent: agent.clone(), method: Token::of("SendMessage"), caller },
        Subject::Progress { execution: execution.clone(), task: task.clone() },
        Subject::Control { agent: agent.clone(), task },
        Subject::Replica { agent: agent.clone(), process: Token::of("p") },
        Subject::Query { shard: 3 },
        Subject::Workflow { name: Token::of("w") },
        Subject::Quarantine { stream: Token::of("TASKS"), seq: 1 },
        Subject::Step { agent: agent.clone(), execution, activation, place: 0 },
        Subject::Access { kind: AccessKind::Key, id: Token::of("k") },
        Subject::Push { agent, task: Token::of("t"), id: Token::of("p") },
        Subject::Artifact { group: Token::of("g"), piece: Token::of("p") },
    ]);
    all
}

/// Kinds of the mesh subjects to which a role may publish as `reviewer`, and as `billing`.
fn kinds(permissions: &Permissions, may: impl Fn(&Permissions, &str) -> bool) -> Vec<String> {
    let mut kinds: Vec<String> = subjects()
        .iter()
        .map(|subject| subject.name(NAMESPACE))
        .filter(|name| may(permissions, name))
        .map(|name| name.split('.').nth(2).unwrap().to_owned())
        .collect();
    kinds.dedup();
    kinds
}

#[test]
fn what_a_server_grants_is_asked_for_by_subject() {
    let set = |rights: &[&str]| rights.iter().map(|right| (*right).to_owned()).collect::<BTreeSet<_>>();
    let all = GrantedRights::default();
    let own = GrantedRights {
        publish: Some(set(&["p.v1.node.*", "p.v1.rpc.>"])),
        deny_publish: set(&["p.v1.rpc.secret.>"]),
        subscribe: Some(set(&["p.v1.node.a a", "p.v1.card.*"])),
        ..GrantedRights::default()
    };
    for (granted, right, may) in [
        (&all, "p.v1.node.a", true),
        (&own, "p.v1.node.a", true),
        (&own, "p.v1.rpc.a.b", true),
        (&own, "p.v1.rpc.secret.b", false),
        (&own, "p.v1.task.a", false),
    ] {
        assert_eq!(granted.may_publish(right), may, "{right}");
    }
    for (granted, right, may) in [
        (&all, "p.v1.node.a", true),
        (&own, "p.v1.node.a a", true),
        (&own, "p.v1.node.a", false),
        (&own, "p.v1.node.a b", false),
        (&own, "p.v1.card.x", true),
    ] {
        assert_eq!(granted.may_subscribe(right), may, "{right}");
    }
}

#[test]
fn who_may_say_what() {
    let says = |role, name: &str| kinds(&of(role, name), Permissions::may_publish).join(" ");
    // The same subjects under the user's own name and under another name.
    assert_eq!(says(Role::Agent, "reviewer"), "result card progress replica quarantine step artifact");
    assert_eq!(says(Role::Agent, "billing"), "progress quarantine artifact");
    assert_eq!(says(Role::Client, "billing"), "command rpc query artifact");
    assert_eq!(says(Role::Client, "reviewer"), "query artifact");
    assert_eq!(says(Role::Gateway, "reviewer"), "command rpc query push artifact");
    assert_eq!(says(Role::Operator, "billing"), "query");
    assert_eq!(says(Role::Provisioner, "billing"), "");
    assert_eq!(
        says(Role::Executor, "billing"),
        "command journal history task result event card rpc progress control query quarantine artifact"
    );
    assert_eq!(
        says(Role::Executor, "x1"),
        "journal history task result event card progress control query quarantine artifact"
    );
    assert_eq!(says(Role::Admin, "billing"), "command task result card rpc query workflow access artifact");
}

#[test]
fn who_may_hear_what() {
    let hears = |role, name: &str, queue: Option<&str>| {
        kinds(&of(role, name), |permissions, subject| permissions.may_subscribe(subject, queue)).join(" ")
    };
    assert_eq!(hears(Role::Agent, "reviewer", None), "card control replica");
    assert_eq!(hears(Role::Agent, "reviewer", Some("reviewer")), "card rpc control replica");
    assert_eq!(hears(Role::Agent, "reviewer", Some("spy")), "card control replica");
    assert_eq!(hears(Role::Agent, "other", Some("reviewer")), "");
    assert_eq!(hears(Role::Client, "billing", None), "event progress");
    assert_eq!(hears(Role::Gateway, "g", None), "event progress");
    assert_eq!(hears(Role::Operator, "o", None), "event card progress");
    assert_eq!(hears(Role::Executor, "x1", None), "event rpc progress control query");
    assert_eq!(hears(Role::Provisioner, "p", None), "");
    for role in Role::ALL {
        let permissions = of(role, "reviewer");
        assert!(permissions.may_subscribe("_INBOX_reviewer.a.b", None));
        for other in [
            "_INBOX_billing.>",
            "_INBOX.>",
            ">",
            "*",
            "$JS.>",
            "$KV.>",
            "prod.>",
            "prod.v1.>",
            "prod.v1.result.>",
        ] {
            assert!(!permissions.may_subscribe(other, None), "{role:?} hears {other}");
        }
    }
}

#[test]
fn what_the_server_does_for_whom() {
    use Role::{Admin, Agent, Client, Executor, Gateway, Operator, Provisioner};
    let everybody: &[Role] = &Role::ALL;
    // API call of the server, and the roles that may make it as `reviewer`.
    let cases: &[(&str, &[Role])] = &[
        ("$JS.API.INFO", everybody),
        ("$JS.API.DIRECT.GET.KV_prod_FLEET.$KV.prod_FLEET.settings", everybody),
        ("$JS.API.DIRECT.GET.KV_prod_FLEET.$KV.prod_FLEET.result_key", &[Executor, Provisioner]),
        ("$JS.API.DIRECT.GET.KV_prod_FLEET", &[Executor]),
        ("$JS.API.STREAM.MSG.GET.KV_prod_FLEET", &[Executor, Provisioner]),
        ("$JS.API.CONSUMER.CREATE.KV_prod_FLEET", &[]),
        ("$JS.API.CONSUMER.CREATE.prod_EVENTS", &[]),
        ("$JS.API.CONSUMER.CREATE.KV_prod_FLEET.r1.$KV.prod_FLEET.>", &[Executor]),
        (
            "$JS.API.CONSUMER.CREATE.KV_prod_FLEET.r1.$KV.prod_FLEET.shard.>",
            &[Executor, Gateway, Operator, Admin],
        ),
        ("$KV.prod_FLEET.shard.3", &[Executor]),
        ("$KV.prod_FLEET.result_key", &[Executor, Provisioner]),
        // A queue belongs to its agent: only the agent consumes from it, and only executors create
        // it.
        ("$JS.API.CONSUMER.MSG.NEXT.prod_TASKS.agent-reviewer", &[Agent]),
        ("$JS.API.CONSUMER.MSG.NEXT.prod_TASKS.agent-billing", &[]),
        ("$JS.API.CONSUMER.INFO.prod_TASKS.agent-reviewer", &[Agent, Executor, Operator, Admin]),
        ("$JS.API.CONSUMER.CREATE.prod_TASKS.agent-reviewer.prod.v1.task.reviewer.>", &[Executor]),
        ("$JS.API.CONSUMER.CREATE.prod_TASKS", &[]),
        ("$JS.API.CONSUMER.DURABLE.CREATE.prod_TASKS.x", &[]),
        ("$JS.ACK.prod_TASKS.agent-reviewer.1.2.3.4.5", &[Agent]),
        ("$JS.ACK._.hash.prod_TASKS.agent-reviewer.1.2.3.4.5.6", &[Agent]),
        ("$JS.ACK.prod_TASKS.agent-billing.1.2.3.4.5", &[]),
        ("$JS.ACK._.hash.prod_TASKS.agent-billing.1.2.3.4.5.6", &[]),
        // Read access.
        ("$JS.API.CONSUMER.CREATE.prod_RESULTS.r1.prod.v1.result.3.>", &[Executor, Operator, Admin]),
        (
            "$JS.API.CONSUMER.CREATE.prod_EVENTS.r1.prod.v1.event.>",
            &[Executor, Client, Gateway, Operator, Admin],
        ),
        (
            "$JS.API.CONSUMER.CREATE.prod_JOURNAL.r1.prod.v1.journal.3",
            &[Executor, Client, Gateway, Operator, Admin],
        ),
        (
            "$JS.API.DIRECT.GET.prod_RESULTS.prod.v1.result.3.reviewer.e.t.k",
            &[Agent, Executor, Operator, Admin],
        ),
        ("$JS.API.DIRECT.GET.prod_RESULTS.prod.v1.result.3.billing.e.t.k", &[Executor, Operator, Admin]),
        ("$JS.API.DIRECT.GET.prod_RESULTS", &[Executor, Operator, Admin]),
        ("$JS.API.DIRECT.GET.prod_STEPS.prod.v1.step.reviewer.e.a.0", &[Agent, Operator, Admin]),
        ("$JS.API.DIRECT.GET.prod_STEPS.prod.v1.step.billing.e.a.0", &[Operator, Admin]),
        ("$JS.API.DIRECT.GET.prod_STEPS", &[Operator, Admin]),
        ("$JS.API.CONSUMER.CREATE.prod_STEPS.r1.prod.v1.step.reviewer.>", &[Operator, Admin]),
        ("$JS.API.STREAM.INFO.prod_TASKS", &[Executor, Gateway, Operator, Admin, Provisioner]),
        ("$JS.API.STREAM.NAMES", &[Operator, Admin, Provisioner]),
        // Artifacts are read by the subjects of their pieces: nobody can iterate over the stream.
        (
            "$JS.API.DIRECT.GET.prod_ARTIFACTS.prod.v1.artifact.g.p",
            &[Agent, Executor, Client, Gateway, Operator, Admin],
        ),
        ("$JS.API.DIRECT.GET.prod_ARTIFACTS", &[]),
        ("$JS.API.STREAM.MSG.GET.prod_ARTIFACTS", &[]),
        ("$JS.API.DIRECT.GET.OBJ_prod_ARTIFACTS", &[]),
        ("$JS.API.STREAM.MSG.DELETE.prod_ARTIFACTS", &[]),
        ("$JS.API.STREAM.PURGE.prod_ARTIFACTS", &[]),
        ("$JS.API.DIRECT.GET.OBJ_prod_PLANS", &[Executor, Client, Gateway, Operator, Admin]),
        ("$JS.API.CONSUMER.CREATE.prod_ARTIFACTS.r1.prod.v1.artifact.>", &[]),
        ("$O.prod_ARTIFACTS.M.n", &[]),
        ("$O.prod_PLANS.M.n", &[Executor, Admin]),
        // Records of gateways: key digests for roles that list them, the others for gateways and
        // writers.
        ("$JS.API.DIRECT.GET.prod_ACCESS.prod.v1.access.key.k", &[Gateway, Operator, Admin]),
        ("$JS.API.DIRECT.GET.prod_ACCESS.prod.v1.access.hook.h", &[Gateway, Admin]),
        ("$JS.API.DIRECT.GET.prod_ACCESS.prod.v1.access.entry.e", &[Gateway, Operator, Admin]),
        ("$JS.API.DIRECT.GET.prod_ACCESS.prod.v1.access.secret.s", &[Gateway]),
        ("$JS.API.DIRECT.GET.prod_ACCESS.prod.v1.access.use.k", &[Gateway, Operator, Admin]),
        ("$JS.API.CONSUMER.CREATE.prod_ACCESS.r1.prod.v1.access.key.>", &[Gateway, Operator, Admin]),
        ("$JS.API.CONSUMER.CREATE.prod_ACCESS.r1.prod.v1.access.>", &[Gateway]),
        ("$JS.API.STREAM.MSG.GET.prod_ACCESS", &[Gateway]),
        ("$JS.API.DIRECT.GET.prod_PUSHES.prod.v1.push.a.t.p", &[Gateway]),
        ("prod.v1.access.key.k", &[Admin]),
        ("prod.v1.access.hook.h", &[Admin]),
        ("prod.v1.access.entry.e", &[Admin]),
        ("prod.v1.access.secret.s", &[Gateway]),
        ("prod.v1.access.use.k", &[Gateway]),
        ("prod.v1.push.a.t.p", &[Gateway]),
        // Write access.
        ("$JS.API.STREAM.PURGE.prod_JOURNAL", &[Executor]),
        ("$JS.API.STREAM.PURGE.prod_QUARANTINE", &[Executor, Admin]),
        ("$JS.API.STREAM.PURGE.prod_RESULTS", &[]),
        ("$JS.API.STREAM.CREATE.prod_JOURNAL", &[Provisioner]),
        ("$JS.API.STREAM.UPDATE.prod_JOURNAL", &[Provisioner]),
        ("$JS.API.STREAM.UPDATE.test_JOURNAL", &[]),
        ("$JS.API.STREAM.DELETE.prod_JOURNAL", &[]),
        ("$JS.API.STREAM.MSG.DELETE.prod_JOURNAL", &[]),
        ("$JS.API.STREAM.MSG.DELETE.prod_TASKS", &[Executor, Admin]),
        ("$JS.API.STREAM.MSG.DELETE.prod_RESULTS", &[Admin]),
        ("$JS.API.STREAM.MSG.DELETE.prod_STEPS", &[]),
        ("$JS.API.STREAM.PURGE.prod_STEPS", &[]),
        ("$JS.API.STREAM.MSG.DELETE.prod_QUARANTINE", &[]),
        ("$JS.API.STREAM.SNAPSHOT.prod_JOURNAL", &[]),
        ("$JS.API.STREAM.RESTORE.prod_JOURNAL", &[]),
        ("$JS.API.SERVER.REMOVE", &[]),
        ("$SYS.REQ.SERVER.PING", &[]),
        ("$SYS.REQ.USER.INFO", everybody),
        ("_INBOX_billing.x", &[]),
        ("test.v1.card.reviewer", &[]),
        ("$SRV.PING", &[Operator, Admin]),
        ("$SRV.STATS.billing", &[Gateway, Operator, Admin]),
    ];
    for (call, allowed) in cases {
        let may: Vec<Role> =
            Role::ALL.into_iter().filter(|role| of(*role, "reviewer").may_publish(call)).collect();
        assert_eq!(&may, allowed, "{call}");
    }
}

#[test]
fn names_cannot_widen_rights() {
    for name in ["*", ">", "a.>", "a b", "a\nb", "\"", "{{name()}}", "größe"] {
        for role in Role::ALL {
            let permissions = role.permissions("my.*", &Token::of(name));
            for subject in permissions.publish.iter().chain(&permissions.subscribe) {
                let (subject, queue) = subject.split_once(' ').unwrap_or((subject, "q"));
                assert!(crate::id::is_token(queue), "{subject}");
                let legal = |token: &str| {
                    matches!(token, "*" | ">")
                        || crate::id::is_token(token.strip_prefix('$').unwrap_or(token))
                        || token.starts_with("agent-")
                        || token.starts_with("_INBOX_")
                        || token.contains('_')
                };
                assert!(subject.split('.').all(legal), "{subject}");
                assert!(subject.bytes().all(|b| b.is_ascii_graphic()), "{subject}");
                assert!(!subject.starts_with('*') && !subject.starts_with('>'), "{subject}");
            }
            assert!(!permissions.may_publish("my.v1.card.a"), "{name}");
        }
    }
}

#[test]
fn patterns_cover_patterns() {
    for (pattern, subject, covered) in [
        ("a.b", "a.b", true),
        ("a.b", "a.b.c", false),
        ("a.*", "a.b", true),
        ("a.*", "a.*", true),
        ("a.*", "a.>", false),
        ("a.*", "a", false),
        ("a.>", "a.b.c", true),
        ("a.>", "a.>", true),
        ("a.>", "a", false),
        (">", "a", true),
        ("a.*.c", "a.b.c", true),
        ("a.b", "a.*", false),
    ] {
        assert_eq!(covers(pattern, subject), covered, "{pattern} {subject}");
    }
}

fn tenants() -> Vec<Tenant> {
    let user = |name: &str, roles: &[Role], login| User {
        name: name.to_owned(),
        roles: roles.to_vec(),
        login,
        calls: Vec::new(),
    };
    let password = |text: &str| Login::Password(text.to_owned());
    let users = vec![
        user("order reviewer", &[Role::Agent, Role::Client], password("pa\"ss\\w$ord")),
        user("x1", &[Role::Executor], Login::Nkey(format!("U{}", "A".repeat(55)))),
        user("nobody", &[], password("p")),
    ];
    let guest = |name: &str, calls: &[&str]| Guest {
        name: name.to_owned(),
        login: password("p"),
        calls: calls.iter().map(|&name| name.to_owned()).collect(),
    };
    let prod = Tenant {
        account: "PROD".to_owned(),
        namespace: "prod".to_owned(),
        users,
        guests: vec![guest("stranger", &["order reviewer", "stranger"]), guest("other", &[])],
        max_file: Some(1 << 30),
        max_memory: None,
    };
    let test = Tenant {
        account: "TEST".to_owned(),
        namespace: "test".to_owned(),
        users: Vec::new(),
        guests: Vec::new(),
        max_file: None,
        max_memory: None,
    };
    vec![prod, test]
}

#[test]
fn configuration_says_exactly_the_rights() {
    let text = config(&tenants(), None).unwrap();
    let agent = Token::of("order reviewer");
    let rights = Role::Agent.permissions("prod", &agent).and(Role::Client.permissions("prod", &agent));
    for subject in rights.publish.iter().chain(&rights.subscribe) {
        assert!(text.contains(&format!("          \"{subject}\"\n")), "{subject}");
    }
    assert!(text.contains(r#"user: "order reviewer", password: "pa\"ss\\w$ord""#));
    assert!(text.contains("allow_responses: { max: 1, expires: \"60m\" }"));
    assert!(text.contains("publish: { deny: [\">\"] }"), "no role, no rights");
    assert_eq!(text.matches("allow: [").count(), 8);
    assert_eq!(text.matches('{').count(), text.matches('}').count());
    assert_eq!(text.matches('[').count(), text.matches(']').count());
    assert!(!format!("{:?}", tenants()).contains("w$ord"), "passwords are not shown");
}

#[test]
fn what_an_agent_may_passes_to_and_from_a_guest_and_nothing_else() {
    let rights = tenants()[0].guests[0].permissions("prod");
    let mut agent = of(Role::Agent, "stranger");
    let reviewer = Token::of("order reviewer");
    for door in [&reviewer, &Token::of("call:order reviewer")] {
        agent.publish.insert(format!("prod.v1.rpc.{door}.*.stranger"));
    }
    agent.publish.insert(format!("$JS.API.DIRECT.GET.prod_CARDS.prod.v1.card.{reviewer}"));
    assert_eq!(rights, agent, "an agent's rights and calls of another one, not of itself");
    let way = |subject: &str| -> Vec<guest::PassageDirection> {
        let ways = guest::passages("prod", &rights).into_iter();
        ways.filter(|passage| covers(&passage.subject, subject)).map(|passage| passage.way).collect()
    };
    let is_among_processes = |subject: &str| subject.starts_with("prod.v1.replica.");
    for subject in &rights.publish {
        let ways = way(subject);
        assert_eq!(
            ways.contains(&guest::PassageDirection::Said),
            subject != OWN_RIGHTS && !is_among_processes(subject),
            "{subject}: {ways:?}"
        );
    }
    for right in &rights.subscribe {
        let (subject, queue) = right.split_once(' ').unwrap_or((right, ""));
        let ways = way(subject);
        let want = match () {
            () if subject.starts_with("_INBOX_") || is_among_processes(subject) => None,
            () if subject.starts_with("$SRV.") || !queue.is_empty() => {
                Some(guest::PassageDirection::Answered)
            }
            () => Some(guest::PassageDirection::Heard),
        };
        assert_eq!(ways.into_iter().find(|way| *way != guest::PassageDirection::Said), want, "{right}");
    }
    // Rights that no agent has now must not be exported if an agent gets the subject later.
    for right in [
        "$JS.API.STREAM.PURGE.prod_TASKS",
        "$JS.API.STREAM.UPDATE.prod_TASKS",
        "$JS.API.STREAM.MSG.DELETE.prod_TASKS",
        "$JS.API.CONSUMER.CREATE.prod_CARDS.>",
        "$JS.API.CONSUMER.DELETE.prod_TASKS.agent-stranger",
        "$JS.API.CONSUMER.MSG.NEXT.prod_CARDS.*",
        "$JS.API.CONSUMER.INFO.prod_TASKS.>",
        "$JS.API.>",
        "$KV.prod_FLEET.>",
        "$SYS.>",
        "other.v1.card.stranger",
        ">",
    ] {
        let rights = Permissions { publish: [right.to_owned()].into(), ..Permissions::default() };
        assert_eq!(guest::passages("prod", &rights), [], "{right}");
    }
}

#[test]
fn configuration_of_guests_gives_on_one_side_what_the_other_takes() {
    let text = config(&tenants(), None).unwrap();
    let account = |name: &str| -> &str {
        let begin = text.find(&format!("  \"{name}\": {{\n")).unwrap();
        let end = begin + text[begin..].find("\n  }\n").unwrap();
        &text[begin..end]
    };
    let lists = |name: &str, list: &str| -> Vec<&str> {
        let Some((_, rest)) = account(name).split_once(&format!("    {list}: [\n")) else {
            return Vec::new();
        };
        rest.split("    ]\n").next().unwrap().lines().map(str::trim).collect()
    };
    for (name, streams) in [
        ("PROD", "{ max_file: 1073741824, max_streams: 64, max_consumers: 10000 }"),
        ("PROD-stranger", "disabled"),
    ] {
        assert!(account(name).contains(&format!("    jetstream: {streams}\n")), "{name}");
    }
    let of_all = "{ service: \"prod.v1.progress.*.*\", accounts: [\"PROD-stranger\", \"PROD-other\"] }";
    let of_one = "{ stream: \"prod.v1.control.stranger.>\", accounts: [\"PROD-stranger\"] }";
    let tasks = "{ service: \"$JS.API.CONSUMER.MSG.NEXT.prod_TASKS.agent-stranger\", \
                 accounts: [\"PROD-stranger\"], response_type: Stream }";
    for export in [of_all, of_one, tasks] {
        assert!(lists("PROD", "exports").contains(&export), "{export}");
    }
    let door = "{ service: \"prod.v1.rpc.stranger.>\", accounts: [\"PROD\"], response_threshold: \"60m\" }";
    assert!(lists("PROD-stranger", "exports").contains(&door));
    // Every import has an export on the other side for this account.
    for (here, there) in [
        ("PROD", "PROD-stranger"),
        ("PROD", "PROD-other"),
        ("PROD-stranger", "PROD"),
        ("PROD-other", "PROD"),
        ("TEST", "PROD"),
    ] {
        let from = format!("{{ account: \"{there}\", subject: ");
        let imports = lists(here, "imports").into_iter().filter_map(|line| line.split_once(&from));
        let mut taken: Vec<String> = imports
            .map(|(kind, subject)| kind.to_owned() + subject.trim_end_matches([' ', '}']) + ", accounts: [")
            .collect();
        let exports = lists(there, "exports").into_iter();
        let exports = exports.filter(|line| line.contains(&format!("\"{here}\"")));
        let mut given: Vec<String> =
            exports.map(|line| line[..=line.find('[').unwrap()].to_owned()).collect();
        taken.sort();
        given.sort();
        assert_eq!(taken, given, "{here} from {there}");
        assert_eq!(taken.is_empty(), here == "TEST");
    }
}

#[test]
fn the_system_account_has_a_user_only_if_a_login_is_given() {
    let with = config(&tenants(), Some(&Login::Password("p\"w".to_owned()))).unwrap();
    assert!(
        with.contains("  \"SYS\": { users: [ { user: \"sys\", password: \"p\\\"w\" } ] }\n"),
        "{with:.300}"
    );
    let without = config(&tenants(), None).unwrap();
    assert!(without.contains("  \"SYS\": { users: [] }\n"), "{without:.300}");
    assert!([&with, &without].into_iter().all(|text| text.ends_with("\n}\nsystem_account: \"SYS\"\n")));
    let mut taken = tenants();
    taken[0].account = "SYS".to_owned();
    assert_eq!(config(&taken, None), Err(BadTenant::Twice("SYS".to_owned())));
}

#[test]
fn tenants_that_cannot_be_written_are_refused() {
    let with = |change: &dyn Fn(&mut Vec<Tenant>)| {
        let mut tenants = tenants();
        change(&mut tenants);
        config(&tenants, None).unwrap_err()
    };
    let login = |login: Login| with(&move |tenants| tenants[0].users[0].login = login.clone());
    assert_eq!(login(Login::Password("a\nb".to_owned())), BadTenant::Text("password"));
    assert_eq!(login(Login::Password(String::new())), BadTenant::Text("password"));
    assert!(matches!(login(Login::Nkey("U, user: root".to_owned())), BadTenant::Nkey(_)));
    assert_eq!(with(&|tenants| tenants[0].account = "a\u{7}".to_owned()), BadTenant::Text("account"));
    assert_eq!(with(&|tenants| tenants[1].account = "PROD".to_owned()), BadTenant::Twice("PROD".to_owned()));
    assert_eq!(
        with(&|tenants| tenants[0].users[2].name = "x1".to_owned()),
        BadTenant::Twice("x1".to_owned())
    );
    assert_eq!(
        with(&|tenants| tenants[0].guests[0].name = "x1".to_owned()),
        BadTenant::Twice("x1".to_owned())
    );
    assert_eq!(
        with(&|tenants| tenants[1].account = "PROD-other".to_owned()),
        BadTenant::Twice("PROD-other".to_owned())
    );
    assert!(nsc("", "prod").is_err());
    assert!(crate::code::page(BadTenant::CODE).is_some());
}

#[test]
fn commands_for_nsc_have_a_template_for_the_name() {
    let text = nsc("it's", "prod").unwrap();
    assert!(text.contains(r"--account 'it'\''s' --role agent"));
    assert!(text.contains("--allow-pub 'prod.v1.card.{{name()}}' \\\n"));
    assert!(text.contains("--allow-sub 'prod.v1.rpc.{{name()}}.> {{name()}}' \\\n"));
    assert!(text.contains("--allow-sub '_INBOX_{{name()}}.>'"));
    for role in Role::ALL {
        assert_eq!(Role::parse(role.as_str()), Some(role));
        assert!(!role.opens().is_empty());
        assert_eq!(text.matches(&format!("--role {} ", role.as_str())).count(), 1);
    }
}

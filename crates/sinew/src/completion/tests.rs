//! Tests of `completion`.

use super::*;

#[test]
fn connections_are_handed_on() {
    let typed = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let found = connection(&typed("execution describe --nats nats://a:1 --wide --context=b x --mesh"));
    assert_eq!(found, ["--nats", "nats://a:1", "--context=b", "--mesh"]);
    assert_eq!(connection(&typed("run file -p a=b")), Vec::<String>::new());
}

/// Every argument for an id, a node, a name or a code has its words.
#[test]
fn arguments_are_told_apart_by_their_values() {
    let mut command = Cli::command();
    command.build();
    let kind = |path: &[&str], id: &str| {
        let leaf = path.iter().fold(&command, |at, name| at.find_subcommand(name).expect(name));
        let arg = leaf.get_arguments().find(|arg| arg.get_id() == id).expect(id);
        CompletionKind::of(&path.join(" "), arg)
    };
    for (path, id, wanted) in [
        (&["explain"][..], "code", CompletionKind::Code),
        (&["execution", "describe"], "node", CompletionKind::Node),
        (&["execution", "diff"], "first", CompletionKind::Execution),
        (&["agent", "card"], "name", CompletionKind::Agent),
        (&["tool", "call"], "name", CompletionKind::Workflow),
        (&["run"], "file", CompletionKind::WorkflowOrFile),
    ] {
        assert_eq!(kind(path, id), Some(wanted), "{path:?} {id}");
    }
    assert_eq!(kind(&["new", "workflow"], "name"), None);
}

//! Canonical form, digest, delays and checks.

use serde_json::json;

use crate::*;

fn plan(nodes: &[&str], edges: &[(u32, u32)]) -> Plan {
    Plan {
        format: Plan::FORMAT,
        dialect: "test".into(),
        name: "p".into(),
        description: String::new(),
        version: None,
        profile: SchedulingProfile {
            order: ReadyOrder::Rank,
            parallel: 0,
            failure: FailurePolicy::Stop,
            pause: PausePolicy::NodeLocal,
        },
        nodes: nodes
            .iter()
            .map(|id| PlanNode {
                id: (*id).into(),
                kind: "agent".into(),
                label: None,
                op: NodeOperation::Agent,
                join: JoinRule::Resolved { quorum: None },
                rank: 0,
                agent: None,
                retry: RetryPolicy::default(),
                attempt_timeout_ms: None,
                timeout_ms: None,
                inner: false,
                attached: false,
                quiet: false,
                handles_failure: false,
                extra: serde_json::Value::Null,
            })
            .collect(),
        edges: edges
            .iter()
            .enumerate()
            .map(|(n, (from, to))| PlanEdge {
                from: *from,
                port: "out".into(),
                to: *to,
                handle: "in".into(),
                label: None,
                budget: None,
                counter: n as u32,
                veto: false,
                quorum: false,
                attach: false,
                extra: serde_json::Value::Null,
            })
            .collect(),
        entry: vec![0],
        exits: vec![],
        limits: PlanLimits::default(),
        input_schema: None,
        output_schema: None,
        extra: serde_json::Value::Null,
    }
}

#[test]
fn sorted_json_sorts_keys_at_every_depth() {
    let value = json!({"b": [ {"z": 1, "a": "\u{1}\""} ], "a": null});
    assert_eq!(sorted_json(&value), r#"{"a":null,"b":[{"a":"\u0001\"","z":1}]}"#);
}

#[test]
fn digest_survives_a_round_trip_and_sees_each_change() {
    let one = plan(&["a", "b"], &[(0, 1)]);
    let text = serde_json::to_string(&one).unwrap();
    let back: Plan = serde_json::from_str(&text).unwrap();
    assert_eq!(one, back);
    assert_eq!(digest(&one), digest(&back));
    let mut other = one.clone();
    other.edges[0].veto = true;
    assert_ne!(digest(&one), digest(&other));
}

#[test]
fn delays_grow_to_their_cap_and_survive_hostile_factors() {
    let retry = |delay_ms, factor, max| RetryPolicy {
        limit: 9,
        delay_ms,
        factor,
        max_delay_ms: max,
        ..RetryPolicy::default()
    };
    for (policy, n, want) in [
        (retry(1000, 2.0, None), 1, 1000),
        (retry(1000, 2.0, None), 3, 4000),
        (retry(1000, 2.0, Some(2500)), 3, 2500),
        (retry(0, 2.0, None), 50, 0),
        (retry(1000, f64::NAN, Some(7)), 2, 7),
        (retry(1000, f64::INFINITY, Some(7)), 2, 7),
        (retry(1000, 10.0, None), u32::MAX, 30 * 24 * 3600 * 1000),
    ] {
        assert_eq!(policy.delay(n), want, "{policy:?} attempt {n}");
    }
}

#[test]
fn check_names_what_is_wrong() {
    let good = plan(&["a", "b"], &[(0, 1)]);
    assert_eq!(check(&good), Ok(()));
    let broken = |change: &dyn Fn(&mut Plan)| {
        let mut plan = good.clone();
        change(&mut plan);
        check(&plan).unwrap_err().to_string()
    };
    for (seen, want) in [
        (broken(&|p| p.format = 9), "plan format 9"),
        (broken(&|p| p.nodes[1].id = "a".into()), "two nodes have the id 'a'"),
        (broken(&|p| p.edges[0].to = 7), "edge 0 names node 7"),
        (broken(&|p| p.edges[0].counter = u32::MAX), "edge 0 is counted by counter 4294967295"),
        (broken(&|p| p.entry.clear()), "no entry"),
        (broken(&|p| p.nodes[1].op = NodeOperation::Map { body: 5 }), "node 'b' names node 5"),
        (broken(&|p| p.nodes[1].inner = true), "node 'b' is a body"),
        (broken(&|p| p.nodes[1].join = JoinRule::Resolved { quorum: Some(1) }), "waits for 1 of 0"),
    ] {
        assert!(seen.contains(want), "{seen}");
    }
}

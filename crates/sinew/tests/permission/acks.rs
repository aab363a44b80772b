//! P3: acknowledging what others were given. In both shapes of the subject: with and without domain and account.

use serde_json::{Value, json};

use crate::permission::wire::{Message, Wire};
use crate::permission::world::{NORTH, World, acks_in_both_shapes};

/// A queue of an agent with one task in it, made as executors do.
fn queue(world: &World, agent: &str) {
    let mut executor = world.wire(&NORTH, "executor");
    let (stream, subject) = (NORTH.stream("TASKS"), format!("north.v1.task.{agent}.e.t"));
    let config = json!({"stream_name": stream, "config": {
        "durable_name": format!("agent-{agent}"), "ack_policy": "explicit",
        "filter_subject": format!("north.v1.task.{agent}.>"),
    }});
    let call = format!("$JS.API.CONSUMER.CREATE.{stream}.agent-{agent}.north.v1.task.{agent}.>");
    for (subject, body) in [(call, config.to_string()), (subject, "a task".to_owned())] {
        let said = executor.request(&subject, &body).unwrap();
        assert!(!said.body.contains("error"), "{subject}: {said:?}");
    }
}

/// The next task of an agent's own queue.
fn next(agent: &mut Wire, name: &str) -> Message {
    let call = format!("$JS.API.CONSUMER.MSG.NEXT.north_TASKS.agent-{name}");
    agent.request(&call, r#"{"batch":1,"expires":5000000000}"#).expect("its own queue")
}

/// Tasks of an agent that were delivered and not acknowledged.
fn unanswered(world: &World, agent: &str) -> u64 {
    let call = format!("$JS.API.CONSUMER.INFO.north_TASKS.agent-{agent}");
    let said = world.wire(&NORTH, "operator").request(&call, "").unwrap();
    serde_json::from_str::<Value>(&said.body).unwrap()["num_ack_pending"].as_u64().expect("a consumer")
}

#[test]
fn nobody_acknowledges_what_another_agent_was_given() {
    for (more, v2) in acks_in_both_shapes().into_iter().zip([false, true]) {
        let world = World::new(&more);
        let (mine, other) = (NORTH.user("agent"), NORTH.user("agent2"));
        queue(&world, &mine);
        queue(&world, &other);
        let (mut agent, mut victim) = (world.wire(&NORTH, "agent"), world.wire(&NORTH, "agent2"));
        let (own, given) = (next(&mut agent, &mine), next(&mut victim, &other));
        let (own, given) = (own.reply.expect("a place to answer"), given.reply.expect("a place to answer"));
        let tokens: Vec<&str> = given.split('.').collect();
        assert_eq!(tokens.len(), if v2 { 11 } else { 9 }, "the server was told {v2}: {given}");
        // The five last tokens and those before them, in the shape that is not the server's own now.
        let tail = tokens[tokens.len() - 5..].join(".");
        let both = [
            format!("$JS.ACK.north_TASKS.agent-{other}.{tail}"),
            format!("$JS.ACK._.{}.north_TASKS.agent-{other}.{tail}", if v2 { tokens[3] } else { "hash" }),
        ];
        assert!(both.contains(&given), "{given} is none of {both:?}");
        for role in ["agent", "client", "operator", "provisioner", "executor", "admin"] {
            let mut wire = world.wire(&NORTH, role);
            for subject in &both {
                for word in ["+ACK", "-NAK", "+TERM", "+WPI"] {
                    wire.publish(subject, None, &[], word);
                    let said = wire.settle();
                    assert!(
                        said.len() == 1 && said[0].contains("Violation"),
                        "{role} {word} {subject}: {said:?}"
                    );
                }
            }
        }
        assert_eq!((unanswered(&world, &mine), unanswered(&world, &other)), (1, 1));
        // Its own it may, and the server confirms it.
        agent.request(&own, "+ACK").expect("its own task");
        victim.request(&given, "+ACK").expect("its own task");
        assert_eq!((unanswered(&world, &mine), unanswered(&world, &other)), (0, 0));
    }
}

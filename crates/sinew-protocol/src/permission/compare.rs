//! Comparison of a user's rights with the rights of its roles in the table.

use std::collections::BTreeSet;

use super::{Permissions, Role, covers};
use crate::Token;
use crate::stream::bucket;

/// Rights of a user as granted by a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GrantedRights {
    /// Subjects to which the user may publish; all if absent.
    pub publish: Option<BTreeSet<String>>,
    /// Subjects to which publishing is denied.
    pub deny_publish: BTreeSet<String>,
    /// Subjects to which the user may subscribe, with the queue group after a blank; all if absent.
    pub subscribe: Option<BTreeSet<String>>,
    /// Subjects to which subscribing is denied.
    pub deny_subscribe: BTreeSet<String>,
    /// Maximum number of messages to the reply subject of a received message; unlimited if
    /// negative.
    pub responses: i64,
}

impl GrantedRights {
    /// Returns whether every message that `right` covers may be published.
    pub fn may_publish(&self, right: &str) -> bool {
        is_granted(self.publish.as_ref(), &self.deny_publish, right)
    }

    /// Returns whether a subject, with a queue group after a blank, may be subscribed to.
    pub fn may_subscribe(&self, right: &str) -> bool {
        is_granted(self.subscribe.as_ref(), &self.deny_subscribe, right)
    }
}

fn is_granted(allow: Option<&BTreeSet<String>>, deny: &BTreeSet<String>, right: &str) -> bool {
    allow.is_none_or(|allow| allow.iter().any(|allowed| includes(allowed, right)))
        && !deny.iter().any(|kept| overlap(kept, right))
}

/// Differences between a user's rights and the table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RightsComparison {
    /// Roles that the rights were compared to.
    pub roles: Vec<Role>,
    /// Rights that the roles require and the user lacks: `publish to …`, `subscribe to …`,
    /// `answer …`.
    pub missing: Vec<String>,
    /// Rights of the user that the roles do not require.
    pub wide: Vec<String>,
}

/// Compares the rights of a user with those that the roles require; without roles, with the most
/// similar set of roles.
pub fn compare(namespace: &str, name: &Token, granted: &GrantedRights, roles: &[Role]) -> RightsComparison {
    if !roles.is_empty() {
        return against(namespace, name, granted, roles.to_vec());
    }
    let sets = (1..1_u32 << Role::ALL.len()).map(|set| {
        let chosen = Role::ALL.into_iter().enumerate().filter(|(nth, _)| set & (1 << nth) != 0);
        against(namespace, name, granted, chosen.map(|(_, role)| role).collect())
    });
    // Of equal sets, the smallest: an admin's rights include those of an operator.
    sets.min_by_key(|found| (found.missing.len() + found.wide.len(), found.roles.len())).unwrap_or_default()
}

fn against(namespace: &str, name: &Token, granted: &GrantedRights, roles: Vec<Role>) -> RightsComparison {
    let needed = roles.iter().map(|role| role.permissions(namespace, name));
    let needed = needed.fold(Permissions::default(), Permissions::and);
    let mut found = RightsComparison { roles, ..RightsComparison::default() };
    for (verb, needed, allow, deny) in [
        ("publish to", &needed.publish, &granted.publish, &granted.deny_publish),
        ("subscribe to", &needed.subscribe, &granted.subscribe, &granted.deny_subscribe),
    ] {
        let has = |right: &str| is_granted(allow.as_ref(), deny, right);
        let everything = BTreeSet::from([">".to_owned()]);
        let allow = allow.as_ref().unwrap_or(&everything);
        let may = |allowed: &&String| !deny.iter().any(|kept| includes(kept, allowed));
        let needs = |allowed: &str| {
            needed.iter().any(|right| includes(right, allowed))
                || is_call(namespace, name, &found.roles, allowed)
        };
        found
            .missing
            .extend(needed.iter().filter(|right| !has(right)).map(|right| format!("{verb} {right}")));
        let wide = allow.iter().filter(may).filter(|allowed| !needs(allowed));
        found.wide.extend(wide.map(|allowed| format!("{verb} {allowed}")));
    }
    let needs = i64::from(needed.responses);
    let answers = |count: i64| format!("answer a request with up to {count} messages");
    match granted.responses {
        has if has < 0 => found.wide.push("answer a request with any number of messages".to_owned()),
        has if has > needs => found.wide.push(answers(has)),
        has if has < needs => found.missing.push(answers(needs)),
        _ => {}
    }
    found
}

/// Returns whether a right allows calling a single other agent or reading its card. Agents may have
/// such rights; the table, which names no agent, grants calls to clients only.
fn is_call(namespace: &str, name: &Token, roles: &[Role], allowed: &str) -> bool {
    let own = format!("{}.v1", Token::of(namespace));
    let call = format!("{own}.rpc.*.*.{name}");
    let card = format!("$JS.API.DIRECT.GET.{}.{own}.card.*", bucket(namespace, "CARDS"));
    let is_single = |pattern: &str| {
        let called = pattern.split('.').position(|token| token == "*");
        called.and_then(|at| allowed.split('.').nth(at)).is_some_and(|called| called != "*")
    };
    roles.contains(&Role::Agent)
        && [call, card].iter().any(|right| covers(right, allowed) && is_single(right))
}

/// Returns whether a right to `wide` includes one to `narrow`; a name after a blank is a required
/// queue group.
fn includes(wide: &str, narrow: &str) -> bool {
    let ((wide, group), (narrow, joined)) = (queued(wide), queued(narrow));
    covers(wide, narrow) && (group.is_none() || group == joined)
}

/// Returns whether both patterns match a common subject.
fn overlap(one: &str, other: &str) -> bool {
    let (mut one, mut other) = (queued(one).0.split('.'), queued(other).0.split('.'));
    loop {
        match (one.next(), other.next()) {
            (None, None) | (Some(">"), Some(_)) | (Some(_), Some(">")) => return true,
            (Some(a), Some(b)) if a == b || a == "*" || b == "*" => {}
            _ => return false,
        }
    }
}

fn queued(right: &str) -> (&str, Option<&str>) {
    right.split_once(' ').map_or((right, None), |(subject, queue)| (subject, Some(queue)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exact(roles: &[Role]) -> GrantedRights {
        let name = Token::of("ada");
        let rights = roles.iter().map(|role| role.permissions("prod", &name));
        let rights = rights.fold(Permissions::default(), Permissions::and);
        GrantedRights {
            publish: Some(rights.publish),
            subscribe: Some(rights.subscribe),
            responses: rights.responses.into(),
            ..GrantedRights::default()
        }
    }

    fn check(granted: &GrantedRights, roles: &[Role], missing: &[&str], wide: &[&str]) {
        let found = compare("prod", &Token::of("ada"), granted, &[]);
        assert_eq!(
            (&*found.roles, found.missing, found.wide),
            (
                roles,
                missing.iter().map(|&text| text.to_owned()).collect(),
                wide.iter().map(|&text| text.to_owned()).collect(),
            )
        );
    }

    #[test]
    fn roles_are_known_by_their_rights() {
        for role in Role::ALL {
            check(&exact(&[role]), &[role], &[], &[]);
        }
        check(&exact(&[Role::Agent, Role::Client]), &[Role::Agent, Role::Client], &[], &[]);
        check(&exact(&[Role::Operator, Role::Admin]), &[Role::Admin], &[], &[]);
    }

    #[test]
    fn what_is_missing_and_what_is_too_wide_is_named() {
        for role in Role::ALL {
            let mut granted = exact(&[role]);
            granted.publish.as_mut().unwrap().remove("$JS.API.INFO");
            granted.publish.as_mut().unwrap().insert("$JS.API.STREAM.DELETE.*".to_owned());
            granted.subscribe.as_mut().unwrap().insert("_INBOX.>".to_owned());
            check(
                &granted,
                &[role],
                &["publish to $JS.API.INFO"],
                &["publish to $JS.API.STREAM.DELETE.*", "subscribe to _INBOX.>"],
            );
        }
        // An endpoint without its queue group, unlimited responses, a partly denied right.
        let mut granted = exact(&[Role::Agent]);
        granted.subscribe.as_mut().unwrap().insert("prod.v1.rpc.ada.>".to_owned());
        granted.responses = -1;
        granted.deny_publish.insert("prod.v1.progress.e.>".to_owned());
        check(
            &granted,
            &[Role::Agent],
            &["publish to prod.v1.progress.*.*"],
            &["subscribe to prod.v1.rpc.ada.>", "answer a request with any number of messages"],
        );
        // A guest may call the configured agents; only clients may call every agent.
        let mut granted = exact(&[Role::Agent]);
        for call in ["prod.v1.rpc.other.*.ada", "$JS.API.DIRECT.GET.prod_CARDS.prod.v1.card.other"] {
            granted.publish.as_mut().unwrap().insert(call.to_owned());
        }
        check(&granted, &[Role::Agent], &[], &[]);
        for wide in
            ["prod.v1.rpc.*.*.ada", "prod.v1.rpc.other.*.eve", "$JS.API.DIRECT.GET.prod_CARDS.prod.v1.card.*"]
        {
            let mut granted = granted.clone();
            granted.publish.as_mut().unwrap().insert(wide.to_owned());
            check(&granted, &[Role::Agent], &[], &[&format!("publish to {wide}")]);
        }
        // A fully denied right counts as absent, and is harmless.
        let mut granted = exact(&[Role::Client]);
        granted.publish.as_mut().unwrap().insert("a.b".to_owned());
        granted.deny_publish.insert("a.>".to_owned());
        check(&granted, &[Role::Client], &[], &[]);
    }

    #[test]
    fn everything_is_too_wide_for_every_role() {
        for role in Role::ALL {
            let found = compare("prod", &Token::of("ada"), &GrantedRights::default(), &[role]);
            assert_eq!(found.wide, ["publish to >", "subscribe to >"]);
            let answers = found.missing.iter().all(|right| right.starts_with("answer"));
            assert!(answers, "{:?}", found.missing);
        }
    }
}

//! Methods, functions and names in an expression that do not exist, so that the expression has no
//! value.

use std::collections::BTreeSet;

use serde_json::Value;

use super::ScriptExpression;

/// Methods of strings, lists, numbers and objects.
pub(in super::super) const METHODS: [&str; 36] = [
    "toUpperCase",
    "toLowerCase",
    "trim",
    "trimStart",
    "trimEnd",
    "toString",
    "includes",
    "startsWith",
    "endsWith",
    "indexOf",
    "lastIndexOf",
    "charAt",
    "concat",
    "slice",
    "substring",
    "split",
    "replace",
    "replaceAll",
    "repeat",
    "padStart",
    "padEnd",
    "join",
    "at",
    "flat",
    "reverse",
    "sort",
    "map",
    "flatMap",
    "filter",
    "find",
    "findIndex",
    "some",
    "every",
    "reduce",
    "toFixed",
    "hasOwnProperty",
];
/// Functions by the object that they belong to; functions without an object first.
const FUNCTIONS: [(&str, &[&str]); 6] = [
    ("", &["String", "Number", "parseFloat", "parseInt", "Boolean"]),
    ("JSON", &["stringify", "parse"]),
    ("Math", &["max", "min", "round", "floor", "ceil", "abs", "trunc", "sqrt", "pow"]),
    ("Object", &["keys", "values", "entries"]),
    ("Array", &["isArray"]),
    ("Number", &["parseFloat", "parseInt", "isInteger"]),
];
/// Values that every expression may name.
const NAMES: [&str; 4] = ["input", "$input", "trigger", "$trigger"];
/// The function that reads the output of a node.
const NODE_OUTPUT: &str = "$";

/// An identifier in an expression that does not exist.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in super::super) enum UnknownIdentifier<'e> {
    /// A method or function, and the existing ones.
    Method(&'e str, Vec<&'static str>),
    /// The name of a value.
    Name(&'e str, Vec<&'static str>),
}

impl ScriptExpression {
    /// Returns the unknown identifiers, each once.
    pub(in super::super) fn unknown_words(&self) -> BTreeSet<UnknownIdentifier<'_>> {
        let (mut found, mut locals) = (BTreeSet::new(), BTreeSet::new());
        self.walk(&mut |part| {
            if let Self::Arrow(names, _) = part {
                locals.extend(names.iter().map(String::as_str));
            }
        });
        self.walk(&mut |part| match part {
            Self::Name(name) if !locals.contains(name.as_str()) => found.extend(unknown_name(name)),
            Self::Call(function, _) => found.extend(unknown_method(function)),
            _ => {}
        });
        found
    }
}

fn functions_of(owner: &str) -> Option<&'static [&'static str]> {
    FUNCTIONS.iter().find(|(name, _)| *name == owner).map(|(_, functions)| *functions)
}

fn unknown_name(name: &str) -> Option<UnknownIdentifier<'_>> {
    let functions = functions_of("").unwrap_or_default();
    let owners = FUNCTIONS.iter().map(|(owner, _)| *owner);
    let known: Vec<&'static str> =
        NAMES.into_iter().chain(functions.iter().copied()).chain(owners).chain([NODE_OUTPUT]).collect();
    (!known.contains(&name)).then(|| {
        let offered = known.into_iter().filter(|known| known.len() > NODE_OUTPUT.len()).collect();
        UnknownIdentifier::Name(name, offered)
    })
}

fn unknown_method(function: &ScriptExpression) -> Option<UnknownIdentifier<'_>> {
    let ScriptExpression::Member(owner, key) = function else { return None };
    let ScriptExpression::Literal(Value::String(method)) = &**key else { return None };
    let known = match &**owner {
        ScriptExpression::Name(name) => functions_of(name),
        _ => None,
    };
    let known = known.unwrap_or(&METHODS);
    (!known.contains(&method.as_str())).then(|| UnknownIdentifier::Method(method, known.to_vec()))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::{ScriptScope, evaluate, parse};
    use super::*;

    fn words(text: &str) -> Vec<String> {
        let expression = parse(text).unwrap();
        let word = |word: &UnknownIdentifier<'_>| match word {
            UnknownIdentifier::Method(word, _) | UnknownIdentifier::Name(word, _) => (*word).to_owned(),
        };
        expression.unknown_words().iter().map(word).collect()
    }

    #[test]
    fn methods_functions_and_names_that_do_not_exist_are_found() {
        let check = |text: &str, want: &[&str]| assert_eq!(words(text), want, "{text}");
        for right in [
            "input.message.trim().length",
            "$('a').item.json.items.map(x => x.name ?? $trigger.name).join(', ')",
            "$input.list.reduce((sum, one) => sum + Number(one.n), 0).toFixed(2)",
            "JSON.stringify(Object.keys(input)) + Math.max(1, Number.parseInt('2'))",
            "Array.isArray(trigger.l) ? { a: 1 } : [typeof input, null, undefined]",
            "input.trimm",
        ] {
            check(right, &[]);
        }
        check("input.message.trimm()", &["trimm"]);
        check("input.trimm().trimm()", &["trimm"]);
        check("Math.maximum(1) + JSON.trim('x')", &["maximum", "trim"]);
        check("inptu.message", &["inptu"]);
        check("Sting(input.n) + y", &["Sting", "y"]);
        check("input.l.map(x => z)", &["z"]);
    }

    struct NoNames;

    impl ScriptScope for NoNames {
        fn name(&self, _: &str) -> Option<Value> {
            None
        }

        fn node(&self, _: &str) -> Option<Value> {
            None
        }
    }

    /// The list and the methods themselves are in two files.
    #[test]
    fn every_method_of_the_list_exists() {
        let owners = ["'a'", "[1, 2]", "1.5", "{ a: 1 }"];
        let is_method = |call: &str| match evaluate(&parse(call).unwrap(), &NoNames) {
            Ok(_) => true,
            Err(error) => !["has no method", "is not a function", "is not defined"]
                .iter()
                .any(|why| error.0.contains(why)),
        };
        for method in METHODS {
            let plain = owners.iter().any(|owner| is_method(&format!("({owner}).{method}('a')")));
            assert!(plain || is_method(&format!("[1, 2].{method}((a, b) => a)")), "{method}");
        }
        for (owner, functions) in FUNCTIONS {
            for function in functions {
                let dot = if owner.is_empty() { "" } else { "." };
                let call = format!("{owner}{dot}{function}({})", json!("{\"a\": 1}"));
                assert!(is_method(&call), "{call}");
            }
        }
    }
}

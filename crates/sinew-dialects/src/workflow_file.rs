//! Workflow files from bytes to a document, with their variables.

use sinew_protocol::code;
use sinew_source::{
    Diagnostic, Diagnostics, Document, LoadOptions, Node, Span, Variable, VariableRules, Variables, load,
};

use crate::dialect::Dialect;
use crate::registry::detect;

/// The environment of a process, and the variables that files may use.
#[derive(Clone, Copy)]
pub struct FileVariables<'a> {
    /// Variables that the caller allows, in addition to those that a file declares.
    pub rules: &'a VariableRules,
    /// Returns the value of a variable.
    pub environment: &'a dyn Fn(&str) -> Option<String>,
}

/// Reads a workflow file. Strings are kept as written, unless the dialect treats `${NAME}` as a
/// variable in the document: then the file is read again with the variables that the caller allows
/// and the file declares.
///
/// `options.variables` is not used.
pub fn load_workflow_file(
    bytes: &[u8],
    options: &LoadOptions<'_>,
    dialect: Option<&dyn Dialect>,
    variables: FileVariables<'_>,
) -> Result<Document, Diagnostics> {
    let written = load(bytes, &LoadOptions { variables: Variables::Kept, ..*options });
    let declared = |document: &Document| -> Result<Option<VariableRules>, Diagnostics> {
        let Some(dialect) = dialect.or_else(|| detect(document)) else { return Ok(None) };
        let Some(names) = dialect.declared_variables(document) else { return Ok(None) };
        allow_declared(variables.rules, &names, document).map(Some)
    };
    let load_with = |look_up: &dyn Fn(&str) -> Variable| {
        load(bytes, &LoadOptions { variables: Variables::Replaced(look_up), ..*options })
    };
    let replaced = |rules: &VariableRules| load_with(&|name| rules.look_up(name, variables.environment));
    match written {
        Ok(document) => {
            let Some(rules) = declared(&document)? else { return Ok(document) };
            let unread = dialect.or_else(|| detect(&document)).map(|dialect| dialect.unread_parts(&document));
            replaced(&rules).or_else(|mut found| {
                // Variables of parts that nothing reads stay in the text.
                found.items.retain(|item| !is_variable_of(item, unread.as_deref().unwrap_or_default()));
                if found.has_errors() {
                    return Err(found);
                }
                load_with(&|name| match rules.look_up(name, variables.environment) {
                    known @ (Variable::Value(_) | Variable::Secret) => known,
                    _ => Variable::Absent,
                })
            })
        }
        Err(found) => {
            // The name of an included file may contain a variable that the caller allows, so only a
            // read that replaces variables finds the file. All other references stay in the text
            // for now.
            if found.items.iter().any(|item| item.code != code::INCLUDED_FILE_CANNOT_BE_READ.as_str()) {
                return Err(found);
            }
            let look_up = |name: &str| match variables.rules.look_up(name, variables.environment) {
                Variable::Value(value) => Variable::Value(value),
                _ => Variable::Secret,
            };
            let probe = load(bytes, &LoadOptions { variables: Variables::Replaced(&look_up), ..*options });
            match probe.ok().map(|document| declared(&document)).transpose()?.flatten() {
                Some(rules) => replaced(&rules),
                None => Err(found),
            }
        }
    }
}

/// Codes of variables that have no value.
const VARIABLE_CODES: [code::Code; 3] = [
    code::ENVIRONMENT_VARIABLE_NOT_SET,
    code::ENVIRONMENT_VARIABLE_NOT_ALLOWED,
    code::ENVIRONMENT_VARIABLE_CANNOT_BE_USED,
];

/// Returns whether a finding is about a variable in one of these parts.
fn is_variable_of(finding: &Diagnostic, parts: &[&Node]) -> bool {
    fn holds(node: &Node, span: Span) -> bool {
        node.span == span
            || node.as_array().unwrap_or_default().iter().any(|item| holds(item, span))
            || node.as_object().unwrap_or_default().iter().any(|member| holds(&member.value, span))
    }
    VARIABLE_CODES.iter().any(|code| code.as_str() == finding.code)
        && finding.span.is_some_and(|span| parts.iter().any(|part| holds(part, span)))
}

/// Returns the rules extended by the names that a file declares, or the errors of those names.
fn allow_declared(
    rules: &VariableRules,
    names: &[&Node],
    document: &Document,
) -> Result<VariableRules, Diagnostics> {
    let mut rules = rules.clone();
    let mut found = Diagnostics::new(document.sources.clone());
    for node in names {
        let told = match node.as_str() {
            Some(name) => rules.allow(name).map_err(|error| error.to_string()),
            None => Err("the name of an environment variable is a text".to_owned()),
        };
        if let Err(problem) = told {
            found.push(
                Diagnostic::error(code::ENVIRONMENT_VARIABLE_CANNOT_BE_USED.as_str(), problem).at(node.span),
            );
        }
    }
    if found.has_errors() { Err(found) } else { Ok(rules) }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::{Value, json};
    use sinew_source::Limits;

    use super::*;
    use crate::by_name;

    /// Strings that have a meaning in prompts, JavaScript, shells and headers.
    const WRITTEN: &[&str] = &[
        "${HOME}",
        "`${x}`",
        "${VAR:-x}",
        "Bearer ${MCP_TOKEN}",
        "$${HOME}",
        "${NOT_SET}",
        "${{ secrets.X }}",
    ];

    /// Reads a file with these variables allowed. The environment panics for any other variable.
    fn read(text: &str, dialect: Option<&str>, allowed: &[&str]) -> Result<Value, String> {
        let mut rules = VariableRules::default();
        for name in allowed {
            rules.allow(name).unwrap();
        }
        let environment = |name: &str| match name {
            "REGION" => Some("eu".to_owned()),
            "UNSET" => None,
            other => panic!("{other} was read"),
        };
        let include = |path: &Path| match path.to_str() {
            Some("eu.yaml") => Ok(b"{zone: '${REGION}'}".to_vec()),
            _ => Err("no such file".to_owned()),
        };
        let options = LoadOptions {
            name: "app.yaml",
            variables: Variables::Kept,
            read: &include,
            limits: Limits::default(),
        };
        let variables = FileVariables { rules: &rules, environment: &environment };
        load_workflow_file(text.as_bytes(), &options, dialect.and_then(by_name), variables)
            .map(|document| document.root.to_json())
            .map_err(|found| {
                let told = found.items.iter().map(|item| {
                    let place = item.span.unwrap_or_default();
                    format!("{}:{} {} {}", place.line, place.column, item.code, item.message)
                });
                told.collect::<Vec<_>>().join("\n")
            })
    }

    #[test]
    fn texts_of_every_file_but_application_files_arrive_as_written() {
        let texts = json!(WRITTEN);
        let node = json!({"id": "a", "type": "agent", "agent_name": "A", "instruction": texts[0]});
        let files = [
            ("sam", json!({"workflow": {"description": texts, "nodes": [node]}})),
            ("sam", json!({"nodes": [node], "output_mapping": {"texts": texts}})),
            (
                "sweny",
                json!({"id": "w", "name": "w", "entry": "a", "edges": [], "description": texts[3],
                    "nodes": {"a": {"name": "a", "instruction": texts[1], "skills": ["s"]}},
                    "skills": {"s": {"mcp": {"url": "https://a.example", "headers": {"A": texts[3]}}}}}),
            ),
            (
                "agentflow",
                json!({"nodes": [{"id": "a", "type": "agent", "data": {"texts": texts}}], "connections": []}),
            ),
            ("agentteam", json!({"metadata": {"id": "t"}, "nodes": [], "connections": [], "texts": texts})),
            ("covalt", json!({"nodes": [], "edges": [], "texts": texts})),
            // Not an application file of sam if the caller specifies another dialect.
            ("sweny", json!({"apps": texts})),
        ];
        for (dialect, file) in files {
            assert_eq!(read(&file.to_string(), Some(dialect), &["REGION"]), Ok(file.clone()), "{dialect}");
        }
    }

    /// Top of the file, its text, the names that the caller allows, and the result.
    type AllowedCase =
        (&'static str, &'static str, &'static [&'static str], Result<&'static str, &'static str>);

    #[test]
    fn application_files_read_what_is_allowed() {
        let app = "apps: [{name: a, app_config: {workflow: {description: '%'}}}]\n";
        let cases: &[AllowedCase] = &[
            ("", "${REGION}-1", &["REGION"], Ok("eu-1")),
            ("env: [REGION]\n", "${REGION}-1", &[], Ok("eu-1")),
            ("env: [REGION]\n", "$${REGION}", &[], Ok("${REGION}")),
            ("", "${HOME, nowhere}", &[], Ok("nowhere")),
            ("", "${NATS_PASSWORD, none}", &[], Ok("none")),
            ("", "${UNSET, x}", &["UNSET"], Ok("x")),
            // A secret is a reference, even if the caller allows it.
            ("", "Bearer ${API_TOKEN}", &["API_TOKEN"], Ok("Bearer ${API_TOKEN}")),
            ("env: [DB_PASSWORD]\n", "${DB_PASSWORD}", &[], Ok("${DB_PASSWORD}")),
            ("", "${HOME}", &[], Err("1:55 SINEW-1017 environment variable HOME is not allowed here")),
            ("", "${UNSET}", &["UNSET"], Err("1:55 SINEW-1016 environment variable UNSET is not set")),
            (
                "",
                "${NATS_PASSWORD}",
                &[],
                Err("1:55 SINEW-1018 environment variable NATS_PASSWORD is reserved: files never read NATS_* and SINEW_*"),
            ),
            (
                "env: [REGION, SINEW_NAMESPACE, 7, 'A B']\n",
                "",
                &[],
                Err("1:15 SINEW-1018 environment variable SINEW_NAMESPACE is reserved: files never read NATS_* and SINEW_*
1:32 SINEW-1018 the name of an environment variable is a text
1:35 SINEW-1018 'A B' is not a valid name of an environment variable"),
            ),
        ];
        for (head, text, allowed, expected) in cases {
            let got = read(&format!("{head}{}", app.replace('%', text)), None, allowed).map(|file| {
                file["apps"][0]["app_config"]["workflow"]["description"].as_str().unwrap().to_owned()
            });
            assert_eq!(got, expected.map(str::to_owned).map_err(str::to_owned), "{head}{text}");
        }
    }

    #[test]
    fn variables_of_parts_that_nothing_reads_stay_in_the_text() {
        let app = |broker: &str, input: &str| {
            format!(
                "log: ${{LOG}}\napps: [{{name: a, broker: {{url: '{broker}'}}, app_config: {{agent_name: X, model: ['${{HOME}}'], \
                 workflow: {{nodes: [{{id: n, agent_name: A, input: {{x: '{input}'}}}}]}}}}}}]"
            )
        };
        let kept = read(&app("${BROKER}", "${REGION}"), None, &["REGION"]).unwrap();
        assert_eq!(kept["apps"][0]["broker"]["url"], "${BROKER}");
        assert_eq!(kept["apps"][0]["app_config"]["workflow"]["nodes"][0]["input"]["x"], "eu");
        // A default replaces the variable, also if others have no value.
        let kept = read(&app("${BROKER, here}", "${TASK, 3}"), None, &[]).unwrap();
        assert_eq!(kept["apps"][0]["app_config"]["workflow"]["nodes"][0]["input"]["x"], "3");
        // Only the variable of the workflow is reported.
        let found = read(&app("${BROKER}", "${TASK}"), None, &[]).unwrap_err();
        assert!(found.ends_with("SINEW-1017 environment variable TASK is not allowed here"), "{found}");
        assert_eq!(found.lines().count(), 1, "{found}");
    }

    #[test]
    fn the_name_of_an_included_file_may_hold_a_variable_in_application_files() {
        let app =
            "env: [UNSET]\napps: [{name: a, app_config: {agent_name: X}, more: !include '${REGION}.yaml'}]";
        assert_eq!(read(app, None, &["REGION"]).unwrap()["apps"][0]["more"], json!({"zone": "eu"}));
        let other = "workflow: {nodes: [], more: !include '${REGION}.yaml'}";
        assert!(read(other, None, &["REGION"]).unwrap_err().contains("SINEW-1013"));
    }
}

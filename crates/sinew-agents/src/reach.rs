//! Programs, addresses and environment variables that an agent accesses outside its sandbox.
//! People see them before they trust a third-party file.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::file::{AgentFile, ReferenceFile};
use crate::model_file::{ProviderName, ToolEntry};

/// Prefix of a variable in a text of an agent file.
const VARIABLE: &str = "${env:";
/// Name of the file with the models of all agents of a folder.
const MODELS_FILE: &str = "models.yaml";

/// What an agent accesses outside its sandbox. Empty for an agent that only computes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentReach {
    /// Programs with their arguments, which run as the user.
    pub programs: Vec<String>,
    /// Addresses that receive requests, as written in the file.
    pub addresses: Vec<String>,
    /// Environment variables that are passed to programs or sent to addresses.
    pub variables: BTreeSet<String>,
    /// Files next to the agent file that determine its behaviour.
    pub files: Vec<PathBuf>,
    /// Whether the agent can call other agents.
    pub calls_others: bool,
}

impl AgentReach {
    /// Returns whether the agent only computes.
    pub fn is_empty(&self) -> bool {
        self.programs.is_empty() && self.addresses.is_empty() && self.variables.is_empty()
    }

    pub(crate) fn of(file: &AgentFile, raw: &Value, folder: &Path) -> Self {
        let mut reach = Self::default();
        add_variables(raw, &mut reach.variables);
        if let Some(command) = &file.run.command {
            reach.add_program(&command.argv, command.cwd.as_deref(), folder);
            match &command.references {
                ReferenceFile::Names(names) => reach.variables.extend(names.iter().cloned()),
                ReferenceFile::Hosts(hosts) => reach.variables.extend(hosts.keys().cloned()),
            }
        }
        if let Some(http) = &file.run.http {
            let address = if http.from_input { "addresses that its input names" } else { &http.url };
            reach.addresses.push(address.to_owned());
        }
        if let Some(mcp) = &file.run.mcp {
            reach.add_server(mcp.command.as_deref(), mcp.cwd.as_deref(), mcp.url.as_deref(), folder);
        }
        let Some(model) = &file.run.model else { return reach };
        for ToolEntry { command, cwd, url, peer, workflow, discover, request, .. } in &model.tools {
            reach.add_server(command.as_deref(), cwd.as_deref(), url.as_deref(), folder);
            reach.calls_others |=
                peer.is_some() || workflow.is_some() || discover.is_some() || request.is_some();
        }
        let asks = |provider: &ProviderName| !matches!(provider, ProviderName::Script);
        for model in
            model.models.iter().flatten().map(|(_, model)| model).filter(|model| asks(&model.provider))
        {
            let own = || format!("the language model {}", model.model);
            reach.addresses.push(model.url.clone().unwrap_or_else(own));
        }
        let shared = folder.join(MODELS_FILE);
        if shared.is_file() {
            reach.addresses.push(format!("the language models of {MODELS_FILE}"));
            reach.files.push(shared);
        }
        reach
    }

    fn add_server(
        &mut self,
        command: Option<&[String]>,
        cwd: Option<&str>,
        url: Option<&str>,
        folder: &Path,
    ) {
        if let Some(command) = command {
            self.add_program(command, cwd, folder);
        }
        self.addresses.extend(url.map(str::to_owned));
    }

    fn add_program(&mut self, argv: &[String], cwd: Option<&str>, folder: &Path) {
        self.programs.push(argv.join(" "));
        let work = cwd.map_or_else(|| folder.to_owned(), |cwd| folder.join(cwd));
        let named = argv.iter().map(|argument| work.join(argument));
        self.files.extend(named.filter(|path| path.is_file()));
    }
}

/// Adds the variables that the texts of a value reference.
fn add_variables(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::String(text) => {
            let rests = text.match_indices(VARIABLE).map(|(at, _)| &text[at + VARIABLE.len()..]);
            found.extend(rests.filter_map(|rest| rest.split_once('}')).map(|(name, _)| name.to_owned()));
        }
        Value::Array(items) => items.iter().for_each(|item| add_variables(item, found)),
        Value::Object(members) => members.values().for_each(|member| add_variables(member, found)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use crate::Agent;

    #[test]
    fn agents_that_only_compute_reach_nothing() {
        for (run, expected) in [
            ("{script: {source: 'lambda input: 1'}}", ""),
            ("{command: {argv: [python3, x.py]}}", "python3 x.py|"),
            ("{command: {argv: ['true'], env: {A: '${env:KEY} ${env:OTHER}'}}}", "true||KEY OTHER"),
            ("{http: {url: 'https://a.example/{{input.id}}'}}", "|https://a.example/{{input.id}}|"),
            ("{http: {from_input: true}}", "|addresses that its input names|"),
            ("{mcp: {command: [npx, server]}}", "npx server||"),
            ("{mcp: {url: 'https://b.example', headers: {K: '${env:T}'}}}", "|https://b.example|T"),
            (
                "{model: {use: [m], models: {m: {provider: openai, model: x, key: '${env:KEY}'}}, tools: \
                 [{mcp: t, command: [srv], allow: ['*']}]}}",
                "srv|the language model x|KEY",
            ),
            ("{model: {use: [m], models: {m: {provider: script}}}}", "||"),
        ] {
            let text = format!("name: x\nrun: {run}\n");
            let agent = Agent::from_text(std::path::Path::new("/nowhere/x.agent.yaml"), &text)
                .unwrap_or_else(|error| panic!("{run}: {error:?}"));
            let reach = agent.reach();
            let names: Vec<&str> = reach.variables.iter().map(String::as_str).collect();
            let shown = [reach.programs.join(","), reach.addresses.join(","), names.join(" ")].join("|");
            assert_eq!(shown.trim_matches('|'), expected.trim_matches('|'), "{run}");
            assert_eq!(reach.is_empty(), expected.trim_matches('|').is_empty(), "{run}");
        }
    }
}

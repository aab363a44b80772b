//! `sinew workflow nodes`: settings, inputs, outputs and ports of node types.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args;
use serde_json::Value;
use sinew_dialects::agentteam;
use sinew_documents::words;
use sinew_operations::failure::Failure;
use sinew_operations::node_types::{CatalogueDialect, node_types};

use crate::exit::Exit;
use crate::output::{Format, Output};

const EXAMPLES: &str = "Examples:
  sinew workflow nodes
  sinew workflow nodes EXTERNAL_ACTION
  sinew workflow nodes AI_AGENT.OPENAI_CHATGPT
  sinew workflow nodes EXTERNAL_ACTION.SLACK -o json | jq .configurations.required
  sinew workflow nodes --typescript > nodes.d.ts
  sinew workflow nodes --dialect covalt                # category, mode, icon, colour and outline
  sinew workflow nodes agent --dialect covalt -o json | jq .inputs";

/// Arguments of `sinew workflow nodes`.
#[derive(Args, Debug)]
#[command(
    long_about = "Describe the node types of a dialect: their settings with defaults and required ones, \
                  inputs, outputs, and output ports.\n\n\
                  With -o json, settings, input and output are JSON Schemas. --typescript prints types for \
                  frontends, with the standard message between nodes. For covalt: category, mode, icon, \
                  colour, outline, typed sockets and parameters.",
    after_help = EXAMPLES
)]
pub(crate) struct NodesArgs {
    /// A type, or a type with all its subtypes [default: all]
    #[arg(value_name = "TYPE[.SUBTYPE]")]
    wanted: Option<String>,
    /// Dialect of the nodes
    #[arg(long, default_value = "agentteam", value_parser = ["agentteam", "covalt"])]
    dialect: String,
    /// Folder of the workflow files; plugins below its folder `nodes` are further covalt types
    #[arg(long, value_name = "DIR", default_value = ".")]
    folder: PathBuf,
    /// Print TypeScript types
    #[arg(long)]
    typescript: bool,
}

/// Runs the command.
pub(super) fn nodes(args: &NodesArgs, output: &Output) -> Result<Exit, Failure> {
    let is_covalt = args.dialect == "covalt";
    let dialect = if is_covalt { CatalogueDialect::Covalt } else { CatalogueDialect::Agentteam };
    let mut types = node_types(dialect, args.wanted.as_deref(), Some(&args.folder))?;
    let name = |one: &Value| match one["subtype"].as_str() {
        Some(subtype) => format!("{}.{subtype}", text(one, "type")),
        None => text(one, "type").to_owned(),
    };
    if args.typescript {
        if is_covalt {
            return Err(Failure::usage(
                "--typescript is only for agentteam: covalt nodes exchange JSON without types",
            ));
        }
        let names: Vec<String> = types.iter().map(name).collect();
        output.text(&agentteam::typescript_of(&|wanted| names.iter().any(|name| name == wanted)));
        return Ok(Exit::Ok);
    }
    if output.format == Format::Name {
        for one in &types {
            output.line(&name(one));
        }
        return Ok(Exit::Ok);
    }
    let is_one = args.wanted.as_ref().is_some_and(|wanted| is_covalt || wanted.contains('.'));
    match types.pop() {
        Some(only) if is_one => output.value(&only, if is_covalt { canvas_detail } else { detail }),
        Some(last) => {
            types.push(last);
            output.value(
                &types,
                |types: &Vec<Value>| if is_covalt { canvas_table(types) } else { table(types) },
            );
        }
        None => {}
    }
    Ok(Exit::Ok)
}

fn canvas_table(kinds: &[Value]) -> String {
    let mut lines =
        vec![["TYPE", "CATEGORY", "MODE", "ICON", "COLOUR", "SHAPE", "DESCRIPTION"].map(str::to_owned)];
    lines.extend(kinds.iter().map(|kind| {
        ["type", "category", "mode", "icon", "color", "shape", "description"]
            .map(|key| text(kind, key).to_owned())
    }));
    words::columns(&lines)
}

fn canvas_detail(kind: &Value) -> String {
    let mut out = words::columns(&[
        [text(kind, "type").to_owned(), text(kind, "description").to_owned()],
        ["  category".to_owned(), text(kind, "category").to_owned()],
        ["  mode".to_owned(), text(kind, "mode").to_owned()],
        ["  icon".to_owned(), text(kind, "icon").to_owned()],
        ["  colour".to_owned(), text(kind, "color").to_owned()],
        ["  shape".to_owned(), text(kind, "shape").to_owned()],
    ]);
    out.push('\n');
    for key in ["inputs", "outputs"] {
        let sockets = kind[key].as_array().map(Vec::as_slice).unwrap_or_default();
        let rows: Vec<[String; 4]> = sockets
            .iter()
            .map(|socket| {
                [
                    format!("  {}", text(socket, "name")),
                    text(socket, "type").to_owned(),
                    text(socket, "color").to_owned(),
                    text(socket, "shape").to_owned(),
                ]
            })
            .collect();
        let table = if rows.is_empty() { "  none".to_owned() } else { words::columns(&rows) };
        // Writing to a String cannot fail.
        let _ = writeln!(out, "\n{key}:\n{table}");
    }
    out
}

fn text<'v>(value: &'v Value, key: &str) -> &'v str {
    value[key].as_str().unwrap_or_default()
}

/// Texts of a list, with commas.
fn joined(value: &Value) -> String {
    let texts: Vec<&str> = value.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if texts.is_empty() { "-".to_owned() } else { texts.join(", ") }
}

fn table(types: &[Value]) -> String {
    let mut lines = vec![["TYPE", "REQUIRED", "NEEDS", "PORTS", "DESCRIPTION"].map(str::to_owned)];
    lines.extend(types.iter().map(|one| {
        [
            format!("{}.{}", text(one, "type"), text(one, "subtype")),
            joined(&one["configurations"]["required"]),
            joined(&one["input"]["required"]),
            joined(&one["ports"]),
            text(one, "description").to_owned(),
        ]
    }));
    words::columns(&lines)
}

fn detail(one: &Value) -> String {
    let mut out = format!("{}.{}", text(one, "type"), text(one, "subtype"));
    // Writing to a String cannot fail.
    let _ = writeln!(out, "  {}\n\nports: {}", text(one, "description"), joined(&one["ports"]));
    for key in ["configurations", "input", "output"] {
        let Some(members) = one[key]["properties"].as_object() else {
            let _ = writeln!(out, "\n{key}: any");
            continue;
        };
        if members.is_empty() {
            let _ = writeln!(out, "\n{key}: none");
            continue;
        }
        let required = one[key]["required"].as_array();
        let rows: Vec<[String; 3]> = members
            .iter()
            .map(|(name, entry)| {
                let must = required.is_some_and(|all| all.iter().any(|one| one == name));
                let kind = entry["type"].as_str().unwrap_or("any").to_owned();
                let usual = if must { "required".to_owned() } else { entry["default"].to_string() };
                [format!("  {name}"), kind, usual]
            })
            .collect();
        let _ = writeln!(out, "\n{key}:\n{}", words::columns(&rows));
    }
    out
}

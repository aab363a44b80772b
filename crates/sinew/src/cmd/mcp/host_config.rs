//! `sinew mcp config`: the configuration with which an MCP host starts `sinew mcp`, or connects to a gateway.

use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use sinew_operations::failure::Failure;

use crate::connect::Connection;
use crate::exit::Exit;
use crate::output::{Format, Output};

/// Name of the server in the configuration of a host.
const SERVER_NAME: &str = "sinew";

/// Arguments of `sinew mcp config`.
#[derive(Args, Debug)]
#[command(
    long_about = "Print the configuration with which a host of the Model Context Protocol starts `sinew \
                  mcp`. Connection flags become arguments; without any, the host uses the mesh of the `sinew \
                  dev` in this folder.\n\n\
                  The configuration is printed to stdout, the name of its file to stderr.",
    after_help = "Examples:\n  sinew mcp config claude-desktop\n  sinew mcp config vscode --nats nats://localhost:4222 > .vscode/mcp.json\n  sinew mcp config cursor --url http://127.0.0.1:8234/mcp"
)]
pub(crate) struct HostConfigArgs {
    /// Host to configure
    #[arg(value_name = "HOST", value_enum)]
    host: McpHost,
    /// Use the gateway at this address instead of starting a process
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// Expose only workflows and agents whose names match; `*` matches any text. May be repeated
    #[arg(long, value_name = "PATTERN", conflicts_with = "url")]
    expose: Vec<String>,
    #[command(flatten)]
    mesh: Connection,
}

/// Hosts of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum McpHost {
    /// Claude Desktop
    ClaudeDesktop,
    /// Claude Code
    ClaudeCode,
    /// Visual Studio Code with Copilot
    #[value(name = "vscode")]
    VisualStudioCode,
    /// Cursor
    Cursor,
    /// Windsurf
    Windsurf,
    /// Zed
    Zed,
    /// Gemini CLI
    Gemini,
    /// Codex CLI
    Codex,
}

/// The way in which a host reaches the tools.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ToolServer {
    /// The host starts a program.
    Program { path: String, arguments: Vec<String> },
    /// The host connects to a gateway.
    Gateway { url: String },
}

/// Prints the configuration.
pub(super) fn print_host_config(args: &HostConfigArgs, output: &Output) -> Result<Exit, Failure> {
    let server = match &args.url {
        Some(url) if args.host == McpHost::ClaudeCode && !url.contains("tools=") => {
            // It defers tools and searches them itself.
            let separator = if url.contains('?') { '&' } else { '?' };
            ToolServer::Gateway { url: format!("{url}{separator}tools=all") }
        }
        Some(url) => ToolServer::Gateway { url: url.clone() },
        None => program(args)?,
    };
    output.note(&format!("for {}", args.host.file()));
    if args.host == McpHost::Codex {
        output.text(&toml_of(&server));
        return Ok(Exit::Ok);
    }
    output.document(&args.host.config(&server), SERVER_NAME, Format::Json);
    Ok(Exit::Ok)
}

fn program(args: &HostConfigArgs) -> Result<ToolServer, Failure> {
    if args.mesh.password.is_some() {
        let text = "a password must not be stored in the configuration of a host";
        return Err(
            Failure::usage(text).hint("use a file with credentials (--creds) or a context (--context)")
        );
    }
    let path = std::env::current_exe().map_err(|error| Failure::unreadable("sinew".as_ref(), &error))?;
    let mut arguments = vec!["mcp".to_owned()];
    let connection = args.mesh.arguments()?;
    if let Some(address) = connection.iter().find(|word| word.contains("://") && word.contains('@')) {
        let address = address.split('@').next_back().unwrap_or_default();
        let text = format!(
            "the address of {address} has a password, which must not be stored in the configuration of a host"
        );
        return Err(
            Failure::usage(text).hint("use a file with credentials (--creds) or a context (--context)")
        );
    }
    arguments.extend(connection);
    if args.host == McpHost::ClaudeCode {
        arguments.extend(["--tools", "all"].map(str::to_owned));
    }
    arguments.extend(args.expose.iter().flat_map(|pattern| ["--expose".to_owned(), pattern.clone()]));
    Ok(ToolServer::Program { path: path.display().to_string(), arguments })
}

impl McpHost {
    /// Returns the file for the configuration.
    fn file(self) -> &'static str {
        match self {
            Self::ClaudeDesktop => "claude_desktop_config.json of Claude Desktop (Settings, Developer)",
            Self::ClaudeCode => ".mcp.json of the project",
            Self::VisualStudioCode => ".vscode/mcp.json of the project",
            Self::Cursor => ".cursor/mcp.json of the project, or ~/.cursor/mcp.json",
            Self::Windsurf => "~/.codeium/windsurf/mcp_config.json",
            Self::Zed => "settings.json of Zed",
            Self::Gemini => "~/.gemini/settings.json",
            Self::Codex => "~/.codex/config.toml",
        }
    }

    /// Returns the member of the file that holds the servers.
    fn section(self) -> &'static str {
        match self {
            Self::VisualStudioCode => "servers",
            Self::Zed => "context_servers",
            _ => "mcpServers",
        }
    }

    fn config(self, server: &ToolServer) -> Value {
        json!({self.section(): {SERVER_NAME: self.entry(server)}})
    }

    fn entry(self, server: &ToolServer) -> Value {
        match server {
            ToolServer::Program { path, arguments } => match self {
                Self::VisualStudioCode | Self::ClaudeCode => {
                    json!({"type": "stdio", "command": path, "args": arguments})
                }
                _ => json!({"command": path, "args": arguments}),
            },
            ToolServer::Gateway { url } => match self {
                Self::VisualStudioCode | Self::ClaudeCode => json!({"type": "http", "url": url}),
                Self::Windsurf => json!({"serverUrl": url}),
                Self::Gemini => json!({"httpUrl": url}),
                // Claude Desktop starts programs only.
                Self::ClaudeDesktop => json!({"command": "npx", "args": ["-y", "mcp-remote", url]}),
                Self::Cursor | Self::Zed | Self::Codex => json!({"url": url}),
            },
        }
    }
}

/// Returns the configuration of Codex, which is TOML. JSON strings are valid TOML strings.
fn toml_of(server: &ToolServer) -> String {
    let members = match server {
        ToolServer::Program { path, arguments } => {
            format!("command = {}\nargs = {}\n", json!(path), json!(arguments))
        }
        ToolServer::Gateway { url } => format!("url = {}\n", json!(url)),
    };
    format!("[mcp_servers.{SERVER_NAME}]\n{members}")
}

#[cfg(test)]
mod tests;

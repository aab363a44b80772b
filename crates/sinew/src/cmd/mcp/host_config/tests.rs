//! Tests of `host_config`.

use super::*;

#[test]
fn hosts_start_the_program_or_ask_the_gateway() {
    let program = ToolServer::Program {
        path: "/usr/bin/sinew".to_owned(),
        arguments: vec!["mcp".to_owned(), "--nats".to_owned(), "nats://h".to_owned()],
    };
    let gateway = ToolServer::Gateway { url: "http://127.0.0.1:8234/mcp".to_owned() };
    let check = |host: McpHost, place: &str, started: Value, asked: Value| {
        for (server, expected) in [(&program, started), (&gateway, asked)] {
            assert_eq!(host.config(server).pointer(place), Some(&expected), "{host:?} {server:?}");
        }
    };
    let plain = json!({"command": "/usr/bin/sinew", "args": ["mcp", "--nats", "nats://h"]});
    let typed = json!({"type": "stdio", "command": "/usr/bin/sinew", "args": ["mcp", "--nats", "nats://h"]});
    let url = "http://127.0.0.1:8234/mcp";
    check(McpHost::VisualStudioCode, "/servers/sinew", typed.clone(), json!({"type": "http", "url": url}));
    check(McpHost::ClaudeCode, "/mcpServers/sinew", typed, json!({"type": "http", "url": url}));
    check(McpHost::Cursor, "/mcpServers/sinew", plain.clone(), json!({"url": url}));
    check(McpHost::Windsurf, "/mcpServers/sinew", plain.clone(), json!({"serverUrl": url}));
    check(McpHost::Gemini, "/mcpServers/sinew", plain.clone(), json!({"httpUrl": url}));
    check(McpHost::Zed, "/context_servers/sinew", plain.clone(), json!({"url": url}));
    let remote = json!({"command": "npx", "args": ["-y", "mcp-remote", url]});
    check(McpHost::ClaudeDesktop, "/mcpServers/sinew", plain, remote);
    assert_eq!(
        toml_of(&program),
        "[mcp_servers.sinew]\ncommand = \"/usr/bin/sinew\"\nargs = [\"mcp\",\"--nats\",\"nats://h\"]\n"
    );
}

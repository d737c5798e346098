//! How to register this program with each client.

use std::path::Path;

use serde_json::json;

use crate::config::locate::{Face, Platform};

/// For each client its name and its entry with the place for it. `program` is absolute.
pub(super) fn registrations(face: Face, program: &Path, platform: Platform) -> Vec<(&'static str, String)> {
    let name = match face {
        Face::Workbench => "workbench",
        Face::Toolman => "toolman",
    };
    let program = program.to_string_lossy();
    let (quoted, word) = (json!(program), shell_word(&program));
    let standard = format!(r#"{{ "mcpServers": {{ "{name}": {{ "command": {quoted} }} }} }}"#);
    let in_file = |file: &str, entry: &str| format!("in {file}:\n{entry}");
    let desktop = match platform {
        Platform::Unix => "~/.config/Claude/claude_desktop_config.json",
        Platform::MacOs => "~/Library/Application Support/Claude/claude_desktop_config.json",
        Platform::Windows => r"%APPDATA%\Claude\claude_desktop_config.json",
    };
    let add_mcp = shell_word(&format!(r#"{{"name":"{name}","command":{quoted}}}"#));
    let zed = format!(r#"{{ "context_servers": {{ "{name}": {{ "command": {quoted}, "args": [] }} }} }}"#);
    let goose = format!(
        "extensions:\n  {name}: {{ name: {name}, type: stdio, cmd: {quoted}, args: [], enabled: true, timeout: 300 }}"
    );
    let opencode = format!(r#"{{ "mcp": {{ "{name}": {{ "type": "local", "command": [{quoted}] }} }} }}"#);
    vec![
        ("Claude Code", format!("claude mcp add -s user {name} -- {word}")),
        ("Claude Desktop", in_file(desktop, &standard)),
        ("Codex", format!("codex mcp add {name} -- {word}")),
        ("Cursor", in_file("~/.cursor/mcp.json", &standard)),
        ("VS Code", format!("code --add-mcp {add_mcp}")),
        ("Windsurf", in_file("~/.codeium/windsurf/mcp_config.json", &standard)),
        ("Zed", in_file("~/.config/zed/settings.json", &zed)),
        ("Gemini CLI", format!("gemini mcp add -s user {name} {word}")),
        ("Goose", in_file("~/.config/goose/config.yaml", &goose)),
        ("Cline", in_file("~/.cline/data/settings/cline_mcp_settings.json", &standard)),
        ("LM Studio", in_file("~/.lmstudio/mcp.json", &standard)),
        ("opencode", in_file("~/.config/opencode/opencode.json", &opencode)),
    ]
}

/// The text quoted as one word for a shell.
pub(super) fn shell_word(text: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "/._-+:@%\\".contains(c);
    match text.chars().all(plain) && !text.is_empty() && (cfg!(windows) || !text.contains('\\')) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_client_with_an_absolute_path() {
        let program = Path::new("/opt/my tools/mcp-workbench");
        let all = registrations(Face::Workbench, program, Platform::Unix);
        assert_eq!(all.len(), 12);
        for (client, entry) in &all {
            assert!(entry.contains("/opt/my tools/mcp-workbench") && entry.contains("workbench"), "{client}");
            if let Some((_, json)) = entry.split_once(":\n{") {
                let json = format!("{{{json}");
                assert!(serde_json::from_str::<serde_json::Value>(&json).is_ok(), "{client}: {json}");
            }
        }
        assert_eq!(all[0].1, "claude mcp add -s user workbench -- '/opt/my tools/mcp-workbench'");
    }

    #[test]
    fn words_of_a_shell() {
        for (text, expected) in
            [("/a/b-c.d", "/a/b-c.d"), ("a b", "'a b'"), ("it's", r"'it'\''s'"), ("", "''")]
        {
            assert_eq!(shell_word(text), expected);
        }
    }
}

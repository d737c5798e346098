//! The servers behind `demo-server NAME`, without any effect outside themselves: those of the demo's catalogue,
//! and two small ones that do what they say, for examples and for trying a client by hand.

use std::io::{self, BufRead, Write};

use serde_json::{Value, json};

use super::catalogue;
use crate::json::quote;

/// One of the servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Name {
    /// Counts and reshapes text.
    Text,
    /// Keeps notes as long as it runs.
    Notes,
    /// One of the catalogue, with the definitions of its tools.
    Catalogue(Vec<String>),
}

/// A tool: its definition, and what it does with the notes and its arguments.
struct Tool {
    name: &'static str,
    description: &'static str,
    /// The input schema, as JSON.
    schema: &'static str,
    run: fn(&mut Vec<String>, &Value) -> Result<String, String>,
}

const TEXT: &[Tool] = &[
    Tool {
        name: "count",
        description: "Count the characters, words and lines of a text",
        schema: r#"{"type":"object","properties":{"text":{"type":"string"}},"required":["text"]}"#,
        run: |_, arguments| {
            let text = string(arguments, "text")?;
            let (words, lines) = (text.split_whitespace().count(), text.lines().count());
            Ok(format!("characters: {}, words: {words}, lines: {lines}", text.chars().count()))
        },
    },
    Tool {
        name: "slug",
        description: "Turn a title into a name for files and URLs: lower case, words joined by hyphens",
        schema: r#"{"type":"object","properties":{"title":{"type":"string"}},"required":["title"]}"#,
        run: |_, arguments| {
            let title = string(arguments, "title")?.to_lowercase();
            let words = title.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
            Ok(words.collect::<Vec<_>>().join("-"))
        },
    },
    Tool {
        name: "sort_lines",
        description: "Sort the lines of a text; with unique, lines that are equal are kept once",
        schema: r#"{"type":"object","properties":{"text":{"type":"string"},"unique":{"type":"boolean","default":false}},"required":["text"]}"#,
        run: |_, arguments| {
            let mut lines: Vec<_> = string(arguments, "text")?.lines().collect();
            lines.sort_unstable();
            if arguments["unique"] == true {
                lines.dedup();
            }
            Ok(lines.join("\n"))
        },
    },
];

const NOTES: &[Tool] = &[
    Tool {
        name: "add_note",
        description: "Add a note; answers its number",
        schema: r#"{"type":"object","properties":{"text":{"type":"string","minLength":1}},"required":["text"]}"#,
        run: |notes, arguments| {
            notes.push(string(arguments, "text")?.to_owned());
            Ok(format!("note {} is kept", notes.len()))
        },
    },
    Tool {
        name: "list_notes",
        description: "List all notes with their numbers",
        schema: r#"{"type":"object"}"#,
        run: |notes, _| Ok(numbered(notes, "")),
    },
    Tool {
        name: "find_notes",
        description: "List the notes that contain a text, whatever its case",
        schema: r#"{"type":"object","properties":{"query":{"type":"string"}},"required":["query"]}"#,
        run: |notes, arguments| Ok(numbered(notes, string(arguments, "query")?)),
    },
];

const RESOURCES: &str = r#"[{"uri":"notes://all","name":"all notes","description":"Every note, one a line","mimeType":"text/plain"}]"#;
const TEMPLATES: &str = r#"[{"uriTemplate":"notes://{number}","name":"one note","description":"The note with this number","mimeType":"text/plain"}]"#;
const PROMPTS: &str =
    r#"[{"name":"tidy_up","description":"Ask for the notes to be merged and put in order"}]"#;

impl Name {
    /// The server that is called so.
    pub(crate) fn named(name: &str) -> Option<Self> {
        match name {
            "text" => Some(Self::Text),
            "notes" => Some(Self::Notes),
            name => {
                let server = catalogue::servers().into_iter().find(|server| server.name == name)?;
                Some(Self::Catalogue(server.tools))
            }
        }
    }

    /// The definitions of its tools, as `tools/list` gives them.
    fn definitions(&self) -> Vec<String> {
        if let Self::Catalogue(tools) = self {
            return tools.clone();
        }
        let definition = |tool: &Tool| {
            let (name, description) = (quote(tool.name), quote(tool.description));
            format!("{{\"name\":{name},\"description\":{description},\"inputSchema\":{}}}", tool.schema)
        };
        self.tools().iter().map(definition).collect()
    }

    fn tools(&self) -> &'static [Tool] {
        match self {
            Self::Text => TEXT,
            Self::Notes => NOTES,
            Self::Catalogue(_) => &[],
        }
    }

    /// What a tool answers; `None` if there is no such tool.
    fn call(&self, tool: &str, notes: &mut Vec<String>, arguments: &Value) -> Option<Result<String, String>> {
        if let Self::Catalogue(tools) = self {
            let begins = format!("{{\"name\":{},", quote(tool));
            return tools
                .iter()
                .any(|own| own.starts_with(&begins))
                .then(|| catalogue::call(tool, arguments));
        }
        let tool = self.tools().iter().find(|own| own.name == tool)?;
        Some((tool.run)(notes, arguments))
    }
}

/// Runs the server until its input ends.
pub(crate) fn serve(name: &Name, input: impl BufRead, mut output: impl Write) -> io::Result<()> {
    let mut notes = Vec::new();
    for line in input.lines() {
        let message: Value = serde_json::from_str(&line?).unwrap_or_default();
        let (Some(method), Some(id)) = (message["method"].as_str(), message.get("id")) else { continue };
        let answer = match answer(name, &mut notes, method, &message["params"]) {
            Ok(result) => format!("\"result\":{result}"),
            Err((code, message)) => format!("\"error\":{}", json!({ "code": code, "message": message })),
        };
        writeln!(output, "{{\"jsonrpc\":\"2.0\",\"id\":{id},{answer}}}")?;
        output.flush()?;
    }
    Ok(())
}

/// The result as JSON, or an error.
fn answer(
    name: &Name,
    notes: &mut Vec<String>,
    method: &str,
    params: &Value,
) -> Result<String, (i64, String)> {
    const METHOD_NOT_FOUND: i64 = -32601;
    const INVALID_PARAMS: i64 = -32602;
    const NO_RESOURCE: i64 = -32002;
    let has_notes = *name == Name::Notes;
    let text = |key: &str| params[key].as_str().unwrap_or_default();
    Ok(match method {
        "initialize" => {
            let more = if has_notes { json!({}) } else { Value::Null };
            let mut capabilities = json!({ "tools": {}, "resources": more, "prompts": more });
            capabilities.as_object_mut().expect("made as one").retain(|_, value| !value.is_null());
            let version = params["protocolVersion"].as_str().unwrap_or("2025-06-18");
            let about = json!({ "name": "demo", "version": env!("CARGO_PKG_VERSION") });
            json!({ "protocolVersion": version, "capabilities": capabilities, "serverInfo": about })
                .to_string()
        }
        "ping" => "{}".to_owned(),
        "tools/list" => format!("{{\"tools\":[{}]}}", name.definitions().join(",")),
        "tools/call" => {
            let outcome = name.call(text("name"), notes, &params["arguments"]);
            let outcome =
                outcome.ok_or_else(|| (INVALID_PARAMS, format!("Unknown tool: {}", text("name"))))?;
            let block = |text: &str| json!([{ "type": "text", "text": text }]);
            match &outcome {
                Ok(text) => json!({ "content": block(text) }).to_string(),
                Err(text) => json!({ "content": block(text), "isError": true }).to_string(),
            }
        }
        "resources/list" if has_notes => format!("{{\"resources\":{RESOURCES}}}"),
        "resources/templates/list" if has_notes => format!("{{\"resourceTemplates\":{TEMPLATES}}}"),
        "resources/read" if has_notes => {
            let uri = text("uri");
            let wanted = uri.strip_prefix("notes://").unwrap_or_default();
            let found = match wanted.parse::<usize>() {
                Ok(number) => number.checked_sub(1).and_then(|at| notes.get(at)).cloned(),
                Err(_) => (wanted == "all").then(|| numbered(notes, "")),
            };
            let found = found.ok_or_else(|| (NO_RESOURCE, format!("Resource not found: {uri}")))?;
            json!({ "contents": [{ "uri": uri, "mimeType": "text/plain", "text": found }] }).to_string()
        }
        "prompts/list" if has_notes => format!("{{\"prompts\":{PROMPTS}}}"),
        "prompts/get" if has_notes && text("name") == "tidy_up" => {
            let ask = format!("Merge these notes and put them in order:\n{}", numbered(notes, ""));
            json!({ "messages": [{ "role": "user", "content": { "type": "text", "text": ask } }] })
                .to_string()
        }
        "prompts/get" if has_notes => return Err((INVALID_PARAMS, "Unknown prompt".to_owned())),
        _ => return Err((METHOD_NOT_FOUND, format!("Method not found: {method}"))),
    })
}

fn string<'a>(arguments: &'a Value, key: &str) -> Result<&'a str, String> {
    arguments[key].as_str().ok_or_else(|| format!("`{key}` must be a string"))
}

/// The notes that contain a text, one per line.
fn numbered(notes: &[String], query: &str) -> String {
    let query = query.to_lowercase();
    let found = notes.iter().enumerate().filter(|(_, note)| note.to_lowercase().contains(&query));
    let lines: Vec<_> = found.map(|(at, note)| format!("{}. {note}", at + 1)).collect();
    if lines.is_empty() { "no notes".to_owned() } else { lines.join("\n") }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server's answers to these requests: results and errors as JSON values.
    fn said(name: Name, requests: &[(&str, Value)]) -> Vec<Value> {
        let lines: String = requests
            .iter()
            .map(|(method, params)| {
                format!("{}\n", json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }))
            })
            .collect();
        let mut output = Vec::new();
        serve(&name, lines.as_bytes(), &mut output).expect("memory can be read and written");
        let answers = String::from_utf8(output).expect("we write UTF-8");
        let answers =
            answers.lines().map(|line| serde_json::from_str::<Value>(line).expect("one JSON value"));
        answers
            .map(
                |mut answer| {
                    if answer["error"].is_null() { answer["result"].take() } else { answer["error"].take() }
                },
            )
            .collect()
    }

    #[test]
    fn tools_do_what_they_say() {
        for (name, tool, arguments, expected) in [
            (Name::Text, "count", json!({"text": "Grüß Gott\nWelt"}), "characters: 14, words: 3, lines: 2"),
            (Name::Text, "slug", json!({"title": " Hello, World! "}), "hello-world"),
            (Name::Text, "sort_lines", json!({"text": "b\na\nb"}), "a\nb\nb"),
            (Name::Text, "sort_lines", json!({"text": "b\na\nb", "unique": true}), "a\nb"),
            (Name::Text, "count", json!({}), "`text` must be a string"),
            (Name::Notes, "list_notes", json!({}), "no notes"),
        ] {
            let result = &said(name, &[("tools/call", json!({"name": tool, "arguments": arguments}))])[0];
            assert_eq!(result["content"][0]["text"], expected, "{tool} {arguments}");
            assert_eq!(result["isError"] == true, expected.contains("must be"), "{tool} {arguments}");
        }
    }

    #[test]
    fn notes_are_tools_resources_and_a_prompt() {
        let add = |text: &str| ("tools/call", json!({"name": "add_note", "arguments": {"text": text}}));
        let said = said(
            Name::Notes,
            &[
                ("initialize", json!({"protocolVersion": "2025-11-25"})),
                add("Buy milk"),
                add("Call Ada"),
                ("tools/call", json!({"name": "find_notes", "arguments": {"query": "ada"}})),
                ("resources/read", json!({"uri": "notes://1"})),
                ("resources/read", json!({"uri": "notes://all"})),
                ("resources/read", json!({"uri": "notes://0"})),
                ("prompts/get", json!({"name": "tidy_up"})),
                ("nonsense", json!({})),
            ],
        );
        assert_eq!(said[0]["capabilities"], json!({"tools": {}, "resources": {}, "prompts": {}}));
        assert_eq!(said[2]["content"][0]["text"], "note 2 is kept");
        assert_eq!(said[3]["content"][0]["text"], "2. Call Ada");
        assert_eq!(said[4]["contents"][0]["text"], "Buy milk");
        assert_eq!(said[5]["contents"][0]["text"], "1. Buy milk\n2. Call Ada");
        assert_eq!(said[6]["code"], -32002);
        assert!(
            said[7]["messages"][0]["content"]["text"]
                .as_str()
                .is_some_and(|text| text.ends_with("2. Call Ada"))
        );
        assert_eq!(said[8]["code"], -32601);
    }

    #[test]
    fn definitions_are_json() {
        for name in ["text", "notes", "issues"].map(|name| Name::named(name).expect("a server")) {
            for definition in name.definitions() {
                let value: Value = serde_json::from_str(&definition).expect("one JSON value");
                assert_eq!(value["inputSchema"]["type"], "object");
            }
        }
        for list in [RESOURCES, TEMPLATES, PROMPTS] {
            assert!(serde_json::from_str::<Value>(list).is_ok_and(|list| list.is_array()));
        }
    }
}

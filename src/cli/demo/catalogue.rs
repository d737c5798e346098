//! The catalogue of the demo: eight servers with the tools that such servers have in real life.
//!
//! The words stand in `catalogue.txt`, where a parameter is described once for all tools of its server; here
//! they become definitions of real size. Only the tools that the demo calls do anything.

use serde_json::Value;

use crate::json::quote;

const TEXT: &str = include_str!("catalogue.txt");

/// A server of the catalogue.
pub(super) struct CatalogueServer {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    /// The definitions of the tools, as `tools/list` gives them.
    pub(super) tools: Vec<String>,
}

/// All servers, in the order of the catalogue.
pub(super) fn servers() -> Vec<CatalogueServer> {
    let mut servers: Vec<CatalogueServer> = Vec::new();
    let (mut parameters, mut common) = (Vec::new(), "");
    for line in TEXT.lines() {
        let (head, text) = line.split_once(": ").expect("every line explains something");
        let (word, rest) = head.split_once(' ').expect("every line names something");
        match word {
            "server" => {
                (parameters, common) = (Vec::new(), "");
                servers.push(CatalogueServer { name: rest, about: text, tools: Vec::new() });
            }
            "param" => {
                let (name, kind) = rest.split_once(' ').expect("a parameter has a type");
                parameters.push((name, property(kind, text)));
            }
            "all" => common = text,
            _ => {
                let server = servers.last_mut().expect("a tool belongs to a server");
                server.tools.push(definition(rest, text, common, &parameters));
            }
        }
    }
    servers
}

/// The definition of a tool, such as `search(query! page)`, which also takes the `common` parameters of its
/// server.
fn definition(signature: &str, about: &str, common: &str, parameters: &[(&str, String)]) -> String {
    let (name, own) = signature.trim_end_matches(')').split_once('(').expect("a tool has a signature");
    let taken = format!("{own} {common}");
    let schema = |name: &str| {
        let known = parameters.iter().find(|(known, _)| *known == name);
        &known.expect("a parameter is described before it is used").1
    };
    let names: Vec<_> = taken.split_whitespace().map(|name| name.trim_end_matches('!')).collect();
    let properties: Vec<_> = names.iter().map(|name| format!("{}:{}", quote(name), schema(name))).collect();
    let required: Vec<_> =
        taken.split_whitespace().filter_map(|name| name.strip_suffix('!')).map(quote).collect();
    format!(
        "{{\"name\":{},\"description\":{},\"inputSchema\":{{\"type\":\"object\",\"properties\":{{{}}},\
         \"required\":[{}],\"additionalProperties\":false}}}}",
        quote(name),
        quote(about),
        properties.join(","),
        required.join(","),
    )
}

/// The schema of a parameter.
fn property(kind: &str, about: &str) -> String {
    let schema = match kind.split_once(' ') {
        Some((_, options)) => {
            let options: Vec<_> = options.split('|').map(quote).collect();
            format!("\"type\":\"string\",\"enum\":[{}]", options.join(","))
        }
        None => match kind {
            "string" => "\"type\":\"string\",\"minLength\":1".to_owned(),
            "integer" => "\"type\":\"integer\",\"minimum\":0".to_owned(),
            "strings" => {
                "\"type\":\"array\",\"items\":{\"type\":\"string\"},\"maxItems\":100".to_owned()
            }
            "objects" => "\"type\":\"array\",\"items\":{\"type\":\"object\",\"properties\":{\"old\":\
                          {\"type\":\"string\"},\"new\":{\"type\":\"string\"}},\"required\":[\"old\",\"new\"]}"
                .to_owned(),
            kind => format!("\"type\":{}", quote(kind)),
        },
    };
    format!("{{{schema},\"description\":{}}}", quote(about))
}

/// The issues that the server `issues` has: number and title.
const ISSUES: [(u64, &str); 3] = [
    (17, "Dark mode for the settings page"),
    (42, "Upload timeout on slow networks"),
    (58, "Names with accents are cut off"),
];

/// What a tool of the catalogue answers.
pub(super) fn call(tool: &str, arguments: &Value) -> Result<String, String> {
    match tool {
        "search_issues" => {
            let words = arguments["query"].as_str().unwrap_or_default().to_lowercase();
            let found = ISSUES.iter().filter(|(_, title)| title.to_lowercase().contains(&words));
            let found: Vec<_> = found.map(|(number, title)| format!("#{number} {title}")).collect();
            Ok(if found.is_empty() { "no issue fits".to_owned() } else { found.join("\n") })
        }
        "update_issue" => {
            let (number, assignee) = (&arguments["number"], arguments["assignee"].as_str());
            let is_there = ISSUES.iter().any(|(known, _)| number.as_u64() == Some(*known));
            match assignee.filter(|_| is_there) {
                Some(assignee) => Ok(format!("#{number} is assigned to {assignee}")),
                None => Err(format!("there is no issue #{number}, or nobody to assign it to")),
            }
        }
        _ => Err(format!("the demo only pretends to have {tool}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn eight_servers_with_over_a_hundred_tools_of_real_size() {
        let servers = servers();
        assert_eq!(servers.len(), 8);
        let tools: Vec<&String> = servers.iter().flat_map(|server| &server.tools).collect();
        assert!(tools.len() > 100, "{}", tools.len());
        for tool in &tools {
            let value: Value = serde_json::from_str(tool).expect("one JSON value");
            let schema = &value["inputSchema"];
            for name in schema["required"].as_array().expect("a list") {
                let name = name.as_str().expect("a name");
                assert!(schema["properties"][name].is_object(), "{tool}");
            }
        }
        // The definitions of eight real servers have about 350 tokens each.
        let tokens: usize = tools.iter().map(|tool| crate::tokens::of_definition(tool)).sum();
        assert!((200..500).contains(&(tokens / tools.len())), "{tokens} tokens in {} tools", tools.len());
    }

    #[test]
    fn the_task_can_be_solved() {
        for (tool, arguments, expected) in [
            ("search_issues", json!({"query": "Timeout"}), Ok("#42 Upload timeout on slow networks")),
            ("search_issues", json!({"query": "nothing"}), Ok("no issue fits")),
            ("update_issue", json!({"number": 42, "assignee": "ada"}), Ok("#42 is assigned to ada")),
            (
                "update_issue",
                json!({"number": 7, "assignee": "ada"}),
                Err("there is no issue #7, or nobody to assign it to"),
            ),
            ("read_page", json!({}), Err("the demo only pretends to have read_page")),
        ] {
            let answer = call(tool, &arguments);
            assert_eq!(answer.as_deref().map_err(String::as_str), expected, "{tool}");
        }
    }
}

//! What both faces' search tools share: their schema and arguments, and the text of a tool, resource or
//! prompt that a search looks at. The gateway's index is built from [`document`].

use super::arguments::{Arguments, Blocks, invalid};
use crate::catalog::{Item, Kind};
use crate::json::{Node, Scanner, quote};
use crate::search::{ParamDoc, ToolDoc};

/// The arguments of a search.
#[derive(Debug, PartialEq, Eq)]
pub struct Query {
    /// The words to search for.
    pub text: String,
    /// The most results to answer with.
    pub limit: usize,
}

/// How many results a search gives by default ([`FOUND`]), and how many it may ask for ([`MOST_FOUND`]).
const FOUND: usize = 5;
const MOST_FOUND: usize = 20;

/// The schema of a query; `limit` is the description of its `limit` property.
pub fn schema(limit: &str) -> String {
    format!(
        "{{\"type\":\"object\",\"properties\":{{\"query\":{{\"type\":\"string\",\"minLength\":1,\"description\":{}}},\
         \"limit\":{{\"type\":\"integer\",\"minimum\":1,\"maximum\":{MOST_FOUND},\"default\":{FOUND},\"description\":{}}}}},\
         \"required\":[\"query\"],\"additionalProperties\":false}}",
        quote("Platform and capability, for example \"github create issue\""),
        quote(limit),
    )
}

impl Query {
    /// Reads the arguments of a search.
    pub(super) fn read(arguments: Option<Node<'_>>) -> Result<Self, Blocks> {
        let arguments = Arguments::read(arguments, ["query", "limit"])?;
        let text = arguments.text(0)?.into_owned();
        let limit = match arguments.value(1) {
            None => FOUND,
            Some(limit) => limit
                .raw()
                .parse()
                .ok()
                .filter(|limit| (1..=MOST_FOUND).contains(limit))
                .ok_or_else(|| invalid(&format!("limit must be a whole number from 1 to {MOST_FOUND}")))?,
        };
        Ok(Self { text, limit })
    }
}

/// How many levels of nested parameters are read.
const DEPTH: usize = 3;
/// The most parameters that are read from one tool.
const MOST: usize = 64;

/// The searchable text of an item.
pub fn document(kind: Kind, item: &Item) -> ToolDoc {
    let mut scanner = Scanner::default();
    let Ok(doc) = scanner.scan_str(item.raw()) else {
        return ToolDoc { name: item.key.to_string(), ..ToolDoc::default() };
    };
    let node = doc.root();
    let annotations = node.get("annotations");
    let hint = |key| match annotations.and_then(|hints| hints.get(key)).map(Node::raw) {
        Some("true") => Some(true),
        Some("false") => Some(false),
        _ => None,
    };
    let mut description = text(node, "description");
    let called = match kind {
        Kind::Tool => [text(node, "title"), annotations.map(|node| text(node, "title")).unwrap_or_default()],
        // A resource is addressed by its URI; its name is what people call it.
        _ => [text(node, "name"), text(node, "title")],
    };
    for name in called.iter().rev().filter(|name| !name.is_empty()) {
        description = if description.is_empty() { name.clone() } else { format!("{name}: {description}") };
    }
    let mut params = Vec::new();
    if let Some(schema) = node.get("inputSchema").filter(|_| kind == Kind::Tool) {
        read_params(schema.raw(), DEPTH, &mut params);
    }
    ToolDoc {
        name: item.key.to_string(),
        description,
        params,
        read_only: hint("readOnlyHint").or_else(|| (kind != Kind::Tool).then_some(true)),
        destructive: hint("destructiveHint"),
    }
}

/// Reads a schema's properties, and the properties nested in them.
fn read_params(schema: &str, depth: usize, params: &mut Vec<ParamDoc>) {
    let mut scanner = Scanner::default();
    let Ok(doc) = scanner.scan_str(schema) else { return };
    let schema = doc.root();
    let items = schema.get("items").filter(|items| items.is_object());
    for (name, property) in schema.get("properties").into_iter().flat_map(Node::members) {
        if params.len() >= MOST {
            return;
        }
        let values = property.get("enum").map_or("[]", Node::raw);
        let values: Vec<serde_json::Value> = serde_json::from_str(values).unwrap_or_default();
        params.push(ParamDoc {
            name: name.into_owned(),
            description: text(property, "description"),
            enum_values: values.iter().filter_map(|value| value.as_str().map(str::to_owned)).collect(),
        });
        if depth > 1 && property.is_object() {
            read_params(property.raw(), depth - 1, params);
        }
    }
    if let Some(items) = items.filter(|_| depth > 1) {
        read_params(items.raw(), depth - 1, params);
    }
}

fn text(node: Node<'_>, key: &str) -> String {
    node.get(key).and_then(Node::as_str).unwrap_or_default().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Items;

    fn read(kind: Kind, raw: &str) -> ToolDoc {
        document(kind, &Items::defined(kind, raw)[0])
    }

    #[test]
    fn queries_are_checked() {
        for (arguments, expected) in [
            (r#"{"query":"a b"}"#, Ok(("a b", 5))),
            (r#"{"query":"a","limit":20}"#, Ok(("a", 20))),
            (r#"{"query":" "}"#, Err("query cannot be empty")),
            (r#"{"query":7}"#, Err("query must be a string")),
            (r#"{}"#, Err("query is required and must be a string")),
            (r#"[]"#, Err("arguments must be an object")),
            (r#"{"query":"a","query":"b"}"#, Err("query appears twice")),
            (r#"{"query":"a","x":1}"#, Err("Unrecognized key: 'x'")),
            (r#"{"query":"a","limit":1,"y":1,"x":1}"#, Err("Unrecognized keys: 'y', 'x'")),
            (r#"{"query":"a","limit":0}"#, Err("limit must be a whole number from 1 to 20")),
            (r#"{"query":"a","limit":21}"#, Err("limit must be a whole number from 1 to 20")),
            (r#"{"query":"a","limit":"5"}"#, Err("limit must be a whole number from 1 to 20")),
        ] {
            let mut scanner = Scanner::default();
            let read = Query::read(Some(scanner.scan_str(arguments).unwrap().root()));
            let read = read.map_err(|blocks| blocks.join(" "));
            let expected = expected
                .map(|(text, limit)| Query { text: text.to_owned(), limit })
                .map_err(|wrong| format!("Invalid parameters: {wrong}"));
            assert_eq!(read, expected, "{arguments}");
        }
        assert_eq!(Query::read(None), Err(invalid("query is required")));
        serde_json::from_str::<serde_json::Value>(&schema("most")).unwrap();
    }

    #[test]
    fn definitions_give_their_texts() {
        let tool = read(
            Kind::Tool,
            r#"{"name":"k","title":"Post","description":"Posts it","annotations":{"destructiveHint":true,"readOnlyHint":false},
                "inputSchema":{"properties":{
                    "to":{"type":"string","description":"Whom","enum":["all",1,"one"]},
                    "more":{"type":"array","items":{"properties":{"inner":{"description":"Deep"}}}}}}}"#,
        );
        assert_eq!((&*tool.name, &*tool.description), ("k", "Post: Posts it"));
        assert_eq!((tool.read_only, tool.destructive), (Some(false), Some(true)));
        let params: Vec<_> = tool.params.iter().map(|param| (&*param.name, &*param.description)).collect();
        assert_eq!(params, [("to", "Whom"), ("more", ""), ("inner", "Deep")]);
        assert_eq!(tool.params[0].enum_values, ["all", "one"]);
    }

    #[test]
    fn whatever_a_server_sends_is_read() {
        for raw in [
            r#"{"name":"k"}"#,
            r#"{"name":"k","description":7,"annotations":[],"inputSchema":"x"}"#,
            r#"{"name":"k","inputSchema":{"properties":[1],"items":true}}"#,
            r#"{"name":"k","inputSchema":{"properties":{"a":1,"b":{"enum":7}}}}"#,
        ] {
            let tool = read(Kind::Tool, raw);
            assert_eq!((&*tool.name, &*tool.description), ("k", ""), "{raw}");
        }
        let resource = read(Kind::Resource, r#"{"uri":"k","name":"All notes","description":"Every one"}"#);
        assert_eq!((&*resource.description, resource.read_only), ("All notes: Every one", Some(true)));
    }
}

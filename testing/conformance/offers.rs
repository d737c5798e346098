//! What the conformance server offers, as JSON: lists, and the answers that are always the same.

use serde_json::{Value, json};

/// A red dot.
const IMAGE: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8/5+hHgAHggJ/PchI7wAAAABJRU5ErkJggg==";
/// No samples.
const AUDIO: &str = "UklGRiQAAABXQVZFZm10IBAAAAABAAEARKwAAIhYAQACABAAZGF0YQAAAAA=";

/// The tools without parameters: name and description.
const PLAIN_TOOLS: [(&str, &str); 23] = [
    ("test_simple_text", "Answers with text"),
    ("test_image_content", "Answers with an image"),
    ("test_audio_content", "Answers with a sound"),
    ("test_embedded_resource", "Answers with a resource"),
    ("test_multiple_content_types", "Answers with text, an image and a resource"),
    ("test_tool_with_logging", "Logs three messages"),
    ("test_error_handling", "Fails"),
    ("test_tool_with_progress", "Reports progress three times"),
    ("test_elicitation_sep1034_defaults", "Asks with default values"),
    ("test_elicitation_sep1330_enums", "Asks with every kind of choice"),
    ("test_reconnection", "Takes its time"),
    ("test_trigger_tool_change", "Announces a change of the tools"),
    ("test_trigger_prompt_change", "Announces a change of the prompts"),
    ("test_missing_capability", "Needs a client that samples"),
    ("test_logging_tool", "Logs for who asked for it"),
    ("test_streaming_elicitation", "Asks, whatever it is told"),
    ("test_input_required_result_elicitation", "Asks for a name"),
    ("test_input_required_result_sampling", "Asks for a capital"),
    ("test_input_required_result_list_roots", "Asks for the roots"),
    ("test_input_required_result_request_state", "Asks, and keeps a state"),
    ("test_input_required_result_multiple_inputs", "Asks three things at once"),
    ("test_input_required_result_multi_round", "Asks twice"),
    ("test_input_required_result_tampered_state", "Asks, and keeps a state that must come back as it was"),
];

/// `tools/list`, with one more or without.
pub(crate) fn tools(more: bool) -> Value {
    let mut tools: Vec<Value> = PLAIN_TOOLS
        .iter()
        .map(|(name, description)| tool(name, description, &json!({"type": "object", "properties": {}})))
        .collect();
    tools.extend([
        tool(
            "test_input_required_result_capabilities",
            "Asks for what the client can answer",
            &json!({"type": "object", "properties": {}}),
        ),
        tool(
            "test_sampling",
            "Has the client sample",
            &json!({"type": "object", "properties": {"prompt": {"type": "string"}}, "required": ["prompt"]}),
        ),
        tool(
            "test_elicitation",
            "Asks for a name and an address",
            &json!({"type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"]}),
        ),
        custom_header_tool(),
        tool("json_schema_2020_12_tool", "Has a schema of the newest kind", &newest_schema()),
    ]);
    if more {
        tools.push(tool("test_more", "Comes and goes", &json!({"type": "object"})));
    }
    json!({"tools": tools, "ttlMs": 60_000, "cacheScope": "public"})
}

/// The tool that has a parameter in a header.
pub(crate) fn custom_header_tool() -> Value {
    tool(
        "test_custom_header",
        "Answers with what a header repeats",
        &json!({
            "type": "object",
            "properties": {"value": {"type": "string", "x-mcp-header": "Value"}},
            "required": ["value"],
        }),
    )
}

fn tool(name: &str, description: &str, schema: &Value) -> Value {
    json!({"name": name, "description": description, "inputSchema": schema})
}

fn newest_schema() -> Value {
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {"address": {
            "$anchor": "address",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }},
        "properties": {"name": {"type": "string"}, "address": {"$ref": "#/$defs/address"}},
        "allOf": [{"anyOf": [{"required": ["name"]}, {"required": ["address"]}]}],
        "if": {"required": ["address"]},
        "then": {"properties": {"address": {"required": ["street"]}}},
        "else": {"required": ["name"]},
        "additionalProperties": false,
    })
}

/// The result of a tool that always gives the same, if it is one.
pub(crate) fn constant(tool: &str) -> Option<Value> {
    let content = match tool {
        "test_simple_text" => {
            json!([{"type": "text", "text": "This is a simple text response for testing."}])
        }
        "test_image_content" => json!([image()]),
        "test_audio_content" => json!([{"type": "audio", "data": AUDIO, "mimeType": "audio/wav"}]),
        "test_embedded_resource" => json!([{"type": "resource", "resource": {
            "uri": "test://embedded-resource", "mimeType": "text/plain",
            "text": "This is an embedded resource content.",
        }}]),
        "test_multiple_content_types" => json!([
            {"type": "text", "text": "Multiple content types test:"},
            image(),
            {"type": "resource", "resource": {
                "uri": "test://mixed-content-resource", "mimeType": "application/json",
                "text": r#"{"test":"data","value":123}"#,
            }},
        ]),
        "test_error_handling" => {
            let text = "This tool intentionally returns an error for testing";
            return Some(json!({"content": [{"type": "text", "text": text}], "isError": true}));
        }
        "json_schema_2020_12_tool" => json!([{"type": "text", "text": "The arguments fit"}]),
        _ => return None,
    };
    Some(json!({"content": content}))
}

fn image() -> Value {
    json!({"type": "image", "data": IMAGE, "mimeType": "image/png"})
}

/// `resources/list`.
pub(crate) fn resources() -> Value {
    json!({
        "resources": [
            {"uri": "test://static-text", "name": "Static text", "mimeType": "text/plain"},
            {"uri": "test://static-binary", "name": "Static picture", "mimeType": "image/png"},
            {"uri": "test://watched-resource", "name": "Watched text", "mimeType": "text/plain"},
        ],
        "ttlMs": 60_000, "cacheScope": "public",
    })
}

/// `resources/templates/list`.
pub(crate) fn templates() -> Value {
    json!({
        "resourceTemplates": [{
            "uriTemplate": "test://template/{id}/data", "name": "Data by id", "mimeType": "application/json",
        }],
        "ttlMs": 60_000, "cacheScope": "public",
    })
}

/// `resources/read`, if there is such a resource.
pub(crate) fn resource(uri: &str) -> Option<Value> {
    let contents = match uri {
        "test://static-text" | "test://watched-resource" => json!({
            "uri": uri, "mimeType": "text/plain", "text": "This is the content of the static text resource.",
        }),
        "test://static-binary" => json!({"uri": uri, "mimeType": "image/png", "blob": IMAGE}),
        _ => {
            let id = uri.strip_prefix("test://template/")?.strip_suffix("/data")?;
            let text = json!({"id": id, "templateTest": true, "data": format!("Data for ID: {id}")});
            json!({"uri": uri, "mimeType": "application/json", "text": text.to_string()})
        }
    };
    Some(json!({"contents": [contents], "ttlMs": 60_000, "cacheScope": "public"}))
}

/// `prompts/list`, with one more or without.
pub(crate) fn prompts(more: bool) -> Value {
    let mut list = json!({
        "prompts": [
            {"name": "test_simple_prompt", "description": "Has no arguments"},
            {"name": "test_prompt_with_arguments", "description": "Has two arguments", "arguments": [
                {"name": "arg1", "description": "The first", "required": true},
                {"name": "arg2", "description": "The second", "required": true},
            ]},
            {"name": "test_prompt_with_embedded_resource", "description": "Holds a resource", "arguments": [
                {"name": "resourceUri", "description": "Which one", "required": true},
            ]},
            {"name": "test_prompt_with_image", "description": "Holds an image"},
            {"name": "test_input_required_result_prompt", "description": "Asks for what it is about"},
        ],
        "ttlMs": 60_000, "cacheScope": "public",
    });
    if more && let Some(prompts) = list["prompts"].as_array_mut() {
        prompts.push(json!({"name": "test_more", "description": "Comes and goes"}));
    }
    list
}

/// `prompts/get`, for those that ask nothing.
pub(crate) fn prompt(name: &str, arguments: &Value) -> Option<Value> {
    let argument = |name: &str| arguments[name].as_str().unwrap_or_default().to_owned();
    let contents = match name {
        "test_simple_prompt" => vec![text("This is a simple prompt for testing.")],
        "test_prompt_with_arguments" => {
            vec![text(&format!(
                "Prompt with arguments: arg1='{}', arg2='{}'",
                argument("arg1"),
                argument("arg2")
            ))]
        }
        "test_prompt_with_embedded_resource" => vec![
            json!({"type": "resource", "resource": {
                "uri": argument("resourceUri"), "mimeType": "text/plain",
                "text": "Embedded resource content for testing.",
            }}),
            text("Please process the embedded resource above."),
        ],
        "test_prompt_with_image" => vec![image(), text("Please analyze the image above.")],
        _ => return None,
    };
    let messages: Vec<Value> =
        contents.into_iter().map(|content| json!({"role": "user", "content": content})).collect();
    Some(json!({"messages": messages}))
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

/// The schema that a question of one of the legacy tools carries.
pub(crate) fn form(tool: &str) -> Value {
    match tool {
        "test_elicitation" => json!({
            "type": "object",
            "properties": {
                "username": {"type": "string", "description": "Your name"},
                "email": {"type": "string", "description": "Your address"},
            },
            "required": ["username", "email"],
        }),
        "test_elicitation_sep1034_defaults" => json!({
            "type": "object",
            "properties": {
                "name": {"type": "string", "default": "John Doe"},
                "age": {"type": "integer", "default": 30},
                "score": {"type": "number", "default": 95.5},
                "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
                "verified": {"type": "boolean", "default": true},
            },
            "required": [],
        }),
        _ => {
            let titled = json!([
                {"const": "value1", "title": "First"},
                {"const": "value2", "title": "Second"},
                {"const": "value3", "title": "Third"},
            ]);
            let plain = json!(["option1", "option2", "option3"]);
            json!({
                "type": "object",
                "properties": {
                    "untitledSingle": {"type": "string", "enum": plain},
                    "titledSingle": {"type": "string", "oneOf": titled},
                    "legacyEnum": {
                        "type": "string", "enum": ["opt1", "opt2", "opt3"],
                        "enumNames": ["Option one", "Option two", "Option three"],
                    },
                    "untitledMulti": {"type": "array", "items": {"type": "string", "enum": plain}},
                    "titledMulti": {"type": "array", "items": {"anyOf": titled}},
                },
                "required": [],
            })
        }
    }
}

//! The JSON Schemas of both files, for editors.

/// The schema of `workbench-config.json`.
pub const WORKBENCH: &str = include_str!("../../schema/workbench-config.schema.json");

/// The schema of `tools.toml`.
pub const TOOLMAN: &str = include_str!("../../schema/tools.schema.json");

#[cfg(test)]
mod tests {
    use super::super::locate::FaceKind;
    use super::super::report::{Report, Spelling};
    use super::super::source::Source;
    use super::super::{entry, settings, toolman, workbench};
    use super::super::{load, load_toolman};
    use super::*;
    use crate::edit::{self, Format, parse};
    use serde_json::Value;
    use std::collections::BTreeSet;
    use std::path::Path;

    /// The keys of an object of a schema, by the path to it.
    fn keys(schema: &str, pointer: &str) -> BTreeSet<String> {
        let schema: Value = serde_json::from_str(schema).expect("the schema is JSON");
        let properties = schema.pointer(&format!("{pointer}/properties")).expect(pointer).as_object();
        properties.expect(pointer).keys().cloned().collect()
    }

    fn known(keys: &[&str], spelling: Spelling) -> BTreeSet<String> {
        let report = Report::new(Source::new(Path::new("x"), ""), spelling);
        keys.iter().map(|key| report.spelled(key).into_owned()).collect()
    }

    /// The loader and the schema know the same keys.
    #[test]
    fn keys_are_those_of_the_loader() {
        use Spelling::{Camel, Snake};
        let toolbox = "/definitions/toolbox";
        let token = "/properties/auth/properties/tokens/items";
        for (schema, pointer, expected, spelling) in [
            (WORKBENCH, "", workbench::KEYS.to_vec(), Camel),
            (WORKBENCH, toolbox, workbench::TOOLBOX_KEYS.to_vec(), Camel),
            (WORKBENCH, "/definitions/server", entry::understood(|_| true).collect(), Camel),
            (WORKBENCH, "/definitions/server/properties/oauth", entry::LOGIN_KEYS.to_vec(), Camel),
            (WORKBENCH, "/properties/auth", settings::AUTH_KEYS.to_vec(), Camel),
            (WORKBENCH, token, [&settings::TOKEN_KEYS[..], &["toolboxes"]].concat(), Camel),
            (TOOLMAN, "", toolman::KEYS.to_vec(), Snake),
            (TOOLMAN, "/properties/servers/items", toolman::SERVER_KEYS.to_vec(), Snake),
            (TOOLMAN, "/properties/servers/items/properties/oauth", entry::LOGIN_KEYS.to_vec(), Snake),
            (TOOLMAN, "/properties/auth", settings::AUTH_KEYS.to_vec(), Snake),
            (TOOLMAN, token, [&settings::TOKEN_KEYS[..], &["namespaces"]].concat(), Snake),
        ] {
            assert_eq!(keys(schema, pointer), known(&expected, spelling), "{pointer}");
        }
    }

    /// The parts of a value that a schema does not allow. Only the keywords that our schemas use are
    /// understood.
    fn faults(root: &Value, schema: &Value, value: &Value, path: &str) -> Vec<String> {
        let mut found = Vec::new();
        let mut fault = |word: &str| found.push(format!("{path}: {word}"));
        let text = |value: &Value| value.as_str().expect("a string").to_owned();
        let kind = |value: &Value| match value {
            Value::Null => "null",
            Value::Bool(_) => "boolean",
            Value::Number(number) if number.is_i64() || number.is_u64() => "integer",
            Value::Number(_) => "number",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        };
        let mut nested = Vec::new();
        for (word, rule) in schema.as_object().expect("a schema is an object") {
            match word.as_str() {
                "$schema"
                | "$id"
                | "title"
                | "description"
                | "default"
                | "definitions"
                | "allowTrailingCommas" => {}
                "$ref" => {
                    let target = root.pointer(text(rule).trim_start_matches('#')).expect("it is there");
                    nested.extend(faults(root, target, value, path));
                }
                "type" => {
                    let allowed: Vec<String> = match rule {
                        Value::Array(kinds) => kinds.iter().map(text).collect(),
                        one => vec![text(one)],
                    };
                    let fits = |allowed: &String| {
                        allowed == kind(value) || allowed == "number" && kind(value) == "integer"
                    };
                    if !allowed.iter().any(fits) {
                        fault(word);
                    }
                }
                "enum" => {
                    if !rule.as_array().expect("a list").contains(value) {
                        fault(word);
                    }
                }
                "minimum" | "exclusiveMinimum" => {
                    let least = rule.as_f64().expect("a number");
                    let fits = |number: f64| number > least || word == "minimum" && number == least;
                    if !value.as_f64().is_none_or(fits) {
                        fault(word);
                    }
                }
                "minLength" => {
                    if value.as_str().is_some_and(str::is_empty) {
                        fault(word);
                    }
                }
                // Patterns are for editors; the loader is stricter.
                "pattern" | "propertyNames" => {}
                "required" => {
                    let missing = |key: &&Value| value.is_object() && value.get(text(key)).is_none();
                    rule.as_array().expect("a list").iter().filter(missing).for_each(|key| fault(&text(key)));
                }
                // The only pattern in our schemas is the one for comments.
                "patternProperties" => {
                    for (key, value) in
                        value.as_object().into_iter().flatten().filter(|(key, _)| key.starts_with('_'))
                    {
                        match &rule["^_"] {
                            Value::Bool(true) => {}
                            rule => nested.extend(faults(root, rule, value, &format!("{path}.{key}"))),
                        }
                    }
                }
                "properties" | "additionalProperties" => {
                    let known = schema.get("properties").and_then(Value::as_object);
                    let comments = schema.get("patternProperties").is_some();
                    let members = value.as_object().into_iter().flatten();
                    for (key, value) in members.filter(|(key, _)| !comments || !key.starts_with('_')) {
                        let below = format!("{path}.{key}");
                        let own = known.and_then(|known| known.get(key));
                        match (word.as_str(), own, rule) {
                            ("properties", Some(own), _) => nested.extend(faults(root, own, value, &below)),
                            ("properties", None, _) | (_, Some(_), _) => {}
                            (_, None, Value::Bool(false)) => nested.push(format!("{below}: unknown")),
                            (_, None, rule) => nested.extend(faults(root, rule, value, &below)),
                        }
                    }
                }
                "items" => {
                    for item in value.as_array().into_iter().flatten() {
                        nested.extend(faults(root, rule, item, &format!("{path}[]")));
                    }
                }
                "oneOf" | "anyOf" => {
                    let fitting = rule.as_array().expect("a list").iter();
                    let fitting = fitting.filter(|rule| faults(root, rule, value, path).is_empty()).count();
                    if fitting == 0 || word == "oneOf" && fitting > 1 {
                        fault(word);
                    }
                }
                other => panic!("the schema has the word {other}, which this test does not know"),
            }
        }
        found.extend(nested);
        found
    }

    fn check(face: FaceKind, text: &str, expected: &[&str]) {
        let (schema, format) = match face {
            FaceKind::Workbench => (WORKBENCH, Format::Json),
            FaceKind::Toolman => (TOOLMAN, Format::Toml),
        };
        let schema: Value = serde_json::from_str(schema).expect("the schema is JSON");
        let value = as_json(&parse(format, text).expect(text).value);
        assert_eq!(faults(&schema, &schema, &value, ""), expected, "{text}");
        let loaded = match face {
            FaceKind::Workbench => {
                load(Path::new("x"), text.as_bytes(), &crate::config::Inputs::of(&|_| None)).is_ok()
            }
            FaceKind::Toolman => {
                load_toolman(Path::new("x"), text.as_bytes(), &crate::config::Inputs::of(&|_| None)).is_ok()
            }
        };
        assert_eq!(loaded, expected.is_empty(), "the loader agrees: {text}");
    }

    fn as_json(value: &edit::Value) -> Value {
        match value {
            edit::Value::Null => Value::Null,
            edit::Value::Boolean(value) => Value::from(*value),
            edit::Value::Number(number) | edit::Value::Other(number) => {
                serde_json::from_str(number).expect("a number")
            }
            edit::Value::String(text) => Value::from(text.as_str()),
            edit::Value::List(items) => items.iter().map(as_json).collect(),
            edit::Value::Object(entries) => {
                Value::Object(entries.iter().map(|(key, value)| (key.clone(), as_json(value))).collect())
            }
        }
    }

    #[test]
    fn schema_and_loader_agree() {
        check(FaceKind::Workbench, FaceKind::Workbench.minimal_file(), &[]);
        check(FaceKind::Toolman, FaceKind::Toolman.minimal_file(), &[]);
        check(FaceKind::Workbench, include_str!("../../workbench-config.test.json"), &[]);
        let server =
            |entry: &str| format!("{{\"toolboxes\": {{\"d\": {{\"mcpServers\": {{\"s\": {entry}}}}}}}}}");
        check(
            FaceKind::Workbench,
            &server(
                r#"{"command": "x", "args": ["y"], "env": {"A": 1, "B": null, "C": true}, "cwd": ".", "type": "stdio",
                "toolFilters": ["*"], "connectTimeout": 0.5, "startTimeout": 9, "callTimeout": 1, "maxCallTime": 2, "inheritEnv": ["*"],
                "isolation": "session", "start": "open", "idleTimeout": 0.5, "disabled": false, "unknown": 1}"#,
            ),
            &[],
        );
        check(
            FaceKind::Workbench,
            &server(r#"{"serverUrl": "http://h/", "transport": "streamableHttp", "headers": {"A": "b"}}"#),
            &[],
        );
        check(
            FaceKind::Workbench,
            &server(
                r#"{"url": "http://h/", "oauth": {"clientId": "a", "clientSecret": "b", "scopes": ["c"], "callbackPort": 1,
                "clientMetadataUrl": "https://h/c", "enabled": true}}"#,
            ),
            &[],
        );
        check(FaceKind::Workbench, &server(r#"{"url": "http://h/", "oauth": false}"#), &[]);
        let settings = r#""toolMode": "auto", "metaTools": "classic", "instructionsLimit": 0, "names": "exact",
            "maxNameLength": 10, "maxMessageBytes": 1, "questionTimeout": 1, "sessionIdleTimeout": 1, "maxBodyBytes": 1,
            "stateKey": ["0123456789abcdef0123456789abcdef"], "store": "redis://h", "storePrefix": "a", "search": true, "start": "call", "idleTimeout": 0, "daemon": true, "linger": 0, "daemonLinger": 0.5, "$schema": "x", "envFile": ["a.env?"], "onMissingVariable": "skip", "journal": true, "journalArguments": "keys", "journalLimit": 1,
            "auth": {"tokens": [{"name": "a", "token": "b", "toolboxes": []}]}"#;
        check(FaceKind::Workbench, &format!("{{\"toolboxes\": {{}}, {settings}}}"), &[]);
        check(FaceKind::Workbench, r#"{"toolboxes": {}, "envFile": "a.env?"}"#, &[]);
        check(FaceKind::Workbench, r#"{"toolboxes": {}, "envFile": {}}"#, &[".envFile: oneOf"]);
        check(
            FaceKind::Workbench,
            r#"{"toolboxes": {}, "onMissingVariable": "ignore"}"#,
            &[".onMissingVariable: enum"],
        );
        check(FaceKind::Workbench, r#"{"toolboxes": {}, "journal": "yes"}"#, &[".journal: type"]);
        check(
            FaceKind::Workbench,
            r#"{"toolboxes": {}, "journalArguments": "all", "journalLimit": 0}"#,
            &[".journalArguments: enum", ".journalLimit: minimum"],
        );
        for (limit, expected) in [
            ("0", &[][..]),
            ("1000", &[]),
            ("\"auto\"", &[]),
            ("999", &[".openLimit: anyOf"]),
            ("\"1000\"", &[".openLimit: anyOf"]),
            ("1000.5", &[".openLimit: anyOf"]),
            ("true", &[".openLimit: anyOf"]),
        ] {
            check(FaceKind::Workbench, &format!("{{\"toolboxes\": {{}}, \"openLimit\": {limit}}}"), expected);
        }
        for over in ["0", "4000", "\"auto\""] {
            check(FaceKind::Workbench, &format!("{{\"toolboxes\": {{}}, \"offloadOver\": {over}}}"), &[]);
            check(
                FaceKind::Workbench,
                &server(&format!("{{\"command\": \"x\", \"offloadOver\": {over}}}")),
                &[],
            );
            let entry = format!("offload_over = {over}\n[[servers]]\nnamespace = \"\"\ncommand = \"x\"\n");
            check(FaceKind::Toolman, &format!("{entry}offload_over = {over}\n"), &[]);
        }
        for over in ["3999", "\"4000\"", "4000.5", "-1", "true", "[]", "\"on\""] {
            let top = format!("{{\"toolboxes\": {{}}, \"offloadOver\": {over}}}");
            check(FaceKind::Workbench, &top, &[".offloadOver: anyOf"]);
            check(
                FaceKind::Workbench,
                &server(&format!("{{\"command\": \"x\", \"offloadOver\": {over}}}")),
                &[".toolboxes.d.mcpServers.s.offloadOver: anyOf"],
            );
            check(FaceKind::Toolman, &format!("offload_over = {over}\n"), &[".offload_over: anyOf"]);
        }
        check(
            FaceKind::Workbench,
            r#"{"_": 1, "toolboxes": {"_": "", "_d": {"_": 1, "mcpServers": {"_": 1, "_s": {"_": 1, "command": "x"}}}},
                "auth": {"_": 1, "tokens": [{"_": 1, "name": "a", "token": "b"}]}}"#,
            &[],
        );
        check(FaceKind::Workbench, r#"{"toolboxes": {"_d": {}}}"#, &[".toolboxes._d: anyOf"]);
        check(FaceKind::Toolman, "_ = 1\n[[servers]]\nnamespace = \"\"\ncommand = \"x\"\n_ = 1\n", &[]);
        check(FaceKind::Workbench, "{}", &[": toolboxes"]);
        check(FaceKind::Workbench, r#"{"toolboxes": {}, "toolmode": "proxy"}"#, &[".toolmode: unknown"]);
        check(FaceKind::Workbench, r#"{"toolboxes": {}, "maxNameLength": 9}"#, &[".maxNameLength: minimum"]);
        check(FaceKind::Workbench, r#"{"toolboxes": {"d": {}}}"#, &[".toolboxes.d: mcpServers"]);
        check(FaceKind::Workbench, &server("{}"), &[".toolboxes.d.mcpServers.s: oneOf"]);
        check(
            FaceKind::Workbench,
            &server(r#"{"command": "x", "url": "http://h/"}"#),
            &[".toolboxes.d.mcpServers.s: oneOf"],
        );
        check(
            FaceKind::Workbench,
            &server(r#"{"command": "x", "callTimeout": 0}"#),
            &[".toolboxes.d.mcpServers.s.callTimeout: exclusiveMinimum"],
        );
        check(
            FaceKind::Toolman,
            "active_toolsets = []\nenv_file = \"a.env?\"\non_missing_variable = \"skip\"\njournal = false\njournal_arguments = \"full\"\njournal_limit = 3\nresource_separator = \"+\"\nremember = true\nstartup_wait = 0\nstart = \"call\"\nidle_timeout = 0\ndaemon = true\nlinger = 1\ndaemon_linger = 2\n[[servers]]\n\
             namespace = \"\"\ncommand = \"x\"\nrestart = true\nshell = false\nconnect_timeout = 1\nstart_timeout = 2\nstart = \"open\"\nidle_timeout = 1\nisolation = \"directory\"\n",
            &[],
        );
        check(FaceKind::Toolman, "[[servers]]\ncommand = \"x\"\n", &[".servers[]: namespace"]);
        let remote = "[[servers]]\nnamespace = \"\"\nurl = \"http://h/\"\n";
        check(FaceKind::Toolman, &format!("{remote}oauth = {{ client_id = \"a\", scope = \"b c\" }}\n"), &[]);
        check(
            FaceKind::Toolman,
            &format!("{remote}oauth = {{ clientId = \"a\" }}\n"),
            &[".servers[].oauth.clientId: unknown"],
        );
        check(FaceKind::Toolman, "max_name_length = 9\n", &[".max_name_length: minimum"]);
        check(FaceKind::Toolman, "maxNameLength = 10\n", &[".maxNameLength: unknown"]);
    }
}

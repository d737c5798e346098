use super::load;
use crate::config::*;
use std::path::Path;

const FILE: &str = "/etc/mcp/workbench-config.json";

fn environment(name: &str) -> Option<String> {
    match name {
        "TOKEN" => Some("s3cr3t-token".into()),
        "MODE" => Some("hunter22".into()),
        "EMPTY" => Some(String::new()),
        "HOST" => Some("example.org".into()),
        _ => None,
    }
}

fn valid(text: &str) -> (Workbench, Vec<Problem>) {
    match load(Path::new(FILE), text.as_bytes(), &Inputs::of(&environment)) {
        Ok(loaded) => loaded,
        Err(problems) => panic!("{text}\n{problems:#?}"),
    }
}

/// Problems as `line:column path: message (hint)`, with warnings marked.
fn problems(text: &[u8]) -> Vec<String> {
    let problems = match load(Path::new(FILE), text, &Inputs::of(&environment)) {
        Ok((_, warnings)) => warnings,
        Err(problems) => problems,
    };
    let line = |problem: &Problem| {
        let Problem { line, column, path, message, hint, .. } = problem;
        let mark = if problem.is_error() { "" } else { "warning " };
        assert!(!hint.is_empty(), "{message}");
        format!("{mark}{line}:{column} {path}: {message} ({hint})")
    };
    problems.iter().map(line).collect()
}

/// A server entry inside the smallest file. The entry begins at 1:52.
fn entry(entry: &str) -> String {
    format!(r#"{{"toolboxes": {{"dev": {{"mcpServers": {{"fs": {entry}}}}}}}}}"#)
}

fn server(text: &str) -> Server {
    let (mut workbench, _) = valid(&entry(text));
    Arc::into_inner(workbench.toolboxes.remove(0).servers.remove(0)).expect("nobody else holds it")
}

fn command(text: &str) -> Command {
    match server(text).transport {
        Transport::Stdio(command) => command,
        _ => panic!("{text}"),
    }
}

fn http(text: &str) -> Http {
    match server(text).transport {
        Transport::Http(http) => http,
        _ => panic!("{text}"),
    }
}

fn exposed(pairs: &[(String, Secret)]) -> Vec<(&str, &str)> {
    pairs.iter().map(|(name, value)| (name.as_str(), value.expose())).collect()
}

#[test]
fn the_documented_file_is_read_in_its_order() {
    let (workbench, warnings) = valid(
        "\u{feff}{
  \"$schema\": \"https://example.org/schema.json\",
  \"toolMode\": \"proxy\",              // a comment
  \"metaTools\": \"classic\",
  \"toolboxes\": {
    \"zoo\": { \"mcpServers\": {} },
    \"dev\": {
      \"description\": \"Development toolbox\",
      \"mcpServers\": {
        \"filesystem\": {
          \"command\": \"npx\", \"args\": [\"-y\", \"${HOST}\"],
          \"env\": { \"LOG_LEVEL\": \"${LOG_LEVEL:-info}\", \"A\": \"b\" },
          \"cwd\": \".\", \"toolFilters\": [\"*\"], \"transport\": \"stdio\",
        },
        \"remote\": { \"type\": \"http\", \"url\": \"http://127.0.0.1:9000/mcp\",
                    \"headers\": { \"Authorization\": \"Bearer ${TOKEN}\" } },
      }
    }
  }
}",
    );
    assert_eq!(warnings, []);
    assert_eq!((workbench.tool_mode, workbench.meta_tools), (ToolMode::Proxy, MetaTools::Classic));
    let names: Vec<_> = workbench.toolboxes.iter().map(|toolbox| toolbox.name.as_str()).collect();
    assert_eq!(names, ["zoo", "dev"]);
    let dev = &workbench.toolboxes[1];
    assert_eq!(
        (dev.description.as_str(), workbench.toolboxes[0].description.as_str()),
        ("Development toolbox", "")
    );
    let names: Vec<_> = dev.servers.iter().map(|server| server.name.as_str()).collect();
    assert_eq!(names, ["filesystem", "remote"]);
    let Transport::Stdio(command) = &dev.servers[0].transport else { panic!() };
    assert_eq!(command.program, "npx");
    assert_eq!(command.args, ["-y", "example.org"]);
    assert_eq!(exposed(&command.env), [("LOG_LEVEL", "info"), ("A", "b")]);
    assert_eq!(command.cwd.as_deref(), Some(Path::new("/etc/mcp")));
    let Transport::Http(http) = &dev.servers[1].transport else { panic!() };
    assert_eq!((http.url.as_str(), http.sse), ("http://127.0.0.1:9000/mcp", false));
    assert_eq!(exposed(&http.headers), [("Authorization", "Bearer s3cr3t-token")]);
}

#[test]
fn defaults_are_those_of_the_contract() {
    let (workbench, _) = valid(r#"{"toolboxes": {}}"#);
    assert_eq!((workbench.tool_mode, workbench.meta_tools), (ToolMode::Dynamic, MetaTools::Current));
    assert_eq!((workbench.instructions_limit, workbench.search), (2048, false));
    let common = &workbench.common;
    assert_eq!(
        (common.naming.rule, common.naming.max_length, common.max_message_bytes),
        (NameRule::Safe, None, 16 << 20)
    );
    assert_eq!(common.question_timeout, Duration::from_secs(300));
    let serving = Serving {
        session_idle_timeout: Duration::from_secs(1800),
        max_body_bytes: 4 << 20,
        state_keys: Vec::new(),
        store: None,
        tokens: vec![],
    };
    assert_eq!(common.serving, serving);
    let [linger, daemon_linger] = [60, 600].map(Duration::from_secs);
    assert_eq!(common.daemon, Daemon { on: false, linger, daemon_linger });
    let server = server(r#"{"command": "x"}"#);
    assert_eq!((server.filter, server.isolation), (ToolFilter::All, None));
    assert_eq!(server.timeouts, Timeouts::default());
    assert_eq!(server.timeouts.connect, Duration::from_secs(30));
    assert_eq!(server.running.longest_idle(), None);
    let Transport::Stdio(command) = server.transport else { panic!() };
    assert_eq!((command.cwd, command.args, command.inherit_env), (None, vec![], vec![]));
}

#[test]
fn a_store_is_named_by_its_url() {
    let store = |url: &str, more: &str| {
        let (workbench, warnings) = valid(&format!(r#"{{"toolboxes": {{}}, "store": "{url}"{more}}}"#));
        assert_eq!(warnings, []);
        workbench.common.serving.store.expect("it is named")
    };
    for (url, shown) in [
        ("redis://host", "host:6379"),
        ("valkey://user:p%40ss@host:7000/3", "host:7000"),
        ("rediss://:${TOKEN}@host", "host:6379"),
        ("valkeys://[::1]:1/", "::1:1"),
        ("unix:///run/valkey.sock?user=u&pass=hush&db=2", "/run/valkey.sock"),
    ] {
        let store = store(url, "");
        assert_eq!((store.shown.replace(['[', ']'], ""), &*store.prefix), (shown.to_owned(), "default"));
    }
    assert_eq!(store("redis://host", r#", "storePrefix": "A.b_c-9""#).prefix, "A.b_c-9");
    let (workbench, _) = valid(r#"{"toolboxes": {}, "storePrefix": "x"}"#);
    assert_eq!(workbench.common.serving.store, None);
    let keys = r#"["0123456789abcdef0123456789abcdef", "another0123456789abcdef0123456789"]"#;
    let (workbench, _) = valid(&format!(r#"{{"toolboxes": {{}}, "stateKey": {keys}}}"#));
    assert_eq!(workbench.common.serving.state_keys.len(), 2);
}

#[test]
fn every_top_level_key_is_known() {
    let (workbench, warnings) = valid(
        r#"{"toolMode": "auto", "metaTools": "current", "names": "exact", "maxNameLength": 10, "instructionsLimit": 0,
            "maxMessageBytes": 1024, "questionTimeout": 1.5, "search": true, "sessionIdleTimeout": 60,
            "maxBodyBytes": 4096.0, "stateKey": "0123456789abcdef0123456789abcdef",
            "auth": {"tokens": [{"name": "ci", "token": " ${TOKEN}\n", "toolboxes": ["dev"]}, {"name": "all", "token": "x"}]},
            "daemon": true, "linger": 0, "daemonLinger": 1.5, "toolboxes": {"dev": {"mcpServers": {}}}}"#,
    );
    assert_eq!(warnings, []);
    let daemon_linger = Duration::from_millis(1500);
    assert_eq!(workbench.common.daemon, Daemon { on: true, linger: Duration::ZERO, daemon_linger });
    assert_eq!(
        (workbench.tool_mode, workbench.instructions_limit, workbench.search),
        (ToolMode::Auto, 0, true)
    );
    let common = workbench.common;
    assert_eq!(
        (common.naming.rule, common.naming.max_length, common.max_message_bytes),
        (NameRule::Exact, Some(10), 1024)
    );
    assert_eq!(common.question_timeout, Duration::from_millis(1500));
    assert_eq!(
        (common.serving.session_idle_timeout, common.serving.max_body_bytes),
        (Duration::from_secs(60), 4096)
    );
    assert_eq!(common.serving.state_keys.len(), 1);
    let tokens: Vec<_> =
        common.serving.tokens.iter().map(|t| (&*t.name, t.token.expose(), t.scope.clone())).collect();
    assert_eq!(tokens, [("ci", "s3cr3t-token", Some(vec!["dev".to_owned()])), ("all", "x", None)]);
}

#[test]
fn filters() {
    let only = |names: &[&str]| ToolFilter::Only(names.iter().map(|name| (*name).to_owned()).collect());
    for (text, expected) in [
        (r#"["*"]"#, ToolFilter::All),
        (r#"["a", "*"]"#, ToolFilter::All),
        (r#"["a", "b*"]"#, only(&["a", "b*"])),
        ("[]", only(&[])),
    ] {
        assert_eq!(server(&format!(r#"{{"command": "x", "toolFilters": {text}}}"#)).filter, expected);
    }
}

#[test]
fn a_filter_takes_whole_names() {
    let filter = server(r#"{"command": "x", "toolFilters": ["read", "list*"]}"#).filter;
    for (tool, expected) in [
        ("read", true),
        ("list*", true),
        ("read_file", false),
        ("rea", false),
        ("READ", false),
        ("", false),
        ("list", false),
        ("lists", false),
    ] {
        assert_eq!(filter.allows(tool), expected, "{tool}");
    }
}

#[test]
fn env_values_become_their_text() {
    let text = r#"{"command": "x", "env": {"S": "${TOKEN}", "N": 1.50, "B": true, "NO": null, "BIG": 12345678901234567890123, "E": ""}}"#;
    let expected =
        [("S", "s3cr3t-token"), ("N", "1.50"), ("B", "true"), ("BIG", "12345678901234567890123"), ("E", "")];
    assert_eq!(exposed(&command(text).env), expected);
    for key in ["envs", "environment"] {
        let text = format!(r#"{{"command": "x", "{key}": {{"A": "1"}}, "env": {{"A": 1}}}}"#);
        assert_eq!(exposed(&command(&text).env), [("A", "1")]);
    }
}

#[test]
fn transports_and_their_synonyms() {
    for kind in ["http", "streamable-http", "streamableHttp", "streamable_http", "remote"] {
        for key in ["type", "transport"] {
            assert!(!http(&format!(r#"{{"{key}": "{kind}", "url": "http://h"}}"#)).sse);
        }
    }
    for key in ["url", "httpUrl", "serverUrl", "uri"] {
        assert_eq!(http(&format!(r#"{{"{key}": "https://${{HOST}}/mcp"}}"#)).url, "https://example.org/mcp");
    }
    assert!(http(r#"{"type": "sse", "url": "http://h"}"#).sse);
    assert!(
        !http(r#"{"type": "http", "transport": "streamable-http", "url": "http://h", "uri": "http://h"}"#)
            .sse
    );
    assert_eq!(command(r#"{"type": "stdio", "transport": "stdio", "command": "x"}"#).program, "x");
}

#[test]
fn directories_are_relative_to_the_file() {
    for (cwd, expected) in [
        (".", "/etc/mcp"),
        ("./a/./b", "/etc/mcp/a/b"),
        ("../x", "/etc/mcp/../x"),
        ("/abs", "/abs"),
        ("${NONE:-sub}", "/etc/mcp/sub"),
    ] {
        let command = command(&format!(r#"{{"command": "x", "cwd": "{cwd}"}}"#));
        assert_eq!(command.cwd.as_deref(), Some(Path::new(expected)));
    }
}

#[test]
fn other_settings_of_a_server() {
    let server = server(
        r#"{"command": "x", "connectTimeout": 0.5, "callTimeout": 60, "maxCallTime": 1e300,
            "inheritEnv": ["*", "SSH_AUTH_SOCK"], "isolation": "session", "start": "call", "idleTimeout": 0.5,
            "offloadOver": 4000, "disabled": false}"#,
    );
    assert_eq!(server.timeouts.connect, Duration::from_millis(500));
    assert_eq!(server.timeouts.call, Some(Duration::from_secs(60)));
    assert_eq!(server.timeouts.max_call, Some(Duration::from_secs(3_000_000_000)));
    assert_eq!((server.isolation, server.running.start), (Some(Isolation::Session), Some(Start::Call)));
    assert_eq!(server.running.longest_idle(), Some(Duration::from_millis(500)));
    assert_eq!(server.offload_over, ByteLimit::Bytes(4000));
    let Transport::Stdio(command) = server.transport else { panic!() };
    assert_eq!(command.inherit_env, ["*", "SSH_AUTH_SOCK"]);
}

#[test]
fn names_of_other_clients_work_as_pasted() {
    for name in ["My Server", "@org/name", "github.com/owner/repo", "a__b", "ü", " x "] {
        let text =
            format!(r#"{{"toolboxes": {{"My @ox": {{"mcpServers": {{"{name}": {{"command": "x"}}}}}}}}}}"#);
        assert_eq!(valid(&text).0.toolboxes[0].servers[0].name.as_str(), name);
    }
}

#[test]
fn disabled_entries_are_checked_and_left_out() {
    let text = r#"{"toolboxes": {"dev": {"mcpServers": {"a": {"command": "x", "disabled": true}, "b": {"command": "y"}}}}}"#;
    let names: Vec<_> = valid(text).0.toolboxes[0].servers.iter().map(|s| s.name.to_string()).collect();
    assert_eq!(names, ["b"]);
    let found = problems(entry(r#"{"disabled": true, "url": "nowhere"}"#).as_bytes());
    assert!(found[0].contains("expected a URL"), "{found:?}");
}

#[test]
fn logins_are_as_the_file_says() {
    let scope = |text: &str| OAuth { scope: Some(text.to_owned()), ..OAuth::default() };
    for (text, expected) in [
        (r#"{"url": "http://h"}"#, Some(OAuth::default())),
        (r#"{"url": "http://h", "oauth": false}"#, None),
        (r#"{"url": "http://h", "oauth": true}"#, Some(OAuth::default())),
        (r#"{"url": "http://h", "oauth": {"scope": "a b"}}"#, Some(scope("a b"))),
        (r#"{"url": "http://h", "oauth": {"scopes": ["a", "b"]}}"#, Some(scope("a b"))),
        (
            r#"{"url": "http://h", "oauth": {"clientId": "id", "clientSecret": "${TOKEN}", "callbackPort": 8123,
                "clientMetadataUrl": "https://${HOST}/client.json"}}"#,
            Some(OAuth {
                client_id: Some("id".to_owned()),
                client_secret: Some(Secret::new("s3cr3t-token")),
                client_metadata_url: Some("https://example.org/client.json".to_owned()),
                scope: None,
                callback_port: Some(8123),
            }),
        ),
    ] {
        assert_eq!(http(text).oauth, expected, "{text}");
    }
    for (text, expected) in [
        (r#"{"url": "http://h"}"#, false),
        (r#"{"url": "http://h/a@b"}"#, false),
        (r#"{"url": "http://h", "headers": {"X": "y"}}"#, false),
        (r#"{"url": "http://u:p@h"}"#, true),
        (r#"{"url": "http://h", "headers": {"authorization": "y"}}"#, true),
    ] {
        assert_eq!(http(text).has_credentials(), expected, "{text}");
    }
}

#[test]
fn every_secret_is_known_to_the_redactor() {
    let (workbench, _) = valid(&entry(
        r#"{"command": "npx", "args": ["--token=${TOKEN}"], "env": {"API_KEY": "literal-key", "PIN": 998877, "SHORT": "12345"}}"#,
    ));
    let secrets = &workbench.common.secrets;
    for (text, expected) in [
        ("got s3cr3t-token!", "got ${TOKEN}!"),
        ("key literal-key", "key ${API_KEY}"),
        ("pin 998877", "pin ${PIN}"),
        ("short 12345", "short 12345"),
    ] {
        assert_eq!(secrets.redact(text), expected);
    }
    let (workbench, _) = valid(&entry(
        r#"{"url": "http://u:p4ssw0rd@h:1/", "headers": {"Authorization": "Bearer sk-literal", "X": "two\tparts-of-it"}}"#,
    ));
    let secrets = &workbench.common.secrets;
    for (text, expected) in [
        ("401 for sk-literal", "401 for ${Authorization}"),
        ("Bearer sk-literal", "${Authorization}"),
        ("no p4ssw0rd", "no ${PASSWORD}"),
    ] {
        assert_eq!(secrets.redact(text), expected);
    }
    let (workbench, _) =
        valid(&entry(r#"{"url": "http://h", "oauth": {"clientId": "c", "clientSecret": "literal-secret"}}"#));
    assert_eq!(workbench.common.secrets.redact("a literal-secret"), "a ${clientSecret}");
    assert!(!format!("{workbench:?}").contains("literal-secret"));
    assert!(!format!("{workbench:?}").contains("p4ssw0rd"));
    let (workbench, _) = valid(&entry(
        r#"{"command": "x", "args": ["--api-key", "literal-key", "--token=${PIN_:-from-default}", "pg://u:p4ssw0rd@h", "plain-word"]}"#,
    ));
    let secrets = &workbench.common.secrets;
    for (text, expected) in [
        ("bad literal-key", "bad ${API_KEY}"),
        ("--token=from-default", "--token=${TOKEN}"),
        ("no pg://u:p4ssw0rd@h", "no pg://u:${PASSWORD}@h"),
        ("plain-word", "plain-word"),
    ] {
        assert_eq!(secrets.redact(text), expected);
    }
    let (workbench, _) = valid(&entry(r#"{"url": "http://h/?token=literal-token&page=secondpage"}"#));
    let redacted = workbench.common.secrets.redact("literal-token secondpage").into_owned();
    assert_eq!(redacted, "${TOKEN} secondpage");
    let text =
        entry(r#"{"command": "x", "env": {"KEY": "-----BEGIN KEY-----\nMIIabcdef\n-----END KEY-----"}}"#);
    assert_eq!(valid(&text).0.common.secrets.redact("line MIIabcdef"), "line ${KEY}");
}

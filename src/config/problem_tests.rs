//! What is said about files that are wrong, case by case.

use super::load;
use crate::config::Problem;
use proptest::prelude::*;
use std::path::Path;

fn environment(name: &str) -> Option<String> {
    match name {
        "TOKEN" => Some("s3cr3t-token".into()),
        "MODE" => Some("hunter22".into()),
        "EMPTY" => Some(String::new()),
        "HOST" => Some("example.org".into()),
        _ => None,
    }
}

fn found(text: &[u8]) -> Vec<Problem> {
    match load(Path::new("/etc/mcp/workbench-config.json"), text, &crate::config::Inputs::of(&environment)) {
        Ok((_, warnings)) => warnings,
        Err(problems) => {
            assert!(problems.iter().any(Problem::is_error));
            problems
        }
    }
}

/// Problems as `line:column path: message (hint)`, with warnings marked.
fn problems(text: &[u8]) -> Vec<String> {
    let line = |problem: &Problem| {
        let Problem { line, column, path, message, hint, .. } = problem;
        let mark = if problem.is_error() { "" } else { "warning " };
        format!("{mark}{line}:{column} {path}: {message} ({hint})")
    };
    found(text).iter().map(line).collect()
}

/// A server entry inside the smallest file.
fn entry(entry: &str) -> String {
    format!(r#"{{"toolboxes": {{"dev": {{"mcpServers": {{"fs": {entry}}}}}}}}}"#)
}

#[test]
fn of_a_file() {
    let cases: &[(&str, &[&str])] = &[
        ("", &[r#"1:1 : the file is empty (start with `{ "toolboxes": { "dev": { "mcpServers": {} } } }`)"#]),
        (
            "// nothing\n",
            &[r#"2:1 : the file is empty (start with `{ "toolboxes": { "dev": { "mcpServers": {} } } }`)"#],
        ),
        (
            "[]",
            &[
                r#"1:1 : expected an object, found a list (the file looks like `{ "toolboxes": { "dev": { "mcpServers": {} } } }`)"#,
            ],
        ),
        (
            "5",
            &[
                r#"1:1 : expected an object, found the number 5 (the file looks like `{ "toolboxes": { "dev": { "mcpServers": {} } } }`)"#,
            ],
        ),
        (
            r#""x""#,
            &[
                r#"1:1 : expected an object, found the string "x" (the file looks like `{ "toolboxes": { "dev": { "mcpServers": {} } } }`)"#,
            ],
        ),
        (
            "{}",
            &[
                r#"1:1 : the file has no `toolboxes` (the smallest file is `{ "toolboxes": { "dev": { "mcpServers": {} } } }`)"#,
            ],
        ),
        (
            r#"{"toolboxes": {}} x"#,
            &[
                "1:19 : there is more text after the end of the value (remove what follows, or the `}` that came too early)",
            ],
        ),
        (
            "{\n  \"toolboxes\": {}\n  \"search\": true\n}",
            &["2:18 : a comma is missing here (add `,` between the two entries)"],
        ),
        (r#"{"toolboxs": {}}"#, &["1:2 toolboxs: unknown key `toolboxs` (did you mean `toolboxes`?)"]),
        (
            r#"{"toolboxes": {}, "toolMdoe": "proxy", "zzz": 1}"#,
            &[
                "1:19 toolMdoe: unknown key `toolMdoe` (did you mean `toolMode`?)",
                "1:40 zzz: unknown key `zzz` (remove it; known here: `$schema`, `toolMode`, `metaTools`, `toolboxes`, `instructionsLimit`, `openLimit`, `offloadOver`, `names`, `maxNameLength`, `maxMessageBytes`, `questionTimeout`, `sessionIdleTimeout`, `maxBodyBytes`, `stateKey`, `store`, `storePrefix`, `auth`, `search`, `envFile`, `onMissingVariable`, `start`, `idleTimeout`, `lock`, `journal`, `journalArguments`, `journalLimit`, `daemon`, `linger` and `daemonLinger`)",
            ],
        ),
        (
            r#"{"mcpServers": {}}"#,
            &[
                r#"1:2 mcpServers: this looks like the `mcpServers` of a single client; a workbench has `toolboxes` (put the servers into a toolbox, `"toolboxes": { "dev": { "mcpServers": { … } } }`, or let `mcp-workbench import` do it)"#,
            ],
        ),
        (
            r#"{"servers": {}, "inputs": []}"#,
            &[
                r#"1:2 servers: this looks like VS Code's `servers`; a workbench has `toolboxes` (put the servers into a toolbox, `"toolboxes": { "dev": { "mcpServers": { … } } }`, or let `mcp-workbench import` do it)"#,
                "1:17 inputs: unknown key `inputs` (remove it; known here: `$schema`, `toolMode`, `metaTools`, `toolboxes`, `instructionsLimit`, `openLimit`, `offloadOver`, `names`, `maxNameLength`, `maxMessageBytes`, `questionTimeout`, `sessionIdleTimeout`, `maxBodyBytes`, `stateKey`, `store`, `storePrefix`, `auth`, `search`, `envFile`, `onMissingVariable`, `start`, `idleTimeout`, `lock`, `journal`, `journalArguments`, `journalLimit`, `daemon`, `linger` and `daemonLinger`)",
            ],
        ),
        (
            r#"{"context_servers": {}}"#,
            &[
                r#"1:2 context_servers: this looks like Zed's `context_servers`; a workbench has `toolboxes` (put the servers into a toolbox, `"toolboxes": { "dev": { "mcpServers": { … } } }`, or let `mcp-workbench import` do it)"#,
            ],
        ),
        (
            r#"{"mcp": {}}"#,
            &[
                r#"1:2 mcp: this looks like opencode's `mcp`; a workbench has `toolboxes` (put the servers into a toolbox, `"toolboxes": { "dev": { "mcpServers": { … } } }`, or let `mcp-workbench import` do it)"#,
            ],
        ),
        (
            r#"{"toolboxes": []}"#,
            &[
                r#"1:2 toolboxes: expected an object, found a list (put the entries in braces: `{ "key": … }`)"#,
            ],
        ),
        (
            r#"{"toolboxes": {"dev": 1}}"#,
            &[
                r#"1:23 toolboxes.dev: expected an object, found the number 1 (put the entries in braces: `{ "key": … }`)"#,
            ],
        ),
        (
            r#"{"toolboxes": {"dev": {}}}"#,
            &[
                r#"1:16 toolboxes.dev: the toolbox `dev` has no `mcpServers` (add `"mcpServers": { … }`; it may be empty)"#,
            ],
        ),
        (
            r#"{"toolboxes": {"dev": {"mcpServer": {}}}}"#,
            &["1:24 toolboxes.dev.mcpServer: unknown key `mcpServer` (did you mean `mcpServers`?)"],
        ),
        (
            r#"{"toolboxes": {"dev": {"servers": {}}}}"#,
            &[
                "1:24 toolboxes.dev.servers: this looks like VS Code's `servers`; a toolbox has `mcpServers` (rename it to `mcpServers`)",
            ],
        ),
        (
            r#"{"toolboxes": {"dev": {"mcpServers": {}, "descripton": "x"}}}"#,
            &["1:42 toolboxes.dev.descripton: unknown key `descripton` (did you mean `description`?)"],
        ),
        (
            r#"{"toolboxes": {"dev": {"mcpServers": {}, "description": 5}}}"#,
            &[
                "1:57 toolboxes.dev.description: expected a string, found the number 5 (put the value in double quotes)",
            ],
        ),
        (
            r#"{"toolboxes": {"a__b": {"mcpServers": {}}, " ": {"mcpServers": {}}, "a\u0007": {"mcpServers": {}}}}"#,
            &[
                "1:16 toolboxes.a__b: a toolbox name may not contain `__` (give the toolbox another name, such as `dev`)",
                r#"1:44 toolboxes[" "]: a name may not be blank (give the toolbox another name, such as `dev`)"#,
                r#"1:69 toolboxes["a\u0007"]: a name may not contain control characters (give the toolbox another name, such as `dev`)"#,
            ],
        ),
        (
            r#"{"toolboxes": {"dev": {"mcpServers": {"": {"command": "x"}, "a\nb": {"command": "x"}, "s": "npx"}}}}"#,
            &[
                r#"1:39 toolboxes.dev.mcpServers[""]: a name may not be blank (give the server a readable name)"#,
                r#"1:61 toolboxes.dev.mcpServers["a\nb"]: a name may not contain control characters (give the server a readable name)"#,
                r#"1:92 toolboxes.dev.mcpServers.s: expected an object, found the string "npx" (put the entries in braces: `{ "key": … }`)"#,
            ],
        ),
        (
            r#"{"toolboxes": {"dev": {"mcpServers": {}}, "dev": {"mcpServers": {}}}}"#,
            &[
                "1:43 toolboxes.dev: duplicate key `dev` (remove or rename one of the two; the first is on line 1)",
            ],
        ),
        (
            r#"{"toolboxes": {}, "toolMode": "dynamc", "metaTools": 5, "names": "${MODE}", "$schema": 1}"#,
            &[
                r#"1:31 toolMode: expected `dynamic`, `proxy`, `auto` or `flat`, found the string "dynamc" (did you mean `dynamic`?)"#,
                "1:54 metaTools: expected a string, found the number 5 (put the value in double quotes)",
                r#"1:66 names: expected `safe` or `exact`, found the string "${MODE}" (use one of these)"#,
                "1:88 $schema: expected a string, found the number 1 (put the value in double quotes)",
            ],
        ),
        (
            r#"{"toolboxes": {}, "maxNameLength": 9, "instructionsLimit": -1, "maxMessageBytes": 0, "maxBodyBytes": 1.5}"#,
            &[
                "1:36 maxNameLength: expected a whole number of at least 10, found the number 9 (the smallest possible value is 10)",
                "1:60 instructionsLimit: expected a whole number of at least 0, found the number -1 (the smallest possible value is 0)",
                "1:83 maxMessageBytes: expected a whole number of at least 1, found the number 0 (the smallest possible value is 1)",
                "1:102 maxBodyBytes: expected a whole number of at least 1, found the number 1.5 (the smallest possible value is 1)",
            ],
        ),
        (
            r#"{"toolboxes": {}, "openLimit": 999, "offloadOver": 3999}"#,
            &[
                r#"1:32 openLimit: expected `"auto"`, 0 or a whole number of at least 1000, found the number 999 (0 means no limit; a smaller limit has no room for tools)"#,
                r#"1:52 offloadOver: expected `"auto"`, 0 or a whole number of at least 4000, found the number 3999 (0 switches it off; a smaller limit has no room for the notice)"#,
            ],
        ),
        (
            r#"{"toolboxes": {}, "maxNameLength": "64", "questionTimeout": 0, "sessionIdleTimeout": -1, "search": "yes"}"#,
            &[
                r#"1:36 maxNameLength: expected a whole number of at least 10, found the string "64" (write it without quotes and without a unit)"#,
                "1:61 questionTimeout: expected a number of seconds greater than 0, found the number 0 (leave the key out for the default)",
                "1:86 sessionIdleTimeout: expected a number of seconds greater than 0, found the number -1 (leave the key out for the default)",
                r#"1:100 search: expected `true` or `false`, found the string "yes" (write it without quotes)"#,
            ],
        ),
        (
            r#"{"toolboxes": {}, "stateKey": "0123456789abcdef0123456789abcde", "auth": {}}"#,
            &[
                "1:31 stateKey: a state key needs at least 32 bytes; this one has 31 (generate one, for example with `openssl rand -hex 32`)",
                "1:66 auth: `auth` has no `tokens` (add `tokens`, or remove `auth`)",
            ],
        ),
        (
            r#"{"toolboxes": {}, "stateKey": [], "storePrefix": "a b"}"#,
            &[
                "1:19 stateKey: the list of state keys is empty (write one key into it, or remove it)",
                "1:50 storePrefix: a prefix has 1 to 64 letters, digits, `.`, `_` and `-` (choose another name)",
            ],
        ),
        (
            r#"{"toolboxes": {}, "store": "http://u:pw@h/", "stateKey": ["0123456789abcdef0123456789abcdef", "short"]}"#,
            &[
                "1:28 store: this is not the URL of a Valkey or Redis server (such as `redis://user:${PASSWORD}@host:6379/0`; `rediss://` is with TLS, `unix:///path` a socket)",
                "1:95 stateKey[1]: a state key needs at least 32 bytes; this one has 5 (generate one, for example with `openssl rand -hex 32`)",
            ],
        ),
        (
            r#"{"toolboxes": {}, "stateKey": 12345678, "auth": {"token": [], "tokens": {}}}"#,
            &[
                "1:31 stateKey: expected a string, found a number (put the value in double quotes)",
                "1:50 auth.token: unknown key `token` (did you mean `tokens`?)",
                r#"1:63 auth.tokens: expected a list, found an object (put the values in square brackets: `["…", "…"]`)"#,
            ],
        ),
        (
            r#"{"toolboxes": {"dev": {"mcpServers": {}}}, "auth": {"tokens": [{"name": "a", "token": ""}, {"name": "b", "token": "${EMPTY}"}, {"token": "x"}, {"name": "c"}, {"name": "d", "token": "y", "toolboxes": ["dve", "other", 5]}, {"name": "e", "token": "z", "toolbox": []}, {"name": "d", "token": "y"}, 7]}}"#,
            &[
                "1:87 auth.tokens[0].token: `token` is empty (give it a value, or remove the entry)",
                "1:115 auth.tokens[1].token: `token` is empty (give it a value, or remove the entry)",
                "1:128 auth.tokens[2]: `name` is missing (add `name`)",
                "1:144 auth.tokens[3]: `token` is missing (add `token`)",
                "1:201 auth.tokens[4].toolboxes[0]: `dve` is not configured in this file (did you mean `dev`?)",
                "1:208 auth.tokens[4].toolboxes[1]: `other` is not configured in this file (remove it; known here: `dev`)",
                "1:217 auth.tokens[4].toolboxes[2]: expected a string, found the number 5 (put the value in double quotes)",
                "1:250 auth.tokens[5].toolbox: unknown key `toolbox` (did you mean `toolboxes`?)",
                "1:266 auth.tokens[6]: two tokens are named `d` (give each token a name of its own)",
                "1:266 auth.tokens[6]: the token `d` is the same as an earlier one (give each name a token of its own)",
                r#"1:295 auth.tokens[7]: expected an object, found the number 7 (put the entries in braces: `{ "key": … }`)"#,
            ],
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(problems(text.as_bytes()), *expected, "{text}");
    }
}

#[test]
fn beneath_a_misspelled_key_are_told_as_well() {
    let text = r#"{"toolboxs": {"dev": {"mcpServer": {"fs": {}}}}}"#;
    let expected = [
        "1:2 toolboxs: unknown key `toolboxs` (did you mean `toolboxes`?)",
        "1:23 toolboxs.dev.mcpServer: unknown key `mcpServer` (did you mean `mcpServers`?)",
        "1:37 toolboxs.dev.mcpServer.fs: the server has neither `command` nor `url` (add `command` for a program \
         to start, or `url` for a server that runs already)",
    ];
    assert_eq!(problems(text.as_bytes()), expected);
}

#[test]
fn of_bytes_that_are_no_text() {
    assert_eq!(problems(b"{\n  \"a\xff\": 1}"), ["2:5 : this is not UTF-8 (save the file as UTF-8)"]);
    assert_eq!(problems(b"\xff\xfe{\0}\0"), ["1:1 : the file is UTF-16, not UTF-8 (save the file as UTF-8)"]);
}

/// In the cases `@` stands for `toolboxes.dev.mcpServers.fs`.
#[test]
fn of_a_server() {
    let cases: &[(&str, &[&str])] = &[
        (
            "{}",
            &[
                "1:39 @: the server has neither `command` nor `url` (add `command` for a program to start, or `url` for a server that runs already)",
            ],
        ),
        (
            r#"{"command": "x", "url": "http://h"}"#,
            &[
                "1:62 @.url: the server has both `command` and `url` (keep `command` for a program to start, or `url` for a server that runs already)",
            ],
        ),
        (
            r#"{"command": "x", "httpUrl": "nope"}"#,
            &[
                "1:62 @.httpUrl: the server has both `command` and `httpUrl` (keep `command` for a program to start, or `url` for a server that runs already)",
                r#"1:73 @.httpUrl: expected a URL with `http://` or `https://` and a host, found the string "nope" (such as `http://127.0.0.1:9000/mcp`)"#,
            ],
        ),
        (
            r#"{"command": 5, "args": "x", "env": [], "cwd": 1, "toolFilters": "*"}"#,
            &[
                "1:57 @.command: expected a string, found the number 5 (put the value in double quotes)",
                r#"1:68 @.args: expected a list, found the string "x" (put the values in square brackets: `["…", "…"]`)"#,
                r#"1:73 @.env: expected an object, found a list (put the entries in braces: `{ "key": … }`)"#,
                "1:91 @.cwd: expected a string, found the number 1 (put the value in double quotes)",
                r#"1:109 @.toolFilters: expected a list, found the string "*" (put the values in square brackets: `["…", "…"]`)"#,
            ],
        ),
        (
            r#"{"command": " ", "args": ["a", 1, null], "cwd": "", "toolFilters": [1]}"#,
            &[
                "1:57 @.command: `command` is blank (name the program to start, such as `npx`)",
                "1:76 @.args[1]: expected a string, found the number 1 (put the value in double quotes)",
                "1:79 @.args[2]: expected a string, found null (put the value in double quotes)",
                "1:93 @.cwd: `cwd` is empty (write `.` for the directory of this file, or remove the key)",
                "1:113 @.toolFilters[0]: expected a string, found the number 1 (put the value in double quotes)",
            ],
        ),
        (
            r#"{"command": "x\u0000", "args": ["\u0000"]}"#,
            &[
                r#"1:57 @.command: the text has a NUL character, which cannot be passed to a process (remove `\u0000`)"#,
                r#"1:77 @.args[0]: the text has a NUL character, which cannot be passed to a process (remove `\u0000`)"#,
            ],
        ),
        (
            r#"{"command": "x", "type": "http"}"#,
            &[
                "1:70 @.type: a server with `command` speaks `stdio` (remove `type`, or give `url` in place of `command`)",
            ],
        ),
        (
            r#"{"url": "http://h", "transport": "stdio"}"#,
            &[
                "1:78 @.transport: a server with `url` speaks `http` or `sse` (remove `transport`, or give `command` in place of `url`)",
            ],
        ),
        (
            r#"{"url": "http://h", "type": "websocket"}"#,
            &[
                r#"1:73 @.type: expected `stdio`, `http` or `sse`, found the string "websocket" (use one of these)"#,
            ],
        ),
        (
            r#"{"url": "http://h", "type": "http", "transport": "sse"}"#,
            &[
                "1:81 @.transport: `type` and `transport` mean the same and disagree (keep one of the two; `type` is on line 1)",
            ],
        ),
        (
            r#"{"url": "http://h", "type": "sse", "transport": "streamble-http"}"#,
            &[
                r#"1:93 @.transport: expected `stdio`, `http` or `sse`, found the string "streamble-http" (use one of these)"#,
            ],
        ),
        (
            r#"{"url": "http://h", "serverUrl": "http://other"}"#,
            &[
                "1:65 @.serverUrl: `url` and `serverUrl` mean the same and disagree (keep one of the two; `url` is on line 1)",
            ],
        ),
        (
            r#"{"command": "x", "env": {"A": "1"}, "envs": {"A": "2"}}"#,
            &[
                "1:81 @.envs: `env` and `envs` mean the same and disagree (keep one of the two; `env` is on line 1)",
            ],
        ),
        (
            r#"{"url": "ftp://user:pw@h/x?k=v"}"#,
            &[
                r#"1:53 @.url: expected a URL with `http://` or `https://` and a host, found the string "ftp://…@h/x?…" (such as `http://127.0.0.1:9000/mcp`)"#,
            ],
        ),
        (
            r#"{"url": "http://"}"#,
            &[
                r#"1:53 @.url: expected a URL with `http://` or `https://` and a host, found the string "http://" (such as `http://127.0.0.1:9000/mcp`)"#,
            ],
        ),
        (
            r#"{"url": "http://:80"}"#,
            &[
                r#"1:53 @.url: expected a URL with `http://` or `https://` and a host, found the string "http://:80" (such as `http://127.0.0.1:9000/mcp`)"#,
            ],
        ),
        (
            r#"{"url": "http://a b"}"#,
            &[
                r#"1:53 @.url: expected a URL with `http://` or `https://` and a host, found the string "http://a b" (such as `http://127.0.0.1:9000/mcp`)"#,
            ],
        ),
        (
            r#"{"url": "unix:///x"}"#,
            &[
                r#"1:53 @.url: expected a URL with `http://` or `https://` and a host, found the string "unix:///x" (such as `http://127.0.0.1:9000/mcp`)"#,
            ],
        ),
        (
            r#"{"url": "${TOKEN}"}"#,
            &[
                r#"1:53 @.url: expected a URL with `http://` or `https://` and a host, found the string "${TOKEN}" (such as `http://127.0.0.1:9000/mcp`)"#,
            ],
        ),
        (
            r#"{"url": "http://h", "headers": {"A B": "x", "C": "a\nb", "D": ["secret-value"], "E": null, "F": 5}}"#,
            &[
                r#"1:77 @.headers["A B"]: this cannot be the name of a header (use letters, digits and `-`)"#,
                "1:94 @.headers.C: a header's value cannot have control characters (remove line breaks and the like)",
                "1:102 @.headers.D: expected a string, found a list (put the value in double quotes)",
                "1:130 @.headers.E: expected a string, found null (put the value in double quotes)",
            ],
        ),
        (
            r#"{"url": "http://h", "oauth": {"clientSecret": 5, "clientMetadataUrl": "https://h", "callbackPort": 65536, "scope": "a", "scopes": [], "clientid": ""}}"#,
            &[
                "1:75 @.oauth.clientSecret: `clientSecret` needs the `clientId` that it belongs to (add it, or remove the secret)",
                "1:91 @.oauth.clientSecret: expected a string, found a number (put the value in double quotes)",
                r#"1:115 @.oauth.clientMetadataUrl: expected a URL with `https://`, a host and a path, found the string "https://h" (such as `https://example.org/client.json`)"#,
                "1:144 @.oauth.callbackPort: expected a port, found the number 65536 (the largest possible value is 65535)",
                "1:165 @.oauth.scopes: `scope` and `scopes` mean the same (keep one of the two)",
                "warning 1:179 @.oauth.clientid: unknown key `clientid` is ignored (did you mean `clientId`?)",
            ],
        ),
        (
            r#"{"url": "http://h", "oauth": "yes"}"#,
            &[
                r#"1:74 @.oauth: expected an object, found the string "yes" (put the entries in braces: `{ "key": … }`)"#,
            ],
        ),
        (
            r#"{"url": "http://h", "oauth": {"scope": "a"}, "headers": {"Authorization": "x"}}"#,
            &["warning 1:65 @.oauth: `oauth` has no effect beside `Authorization` (remove it)"],
        ),
        (
            r#"{"command": "x", "oauth": {"clientId": " "}}"#,
            &[
                "warning 1:62 @.oauth: `oauth` has no effect beside `command` (remove it)",
                "1:84 @.oauth.clientId: the value is blank (fill it in, or remove the key)",
            ],
        ),
        (
            r#"{"command": "x", "env": {"": "x", "A=B": "y", "C": {"k": "secret-value"}, "D": ["s"], "E": "a\u0000"}}"#,
            &[
                r#"1:70 @.env[""]: this cannot be the name of a variable (use letters, digits and `_`)"#,
                r#"1:79 @.env["A=B"]: this cannot be the name of a variable (use letters, digits and `_`)"#,
                "1:91 @.env.C: expected a string, found an object (put the value in double quotes)",
                "1:119 @.env.D: expected a string, found a list (put the value in double quotes)",
                r#"1:136 @.env.E: the text has a NUL character, which cannot be passed to a process (remove `\u0000`)"#,
            ],
        ),
        (
            r#"{"command": "x", "connectTimeout": 0, "callTimeout": -1, "maxCallTime": "5", "disabled": "yes", "isolation": "shard", "inheritEnv": ["", "A=B", 1]}"#,
            &[
                "1:80 @.connectTimeout: expected a number of seconds greater than 0, found the number 0 (leave the key out for the default)",
                "1:98 @.callTimeout: expected a number of seconds greater than 0, found the number -1 (leave the key out for the default)",
                r#"1:117 @.maxCallTime: expected a number of seconds greater than 0, found the string "5" (write it without quotes and without a unit)"#,
                r#"1:134 @.disabled: expected `true` or `false`, found the string "yes" (write it without quotes)"#,
                r#"1:154 @.isolation: expected `shared`, `directory` or `session`, found the string "shard" (did you mean `shared`?)"#,
                "1:178 @.inheritEnv[0]: expected the name of a variable, or `*` for all, found an empty string (remove it)",
                r#"1:182 @.inheritEnv[1]: expected the name of a variable, or `*` for all, found the string "A=B" (remove it)"#,
                "1:189 @.inheritEnv[2]: expected a string, found the number 1 (put the value in double quotes)",
            ],
        ),
        (
            r#"{"command": "x", "idleTimeout": -1}"#,
            &[
                "1:77 @.idleTimeout: expected a number of seconds greater than 0, found the number -1 (leave the key out for the default)",
            ],
        ),
        (
            r#"{"command": "x", "start": "cal"}"#,
            &[r#"1:71 @.start: expected `open` or `call`, found the string "cal" (did you mean `call`?)"#],
        ),
        (
            r#"{"command": "x", "connectTimeout": null, "callTimeout": 1e-300, "maxCallTime": 1e999}"#,
            &[
                "1:80 @.connectTimeout: expected a number of seconds greater than 0, found null (write it without quotes and without a unit)",
                "1:101 @.callTimeout: expected a number of seconds greater than 0, found the number 1e-300 (leave the key out for the default)",
                "1:124 @.maxCallTime: expected a number of seconds greater than 0, found the number 1e999 (write it without quotes and without a unit)",
            ],
        ),
        (
            r#"{"command": "x", "timeout": 5, "enabled": false, "autoApprove": [], "toolFilter": ["a"], "headers": {"A": "b"}}"#,
            &[
                "warning 1:62 @.timeout: unknown key `timeout` is ignored (use `callTimeout` or `connectTimeout`, in seconds)",
                r#"warning 1:76 @.enabled: unknown key `enabled` is ignored (to leave a server out, write `"disabled": true`)"#,
                "warning 1:94 @.autoApprove: unknown key `autoApprove` is ignored (it has no effect here; remove it if it is not for another client)",
                "warning 1:113 @.toolFilter: unknown key `toolFilter` is ignored (did you mean `toolFilters`?)",
                "warning 1:134 @.headers: `headers` has no effect beside `command` (remove it)",
            ],
        ),
        (
            r#"{"url": "http://h", "args": [], "env": {}, "cwd": ".", "inheritEnv": ["A"]}"#,
            &[
                "warning 1:88 @.cwd: `cwd` has no effect beside `url` (remove it)",
                "warning 1:100 @.inheritEnv: `inheritEnv` has no effect beside `url` (remove it)",
            ],
        ),
        (
            r#"{"command": "x", "command": "y"}"#,
            &[
                "1:62 @.command: duplicate key `command` (remove or rename one of the two; the first is on line 1)",
            ],
        ),
        (
            r#"{"command": "${NONE}", "args": ["a", "b ${ALSO_NONE} ${TOKEN} ${HOST"], "env": {"API_KEY": "${API_KEY}"}, "foreign": {"deep": ["${DEEP}"]}}"#,
            &[
                "1:58 @.command: the environment variable NONE is not set (set NONE before starting, or give a default: `${NONE:-default}`)",
                "1:85 @.args[1]: the environment variable ALSO_NONE is not set (set ALSO_NONE before starting, or give a default: `${ALSO_NONE:-default}`)",
                "1:107 @.args[1]: `${HOST` is not closed (write `${HOST}`, or `$${HOST` for that very text)",
                "1:137 @.env.API_KEY: the environment variable API_KEY is not set (set API_KEY before starting, or give a default: `${API_KEY:-default}`)",
                "warning 1:151 @.foreign: unknown key `foreign` is ignored (it has no effect here; remove it if it is not for another client)",
                "1:173 @.foreign.deep[0]: the environment variable DEEP is not set (set DEEP before starting, or give a default: `${DEEP:-default}`)",
            ],
        ),
        (
            r#"{"command": "x", "args": ["\u0061 ${NONE}"]}"#,
            &[
                "1:71 @.args[0]: the environment variable NONE is not set (set NONE before starting, or give a default: `${NONE:-default}`)",
            ],
        ),
        (
            r#"{"command": "x", "description": "${lower} $VAR ${} ${V-x}"}"#,
            &[
                "warning 1:62 @.description: unknown key `description` is ignored (it has no effect here; remove it if it is not for another client)",
            ],
        ),
        (
            "5",
            &[
                r#"1:45 @: expected an object, found the number 5 (put the entries in braces: `{ "key": … }`)"#,
            ],
        ),
        ("null", &[r#"1:45 @: expected an object, found null (put the entries in braces: `{ "key": … }`)"#]),
        ("[]", &[r#"1:39 @: expected an object, found a list (put the entries in braces: `{ "key": … }`)"#]),
    ];
    for (text, expected) in cases {
        let expected: Vec<_> =
            expected.iter().map(|line| line.replace(" @", " toolboxes.dev.mcpServers.fs")).collect();
        assert_eq!(problems(entry(text).as_bytes()), expected, "{text}");
    }
}

#[test]
fn are_shown_with_their_line() {
    let text = r#"{
  "toolboxes": {
    "dev": {
      "mcpServers": {
        "My Server": {
          "command": "npx",
          "env": { "API_KEY": "pre-${API_KEY}", "OTHER": "literal-secret" } // "OLD": "old-secret"
        }
      }
    }
  }
}"#;
    let expected = r#"error: the environment variable API_KEY is not set
 --> /etc/mcp/workbench-config.json:7:36
  |
7 |           "env": { "API_KEY": "…${API_KEY}", "OTHER": "…" } … "…": "…"
  |                                 ^^^^^^^^^^
  |
  = at: toolboxes.dev.mcpServers["My Server"].env.API_KEY
  = help: set API_KEY before starting, or give a default: `${API_KEY:-default}`"#;
    let found = found(text.as_bytes());
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].render(false), expected);
}

/// No secret is ever printed, whatever is wrong beside it, in a file of one line or of many.
#[test]
fn never_show_secrets() {
    let sound = r#"{
  "toolboxes": { "dev": { "mcpServers": {
    "a": { "command": "x", "env": { "A": "literal-env", "PIN": 99887766 }, "args": ["${TOKEN}", "--key=literal-arg"] },
    "b": { "url": "http://user:literal-password@h/?key=literal-query", "headers": { "X": "literal-header" } },
    "c": { "url": "http://h", "oauth": { "clientId": "id", "clientSecret": "literal-secret" } }
  } } },
  "stateKey": "literal-state-key-literal-state-key", // literal-comment
  "auth": { "tokens": [ { "name": "n", "token": "literal-token" } ] }
}"#;
    assert_eq!(problems(sound.as_bytes()), [""; 0]);
    let mut broken: Vec<String> = Vec::new();
    // Every token of the file is replaced or removed once.
    for (at, _) in sound.match_indices(['"', ',', ':', '{', '}', '[', ']', '$']) {
        for replacement in ["", "5", "[", "\"", ",", "\"x\": ", "${NONE}", "\n"] {
            broken.push(format!("{}{replacement}{}", &sound[..at], &sound[at + 1..]));
        }
    }
    broken.extend(
        ["url", "command", "env", "headers", "token", "args", "oauth", "clientSecret"]
            .map(|key| sound.replace(key, "unknown")),
    );
    broken.push(sound.replace("http://", "ftp://"));
    broken.push(sound.replace("\"n\"", "[\"s3cr3t-token\"]"));
    let one_line: Vec<_> =
        broken.iter().map(|text| text.replace(" // literal-comment\n", "").replace('\n', " ")).collect();
    for text in broken.iter().chain(&one_line) {
        for problem in found(text.as_bytes()) {
            for shown in [problem.render(false), format!("{problem:?}")] {
                for secret in ["literal-", "99887766", "s3cr3t", "user:"] {
                    assert!(!shown.contains(secret), "{secret} in\n{shown}\n{text}");
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// No content of a file makes us panic, and every problem can be shown.
    #[test]
    fn of_any_text(
        parts in prop::collection::vec(
            prop_oneof![
                "[{}\\[\\]:,\"\\\\/*=#'\n\r ]",
                "\\PC{0,3}",
                Just("\"toolboxes\"".to_owned()),
                Just("\"mcpServers\": {".to_owned()),
                Just("[[servers]]\n".to_owned()),
                Just("\"env\": {\"ü\": \"${NONE}\"}".to_owned()),
                Just("command = \"ü ${NONE} \\u00fc\"\n".to_owned()),
                Just("\"\\ud83d\\ude00\"".to_owned()),
                Just("1e5".to_owned()),
                Just("null".to_owned()),
            ],
            0..20,
        ),
        inside in any::<bool>(),
    ) {
        let text = parts.concat();
        let text = if inside { entry(&text) } else { text };
        let toml = crate::config::load_toolman(Path::new("x"), text.as_bytes(), &crate::config::Inputs::of(&environment));
        for problem in found(text.as_bytes()).iter().chain(toml.err().iter().flatten()) {
            let place = format!(":{}:{}", problem.line, problem.column);
            prop_assert!(problem.render(false).contains(&place));
            prop_assert!(problem.line <= text.lines().count().max(1) + text.matches('\r').count() + 1);
        }
    }
}

/// Many problems in one file take about as long as the same problems in many files. Both are measured in
/// turn, so that other load on the machine slows down both.
#[test]
fn telling_problems_takes_time_in_proportion_to_their_number() {
    const FILES: usize = 16;
    const EACH: usize = 30;
    type Text = fn(&dyn Fn(&str) -> String) -> String;
    let cases: [(&str, usize, Text); 6] = [
        ("lines", 2, |each| {
            let servers = each("\n  \"s%\": {\"comand\": 1,\n    \"env\": {\"KEY\": \"secret-%\"}}");
            format!("{{\"toolboxes\": {{\"dev\": {{\"mcpServers\": {{{servers}}}}}}}}}")
        }),
        ("one line", 2, |each| {
            let servers = each(r#""s%": {"comand": 1, "env": {"KEY": "secret-%"}}"#);
            format!(r#"{{"toolboxes": {{"dev": {{"mcpServers": {{{servers}}}}}}}}}"#)
        }),
        ("variables", 1, |each| {
            format!(
                r#"{{"toolboxes": {{"dev": {{"description": "{}", "mcpServers": {{}}}}}}}}"#,
                each("${V%}")
            )
        }),
        ("keys", 1, |each| {
            format!(r#"{{"toolboxes": {{"dev": {{"mcpServers": {{}}}}}}, {}}}"#, each("\"key%\": 1"))
        }),
        ("doubles", 1, |each| {
            let (first, second) = (each(r#""a%": {"mcpServers": {}}"#), each(r#""a%": {"mcpServers": {}}"#));
            format!(r#"{{"toolboxes": {{{first}, {second}}}}}"#)
        }),
        ("names", 1, |each| {
            let boxes = each(r#""box%": {"mcpServers": {}}"#);
            let tokens = each(r#"{"name": "n%", "token": "secret-%", "toolboxes": ["box-of-%"]}"#);
            format!(r#"{{"toolboxes": {{{boxes}}}, "auth": {{"tokens": [{tokens}]}}}}"#)
        }),
    ];
    for (what, expected, text) in cases {
        let text = |range: std::ops::Range<usize>| {
            let each = |part: &str| {
                let parts: Vec<_> = range.clone().map(|n| part.replace('%', &format!("{n:05}"))).collect();
                parts.join(", ")
            };
            text(&each)
        };
        let one = vec![text(0..FILES * EACH)];
        let many: Vec<_> = (0..FILES).map(|file| text(file * EACH..(file + 1) * EACH)).collect();
        let time = |texts: &[String]| {
            let begun = std::time::Instant::now();
            let count: usize = texts.iter().map(|text| found(text.as_bytes()).len()).sum();
            assert_eq!(count, expected * FILES * EACH, "{what}");
            begun.elapsed()
        };
        let times: Vec<_> = (0..3).map(|_| (time(&one), time(&many))).collect();
        let (one, many) = (times.iter().map(|both| both.0).min(), times.iter().map(|both| both.1).min());
        assert!(one < many.map(|many| many * 4), "{what}: {one:?} in one file, {many:?} in many");
    }
}

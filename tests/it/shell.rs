//! `list`, `show`, `call` and `tokens`, against the fake upstream and an official server.

#![allow(clippy::disallowed_methods, reason = "tests start the programs they test")]

use std::path::PathBuf;

use mcp_workbench::inside::{count, of_definition};
use serde_json::{Value, json};

use crate::harness::{Finished, Gateway, Lab, VERSION, dev, fake_with, gateway_path, server, toolman_path};
use crate::npm;

/// A directory with a configuration in it.
pub(crate) struct Place {
    pub(crate) lab: Lab,
    program: PathBuf,
}

impl Place {
    pub(crate) fn workbench(config: Value) -> Self {
        let lab = Lab::new();
        lab.write("workbench-config.json", &lab.fill(&config.to_string()));
        Self { lab, program: gateway_path() }
    }

    pub(crate) fn toolman(config: &str) -> Self {
        let lab = Lab::new();
        lab.write("tools.toml", &lab.fill(config));
        Self { lab, program: toolman_path() }
    }

    pub(crate) fn run(&self, args: &[&str]) -> Finished {
        let finished = self.lab.run(self.lab.program(&self.program).args(args));
        self.lab.wait_until_gone(crate::harness::DEADLINE);
        finished
    }

    #[track_caller]
    pub(crate) fn check(&self, args: &[&str], status: i32, stdout: &str, stderr: &str) {
        let Finished { code, stdout: out, stderr: err } = self.run(args);
        let found = (code, out.as_str(), err.as_str());
        assert_eq!(found, (Some(status), stdout, stderr), "{args:?}");
    }

    #[track_caller]
    pub(crate) fn json(&self, args: &[&str], status: i32) -> Value {
        let finished = self.run(&[args, &["--json"]].concat());
        assert_eq!(finished.code, Some(status), "{args:?}: {}", finished.stderr);
        serde_json::from_str(&finished.stdout).unwrap_or_else(|error| panic!("{error}: {}", finished.stdout))
    }
}

const TYPED: &str = r#"{"name":"typed","description":"Takes all types\nand more","inputSchema":{"type":"object","properties":{"n":{"type":"integer"},"s":{"type":"string"},"b":{"type":"boolean"},"o":{"type":"object","properties":{"i":{"type":"integer"}}},"l":{"type":"array"}},"additionalProperties":false}}"#;

/// Two toolboxes; `one/a` and `two/a` both have `echo`.
fn two() -> Place {
    let a = fake_with(
        "--with echo,result,error,ask,progress --resources 1 --templates 1 --prompts 1 --count @dir/a",
        &["--tool", TYPED],
    );
    Place::workbench(json!({"toolboxes": {
        "one": {"description": "The first", "mcpServers": {"a": a}},
        "two": {"mcpServers": {"b": fake_with("--with echo,slow --count @dir/b", &[])}},
    }}))
}

#[test]
fn lists_as_text_and_the_second_time_from_memory() {
    let place = two();
    let tables = [
        ("toolboxes", "TOOLBOX  SERVERS  DESCRIPTION\none            1  The first\ntwo            1\n"),
        (
            "servers",
            "TOOLBOX  SERVER  TRANSPORT  TOOLS
one      a       stdio      6 tools
two      b       stdio      2 tools
",
        ),
        (
            "tools",
            "TOOL            DESCRIPTION
one/a/echo      Does echo
one/a/result    Does result
one/a/error     Does error
one/a/ask       Does ask
one/a/progress  Does progress
one/a/typed     Takes all types
two/b/echo      Does echo
two/b/slow      Does slow
",
        ),
        (
            "resources",
            "URI                                   DESCRIPTION
workbench://one/a/fake://resource/1   Resource 1
workbench://one/a/fake://item/1/{id}  Item 1
",
        ),
        ("prompts", "PROMPT          DESCRIPTION\none/a/prompt-1  Prompt 1\n"),
    ];
    for (what, expected) in tables {
        place.check(&["list", what], 0, expected, "");
    }
    assert_eq!((place.lab.starts("a"), place.lab.starts("b")), (1, 1), "asked once");
    place.run(&["list", "tools", "--fresh"]);
    assert_eq!((place.lab.starts("a"), place.lab.starts("b")), (2, 2), "--fresh asks again");
}

#[test]
fn lists_as_json() {
    let place = two();
    assert_eq!(
        place.json(&["list", "toolboxes"], 0),
        json!([{"toolbox": "one", "description": "The first", "servers": 1}, {"toolbox": "two", "description": "", "servers": 1}])
    );
    assert_eq!(place.lab.starts("a"), 0, "toolboxes need no server");
    assert_eq!(
        place.json(&["list", "servers"], 0)[1],
        json!({"toolbox": "two", "server": "b", "transport": "stdio", "tools": 2, "error": null, "login": null})
    );
    assert_eq!(
        place.json(&["list", "tools"], 0)[7],
        json!({"toolbox": "two", "server": "b", "tool": "slow", "registered": "two__b__slow", "description": "Does slow"})
    );
    assert_eq!(
        place.json(&["list", "prompts"], 0),
        json!([{"toolbox": "one", "server": "a", "prompt": "prompt-1", "registered": "one__a__prompt-1", "description": "Prompt 1"}])
    );
    let resources = place.json(&["list", "resources"], 0);
    assert_eq!(resources[0]["uri"], "fake://resource/1");
    assert_eq!(resources[0]["registered"], "workbench://one/a/fake://resource/1");
}

#[test]
fn names_in_every_form() {
    let place = two();
    for name in ["one/a/typed", "one__a__typed", "a/typed", "typed", "one/typed"] {
        let shown = place.json(&["show", name], 0);
        assert_eq!(
            (&shown["toolbox"], &shown["server"], &shown["registered"]),
            (&json!("one"), &json!("a"), &json!("one__a__typed")),
            "{name}"
        );
        assert_eq!(shown["definition"], serde_json::from_str::<Value>(TYPED).expect("JSON"));
        assert!(shown["tokens"].as_u64().is_some_and(|tokens| tokens > 20), "{shown}");
    }
    assert_eq!(place.lab.starts("a"), 1);
    let candidates = "error: `echo` may be any of 2\nsay which one:\n  one/a/echo\n  two/b/echo\n";
    let unknown = "error: there is no tool `typd`
did you mean one/a/typed?
`mcp-workbench list tools` shows all; --fresh asks the servers again
";
    place.check(&["call", "echo"], 2, "", candidates);
    place.check(&["show", "echo"], 2, "", candidates);
    place.check(&["call", "typd"], 2, "", unknown);
    let error = place.json(&["call", "echo"], 2);
    assert_eq!(error["error"]["kind"], "usage", "{error}");
    assert_eq!(place.json(&["show", "prompt-1"], 0)["definition"]["name"], "prompt-1");
    assert_eq!(place.json(&["show", "fake://resource/1"], 0)["definition"]["name"], "Resource 1");
}

#[test]
fn a_name_with_a_server_starts_no_other() {
    let place = two();
    place.check(&["call", "b/slow", "ms=0"], 0, "slow\n", "");
    assert_eq!((place.lab.starts("a"), place.lab.starts("b")), (0, 1));
    place.check(&["call", "two__b__slow", "ms=0"], 0, "slow\n", "");
    assert_eq!((place.lab.starts("a"), place.lab.starts("b")), (0, 2));
}

#[test]
fn calls_are_typed_and_shown() {
    let place = two();
    let file = place.lab.write("text.txt", "from a file\n");
    let from_file = format!("s=@{}", file.display());
    let sent = |args: &[&str]| -> Value {
        let finished = place.run(&[&["call", "typed"], args].concat());
        assert_eq!((finished.code, finished.stderr.as_str()), (Some(0), ""), "{args:?}");
        serde_json::from_str::<Value>(&finished.stdout).expect("what it was sent")["arguments"].clone()
    };
    for (args, expected) in [
        (&["n=7", "s=7", "b=true"][..], json!({"n": 7, "s": "7", "b": true})),
        (&["o.i=1", "l=[1, {}]"], json!({"o": {"i": 1}, "l": [1, {}]})),
        (&["--args", r#"{"n": 1}"#], json!({"n": 1})),
        (&[&from_file], json!({"s": "from a file\n"})),
        (&[], json!({})),
    ] {
        assert_eq!(sent(args), expected, "{args:?}");
    }
    let hint = "the `show` verb prints the tool's schema\n";
    for (args, stderr) in [
        (&["n=x"][..], format!("error: `n` must be a whole number\n{hint}")),
        (&["--args", r#"{"o": {"i": "x"}}"#], format!("error: `o.i` must be a whole number\n{hint}")),
        (&["m=1"], "error: the tool has no argument `m`\nit takes b, l, n, o, s\n".to_owned()),
        (&["n"], "error: `n` is not an argument\nwrite key=value, or --args with a JSON object\n".to_owned()),
        (
            &["--args", "[]"],
            "error: the arguments are not a JSON object\nwrite {\"key\": value}\n".to_owned(),
        ),
    ] {
        place.check(&[&["call", "typed"], args].concat(), 2, "", &stderr);
    }
}

#[test]
fn results_errors_and_questions() {
    let place = two();
    let raw = r#"{"content":[{"type":"text","text":"a"}],"x":12345678901234567890.10,"isError":true}"#;
    let json_argument = |text: &str| format!("--args={}", json!({"json": text}));
    place.check(&["call", "result", &json_argument(raw), "--json"], 5, &format!("{raw}\n"), "");
    place.check(
        &["call", "result", &json_argument(raw)],
        5,
        "a\n",
        "error: one/a/result reported an error\n",
    );
    let refusal = json_argument(r#"{"code":-32000,"message":"no"}"#);
    let refused = "error: one/a/error: no (code -32000)\nthe `show` verb prints what the tool takes\n";
    place.check(&["call", "error", &refusal], 5, "", refused);
    let image = r#"{"content":[{"type":"image","data":"aGVsbG8=","mimeType":"image/png"},{"type":"text","text":"t"}]}"#;
    let said = "[image image/png, 5 bytes, saved as result-1.png]\nt\n";
    place.check(&["call", "result", &json_argument(image)], 0, said, "");
    assert_eq!(std::fs::read(place.lab.dir.join("result-1.png")).expect("it was saved"), b"hello");
    let again = "[image image/png, 5 bytes, saved as result-2.png]\nt\n";
    place.check(&["call", "result", &json_argument(image)], 0, again, "");
    let question = r#"{"message":"Who?","requestedSchema":{"type":"object","properties":{}}}"#;
    let question = json!({"method": "elicitation/create", "params": question}).to_string();
    let finished = place.run(&["call", "ask", "--args", &question]);
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    assert!(finished.stdout.contains("decline"), "there is no terminal: {}", finished.stdout);
    place.check(&["call", "progress", "n=3"], 0, "progress\n", "");
}

#[test]
fn servers_that_fail() {
    let place = Place::workbench(dev(
        "dynamic",
        json!({"good": fake_with("--with echo", &[]), "wrong": {"command": "there-is-no-such-program-here"}}),
    ));
    let listed = place.run(&["list", "servers"]);
    assert_eq!(listed.code, Some(0));
    assert!(listed.stderr.starts_with("warning: dev/wrong: "), "{}", listed.stderr);
    for verb in [&["list"][..], &["list", "tools"], &["list", "resources"], &["search", "echo"], &["tokens"]]
    {
        let told = place.run(&[verb, &["--json"]].concat());
        assert_eq!(told.code, Some(0), "{verb:?}");
        let unasked =
            "warning: could not be asked: dev/wrong (command 'there-is-no-such-program-here' not found";
        assert!(told.stderr.starts_with(unasked), "{verb:?}: {}", told.stderr);
        assert!(serde_json::from_str::<Value>(&told.stdout).is_ok(), "{verb:?}: {}", told.stdout);
    }
    let servers = place.json(&["list", "servers"], 0);
    assert_eq!((&servers[0]["tools"], &servers[0]["error"]), (&json!(1), &Value::Null));
    assert_eq!(servers[1]["tools"], Value::Null);
    assert!(servers[1]["error"].as_str().is_some_and(|error| error.contains("there-is-no-such-program")));
    assert_eq!(place.json(&["call", "wrong/x"], 4)["error"]["kind"], "unreachable");
    let alone =
        Place::workbench(dev("dynamic", json!({"wrong": {"command": "there-is-no-such-program-here"}})));
    for verb in
        [&["list", "tools"][..], &["list"], &["search", "x"], &["tokens"], &["show", "x"], &["call", "x"]]
    {
        assert_eq!(alone.run(verb).code, Some(4), "{verb:?}");
    }
    for (name, text) in [("workbench-config.json", "{"), ("workbench-config.json", "{\"toolboxes\": 1}")] {
        alone.lab.write(name, text);
        assert_eq!(alone.json(&["list"], 2)["error"]["kind"], "configuration");
    }
}

/// What a server says on stderr may quote what it was started with.
#[cfg(unix)]
#[test]
fn arguments_that_are_secret_are_not_shown() {
    let script = |word: &str| format!("echo cannot use {word} >&2; exit 1");
    let places = [
        Place::workbench(dev(
            "dynamic",
            json!({"a": {"command": "sh", "args": ["-c", script("$2"), "x", "--api-key", "fixture-key"]},
                   "b": {"command": "sh", "args": ["-c", script("$1"), "x", "postgres://u:fixture-key@h/db"]}}),
        )),
        Place::toolman(&format!(
            "[[servers]]\nnamespace = \"a\"\ncommand = \"\"\"sh -c '{}' x --api-key=fixture-key\"\"\"\n",
            script("$1")
        )),
    ];
    for place in &places {
        for verb in [
            &["doctor"][..],
            &["doctor", "--json"],
            &["list", "--json"],
            &["list", "--fresh", "-vv"],
            &["call", "a/x"],
        ] {
            let finished = place.run(verb);
            assert_eq!(finished.code, Some(4), "{verb:?}");
            let all = format!("{}{}", finished.stdout, finished.stderr);
            assert!(all.contains("cannot use ") && !all.contains("fixture-key"), "{verb:?}: {all}");
        }
    }
}

#[test]
fn names_that_were_changed_are_listed() {
    let dotted = r#"{"name":"a.b","description":"Dotted","inputSchema":{"type":"object"}}"#;
    let place = Place::workbench(dev("dynamic", json!({"a": fake_with("--with echo", &["--tool", dotted])})));
    let registered = place.json(&["list", "tools"], 0)[1]["registered"].as_str().expect("text").to_owned();
    assert!(registered.starts_with("dev__a__a_b_"), "{registered}");
    let width = registered.len();
    let expected = format!(
        "TOOL        {:<width$}  DESCRIPTION\ndev/a/echo  {:<width$}  Does echo\ndev/a/a.b   {registered}  Dotted\n",
        "REGISTERED AS", ""
    );
    place.check(&["list", "tools"], 0, &expected, "");
    let plain = Place::workbench(dev("dynamic", json!({"a": fake_with("--with echo", &[])})));
    plain.check(&["list", "tools"], 0, "TOOL        DESCRIPTION\ndev/a/echo  Does echo\n", "");
}

#[test]
fn a_server_that_ends_during_a_call_is_unreachable() {
    let place = Place::workbench(dev("dynamic", json!({"a": fake_with("--with crash", &[])})));
    let finished = place.run(&["call", "crash", "code=3"]);
    assert_eq!(finished.code, Some(4), "{}", finished.stderr);
    assert!(finished.stderr.starts_with("error: dev/a/crash: "), "{}", finished.stderr);
}

#[test]
fn tokens_add_up() {
    let place = two();
    let tokens = place.json(&["tokens"], 0);
    let number = |value: &Value| value.as_i64().expect("a number");
    let sum =
        |rows: &Value| rows.as_array().expect("rows").iter().map(|row| number(&row["tokens"])).sum::<i64>();
    assert_eq!(tokens["servers"][0]["tools"], 6);
    assert_eq!(
        (sum(&tokens["servers"]), sum(&tokens["toolboxes"])),
        (number(&tokens["total"]), number(&tokens["total"]))
    );
    assert_eq!(number(&tokens["saving"]), number(&tokens["total"]) - number(&tokens["gateway"]));
    assert!(tokens["tokenizer"].as_str().is_some_and(|name| name.contains("estimate")), "{tokens}");
    let text = place.run(&["tokens"]).stdout;
    for part in [
        "TOOLBOX  SERVER  TOOLS  TOKENS  OPEN\n".to_owned(),
        format!("\nall definitions at once    {:>7}\n", number(&tokens["total"])),
        format!("\nthe gateway, nothing open  {:>7}\n", number(&tokens["gateway"])),
        format!("{:>7}  (", number(&tokens["saving"]).abs()),
    ] {
        assert!(text.contains(&part), "{part}: {text}");
    }
    assert_eq!(place.lab.starts("a"), 1);
}

/// What the client has then been given, counted in the same way.
#[test]
fn tokens_of_the_gateway_are_those_of_what_clients_see() {
    let place = two();
    let tokens = place.json(&["tokens"], 0);
    let config =
        std::fs::read_to_string(place.lab.dir.join("workbench-config.json")).expect("it was written");
    let seen = |toolbox: Option<&str>| {
        // Toolboxes without a description are introduced by what is remembered.
        let cache = place.lab.dir.join("xdg-cache");
        let mut gateway = Gateway::spawn_with(Lab::new(), &config, |command| {
            command.env("XDG_CACHE_HOME", cache);
        });
        let hello = gateway.initialize("2025-11-25").result();
        if let Some(toolbox) = toolbox {
            gateway.call("open_toolbox", json!({"toolbox_name": toolbox}));
        }
        let tools = gateway.request("tools/list", "{}").result()["tools"].clone();
        let tools = tools.as_array().expect("a list").iter();
        let instructions = hello["instructions"].as_str().expect("text");
        tools.map(|tool| of_definition(&tool.to_string())).sum::<usize>() + count(instructions)
    };
    assert_eq!(tokens["gateway"], seen(None));
    for (n, toolbox) in ["one", "two"].into_iter().enumerate() {
        assert_eq!(tokens["toolboxes"][n]["open"], seen(Some(toolbox)), "{toolbox}");
    }
    let flat = place.json(&["tokens", "--tool-mode", "flat"], 0);
    assert_eq!(flat["gateway"], flat["toolboxes"][0]["open"], "every tool is listed already");
    assert!(flat["gateway"].as_i64() > flat["total"].as_i64(), "{flat}");
}

#[test]
fn what_is_remembered_is_no_secret_and_may_be_broken() {
    let mut entry = fake_with("--with echo --count @dir/a", &["--instructions", "fixture-argument"]);
    entry["env"] = json!({"KEY": "fixture-value"});
    let place = Place::workbench(dev("dynamic", json!({"a": entry})));
    place.run(&["list", "tools"]);
    let store = place.lab.dir.join("xdg-cache/mcp-workbench/definitions");
    let files: Vec<_> =
        std::fs::read_dir(&store).expect("it was made").flatten().map(|file| file.path()).collect();
    let files: Vec<_> =
        files.into_iter().filter(|file| file.extension().is_some_and(|it| it == "json")).collect();
    assert_eq!(files.len(), 1, "{files:?}");
    let text = std::fs::read_to_string(&files[0]).expect("a file");
    assert!(text.contains("Does echo") && !text.contains("fixture-"), "{text}");
    std::fs::write(&files[0], "{\"tools\": [").expect("it is ours");
    assert_eq!(place.json(&["list", "tools"], 0)[0]["tool"], "echo");
    assert_eq!(place.lab.starts("a"), 2, "it was asked again");
}

#[test]
fn the_running_server_remembers_for_the_shell() {
    let config = dev("dynamic", json!({"a": fake_with("--with echo --count @dir/a", &[])}));
    let place = Place::workbench(config);
    let input = [
        json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": VERSION, "capabilities": {}}}),
        json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "open_toolbox", "arguments": {"toolbox_name": "dev"}}}),
    ];
    let script = place.lab.write("input", &input.map(|message| format!("{message}\n")).concat());
    let stdin = std::fs::File::open(script).expect("just written");
    let served = place.lab.command().stdin(stdin).output().expect("the program starts");
    assert!(served.status.success());
    assert_eq!(place.lab.starts("a"), 1);
    assert_eq!(place.json(&["list", "tools"], 0)[0]["registered"], "dev__a__echo");
    assert_eq!(place.lab.starts("a"), 1, "the shell started nothing");
}

#[test]
fn toolman_has_namespaces() {
    let config = server("files", "--with echo,result --resources 1", "") + &server("", "--with slow", "");
    let place = Place::toolman(&config);
    assert_eq!(
        place.json(&["list", "servers"], 0),
        json!([{"namespace": "files", "transport": "stdio", "tools": 2, "error": null, "login": null},
               {"namespace": "", "transport": "stdio", "tools": 1, "error": null, "login": null}])
    );
    assert_eq!(
        place.json(&["list", "tools"], 0)[0],
        json!({"namespace": "files", "tool": "echo", "registered": "files_echo", "description": "Does echo"})
    );
    assert_eq!(place.json(&["list", "toolboxes"], 0)[0]["namespace"], "files");
    for name in ["files/echo", "files_echo", "echo"] {
        assert_eq!(place.json(&["show", name], 0)["registered"], "files_echo", "{name}");
    }
    place.check(&["call", "slow", "ms=0"], 0, "slow\n", "");
    let tokens = place.json(&["tokens"], 0);
    assert_eq!(tokens["servers"][1]["namespace"], "");
    assert!(tokens["gateway"].as_i64().is_some_and(|gateway| gateway > 100), "{tokens}");
    let open = |n: usize| tokens["toolboxes"][n]["open"].as_i64().expect("a number");
    assert!(tokens["gateway"].as_i64() < Some(open(1)) && open(1) < open(0), "{tokens}");
}

#[test]
fn an_official_server() {
    let place = Place::workbench(dev(
        "proxy",
        json!({"everything": npm::entry("everything", &["stdio", "@marker"])}),
    ));
    place.check(&["call", "get-sum", "a=2", "b=3"], 0, "The sum of 2 and 3 is 5.\n", "");
    place.check(&["call", "dev/everything/echo", "message=7"], 0, "Echo: 7\n", "");
    let misfit = "error: `a` must be a number\nthe `show` verb prints the tool's schema\n";
    place.check(&["call", "get-sum", "a=two", "b=3"], 2, "", misfit);
    let image = place.run(&["call", "get-tiny-image"]);
    assert_eq!(image.code, Some(0), "{}", image.stderr);
    assert!(image.stdout.contains("saved as get-tiny-image-1.png]"), "{}", image.stdout);
    assert!(place.lab.dir.join("get-tiny-image-1.png").exists());
    let tokens = place.json(&["tokens"], 0);
    assert!(tokens["saving"].as_i64().is_some_and(|saving| saving > 0), "{tokens}");
}

/// The expected numbers are what o200k_base counts for the versions that the lock file names.
#[test]
fn tokens_of_official_servers() {
    let files = npm::entry("filesystem", &["@dir", "@marker"]);
    let place = Place::workbench(dev(
        "dynamic",
        json!({"files": files, "memory": npm::entry("memory", &["@marker"])}),
    ));
    let tokens = place.json(&["tokens"], 0);
    let off = |counted: &Value, real: f64| (counted.as_f64().expect("a number") / real - 1.0).abs();
    for (n, real) in [1664.0, 900.0].into_iter().enumerate() {
        assert!(off(&tokens["servers"][n]["tokens"], real) <= 0.1, "{tokens}");
    }
    assert!(off(&tokens["total"], 1664.0 + 900.0) <= 0.05, "{tokens}");
}

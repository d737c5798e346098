//! Definitions that do not fit MCP's own schema: one odd item never takes the rest away.

#![allow(clippy::disallowed_methods, reason = "tests start the programs they need")]

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::client::{Client, Era};
use crate::harness::{Gateway, Lab, dev, fake_path, fake_with, server, toolman_path};
use crate::npm;

/// One odd definition.
#[derive(Deserialize)]
struct Odd {
    kind: String,
    /// Raw, since it may hold half a character.
    item: Box<RawValue>,
    mended: Vec<String>,
    /// `null` where it is withheld.
    shown: Value,
}

fn table() -> Vec<Odd> {
    serde_json::from_str(include_str!("../sdks/odd.json")).expect("JSON")
}

/// Flags of a server that has all of them, between good things.
fn flags(table: &[Odd]) -> Vec<&str> {
    let odd = table.iter().flat_map(|odd| {
        let flag = match odd.kind.as_str() {
            "resourceTemplate" => "--template",
            "resource" => "--resource",
            "prompt" => "--prompt",
            _ => "--tool",
        };
        [flag, odd.item.get()]
    });
    let good = ["--resources", "1", "--templates", "1", "--prompts", "1"];
    ["--with", "crash"].into_iter().chain(odd).chain(good).collect()
}

/// What of a kind is shown of the table, as it was mended.
fn shown<'t>(table: &'t [Odd], kind: &str) -> Vec<(&'t Odd, Value)> {
    let of_kind = table.iter().filter(|odd| odd.kind == kind && !odd.shown.is_null());
    let mended = of_kind.map(|odd| {
        let mut shown = odd.shown.clone();
        let meta = shown.as_object_mut().expect("an object").entry("_meta").or_insert(json!({}));
        meta["mcp-workbench/mended"] = json!(odd.mended);
        (odd, shown)
    });
    mended.collect()
}

#[test]
fn odd_definitions_are_shown_mended_and_said_to_be() {
    let table = table();
    for mode in ["dynamic", "proxy"] {
        let mut gateway = Gateway::start(dev(mode, json!({"a": fake_with("", &flags(&table))})));
        let opened = gateway.open("dev");
        let tools = match mode {
            "proxy" => opened["tools"].clone(),
            _ => gateway.request("tools/list", "{}").result()["tools"].clone(),
        };
        for (_, mut expected) in shown(&table, "tool") {
            let name = expected["name"].as_str().expect("a name").to_owned();
            let listed = if mode == "proxy" { name.clone() } else { format!("dev__a__{name}") };
            let mut of = tools.as_array().expect("a list").iter();
            let mut tool =
                of.find(|tool| tool["name"] == *listed).unwrap_or_else(|| panic!("no {name}")).clone();
            let own = tool.as_object_mut().expect("an object");
            for ours in ["name", "toolbox_name", "source_server"] {
                own.remove(ours);
            }
            expected.as_object_mut().expect("an object").remove("name");
            if mode == "dynamic" {
                let description = expected["description"]
                    .as_str()
                    .map_or("[dev/a]".to_owned(), |own| format!("[dev/a] {own}"));
                expected["description"] = description.into();
                expected["_meta"]["mcp-workbench/origin"] =
                    json!({"toolbox": "dev", "server": "a", "tool": name});
            }
            assert_eq!(tool, expected, "{mode}");
        }
        let rest = [
            ("resource", "resources/list", "uri"),
            ("resourceTemplate", "resources/templates/list", "uriTemplate"),
            ("prompt", "prompts/list", "name"),
        ];
        for (kind, method, key) in rest {
            let list = gateway.request(method, "{}").result()[format!("{kind}s")].clone();
            let expected: Vec<_> = shown(&table, kind)
                .into_iter()
                .map(|(_, mut expected)| {
                    let prefix = if kind == "prompt" { "dev__a__" } else { "workbench://dev/a/" };
                    expected[key] = format!("{prefix}{}", expected[key].as_str().expect("a text")).into();
                    expected
                })
                .collect();
            let list = list.as_array().expect("a list");
            assert_eq!(list.len(), expected.len() + 1, "{list:?}");
            assert_eq!(list[..expected.len()], expected, "{mode}");
        }
    }
}

#[test]
fn each_oddity_is_logged_once() {
    let table = table();
    let mut gateway = Gateway::start(dev("proxy", json!({"a": fake_with("", &flags(&table))})));
    gateway.open("dev");
    gateway.use_tool("a", "crash", "{}");
    assert_eq!(gateway.open("dev")["servers_connected"], 1, "it has started again");
    let stderr = gateway.stderr();
    let of = |text: &str| stderr.lines().filter(|line| line.contains(text)).count();
    let mended = table.iter().filter(|odd| !odd.shown.is_null()).count();
    assert_eq!(of("is shown corrected"), mended, "{stderr}");
    assert_eq!(of("tool t1 is shown corrected, since MCP does not allow its title"), 1, "{stderr}");
    assert_eq!(of("2 of its tools have no name and cannot be shown"), 1, "{stderr}");
    assert_eq!(of("1 of its resources has no name and cannot be shown"), 1, "{stderr}");
}

#[test]
fn doctor_shows_oddities() {
    let (lab, table) = (Lab::new(), table());
    lab.write(
        "workbench-config.json",
        &lab.fill(&dev("dynamic", json!({"a": fake_with("", &flags(&table))})).to_string()),
    );
    let told: Value =
        serde_json::from_str(&lab.run(lab.command().args(["doctor", "--json"])).stdout).expect("JSON");
    let server = &told["servers"][0];
    let mended = server["mended"].as_array().expect("a list");
    assert_eq!(mended.len(), table.iter().filter(|odd| !odd.shown.is_null()).count());
    assert_eq!(mended[0], json!({"kind": "tool", "name": "t1", "members": ["title"]}));
    assert_eq!((&server["ok"], &server["nameless"]), (&json!(true), &json!(4)));
    assert_eq!(server["withheld"], json!([]), "there is no lock");
    let text = lab.run(lab.command().arg("doctor")).stdout;
    for line in [
        "the tool t1 is shown corrected, since MCP does not allow its title",
        "2 tools have no name and cannot be shown",
    ] {
        assert!(text.contains(line), "{text}");
    }
}

/// The clients of the official SDKs for TypeScript refuse the list of that server, and take it through the gateway. All
/// SDKs, and each definition for itself: `node tests/sdks/run.mjs`.
#[test]
fn official_sdks_refuse_nothing() {
    let (lab, table) = (Lab::new(), table());
    npm::install("tests/sdks");
    let flags = flags(&table);
    let words = std::iter::once(lab.fill("@fake")).chain(flags.iter().map(|word| (*word).to_owned()));
    let words: Vec<String> = words.chain(["--marker".to_owned(), lab.fill("@marker")]).collect();
    let quoted: Vec<_> = words.iter().map(|word| format!("'{}'", word.replace('\'', "'\\''"))).collect();
    let server =
        format!("[[servers]]\nnamespace = \"\"\nshell = false\ncommand = {}\n", json!(quoted.join(" ")));
    let file = lab.write("tools.toml", &format!("active_toolsets = [\"*\"]\nstartup_wait = 20\n{server}"));
    let toolman =
        [toolman_path(), "--config".into(), file].map(|word: PathBuf| word.to_string_lossy().into_owned());
    assert_eq!(words[0], fake_path().to_string_lossy());
    let count = |kind: &str| shown(&table, kind).len() + 1;
    let expected = json!({"tools": count("tool") + 1, "resources": count("resource"),
        "resourceTemplates": count("resourceTemplate"), "prompts": count("prompt")});
    for major in ["1", "2"] {
        let [without, through] = listed(&lab, major, [&words, &toolman[..]]);
        assert!(without["refused"].is_string(), "the SDK {major} would take it anyway: {without}");
        assert_eq!(through, expected, "the SDK {major}");
    }
}

/// What the SDK for TypeScript of this major version finds at two servers.
fn listed(lab: &Lab, major: &str, servers: [&[String]; 2]) -> [Value; 2] {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/sdks/list.mjs");
    let mut command = Command::new("node");
    command.args([script, major]).current_dir(&lab.dir).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("the tests need Node");
    let mut stdin = child.stdin.take().expect("it is a pipe");
    stdin.write_all(json!(servers).to_string().as_bytes()).expect("it reads");
    drop(stdin);
    let output = child.wait_with_output().expect("it ends");
    let mut lines = str::from_utf8(&output.stdout).expect("UTF-8").lines();
    [(); 2].map(|()| serde_json::from_str(lines.next().expect("a line for each")).expect("JSON"))
}

/// A modern server may promise results that are no objects, which legacy clients reject together with the whole list.
fn promises() -> [String; 2] {
    [("any", json!({"type": "array"})), ("object", json!({"type": "object"}))].map(|(name, promised)| {
        let schema = json!({"type": "object"});
        json!({"name": name, "description": "Computes numbers", "inputSchema": schema, "outputSchema": promised})
            .to_string()
    })
}

/// The names of the tools in a text that promise results.
fn promising(answer: &Value) -> Vec<&str> {
    let tools = answer["tools"].as_array().expect("a list").iter();
    let promising = tools.filter(|tool| !tool["outputSchema"].is_null());
    promising
        .map(|tool| tool["name"].as_str().expect("a name").rsplit('_').next().expect("it ends"))
        .collect()
}

#[test]
fn answers_promise_legacy_clients_nothing_but_objects() {
    let [any, object] = promises();
    let mut config =
        dev("proxy", json!({"a": fake_with("--era modern", &["--tool", &any, "--tool", &object])}));
    config["search"] = json!(true);
    let address = |tool: &str| json!({"toolbox": "dev", "server": "a", "tool": tool});
    for (era, expected) in [(Era::Legacy, &["object"][..]), (Era::Modern, &["any", "object"])] {
        let mut client = Client::pipe(era, Gateway::spawn(&config), "{}");
        let opened = client.call("open_toolbox", r#"{"toolbox_name":"dev"}"#).json();
        assert_eq!(promising(&opened), expected, "{era:?}: opening");
        let wanted = json!({"tools": [address("any"), address("object")]});
        let described = client.call("describe_tools", wanted).json();
        assert_eq!(promising(&described), expected, "{era:?}: describing");
        let mut found = client.call("find_tools", r#"{"query":"compute numbers"}"#).json();
        found["tools"].as_array_mut().expect("a list").sort_by_key(|tool| tool["name"].to_string());
        assert_eq!(promising(&found), expected, "{era:?}: finding");
    }
    let flags = format!("--era modern --tool '{any}' --tool '{object}'");
    let config = format!("search = true\n{}", server("a", &flags, ""));
    for (era, expected) in [(Era::Legacy, &["object"][..]), (Era::Modern, &["any", "object"])] {
        let gateway = Gateway::spawn_toolman(Lab::new(), &config, |_| ());
        // A client that keeps its list gets definitions in the answer.
        let mut client = match era {
            Era::Legacy => Client::named(gateway, "codex-mcp-client"),
            Era::Modern => Client::pipe(era, gateway, "{}"),
        };
        client.tools();
        let lists = json!({"tools_on": ["a_*"], "tools_off": [], "resources_on": [], "resources_off": []});
        let activated = client.call("toolman_activate", lists).json();
        assert_eq!(promising(&activated["result"]), expected, "{era:?}: activating");
        let mut found =
            client.call("toolman_find", r#"{"query":"compute numbers"}"#).json()["result"].clone();
        found["tools"].as_array_mut().expect("a list").sort_by_key(|tool| tool["name"].to_string());
        assert_eq!(promising(&found), expected, "{era:?}: finding");
    }
}

#[test]
fn what_is_remembered_promises_legacy_clients_nothing_but_objects() {
    let [any, object] = promises();
    let flags = format!("--era modern --wait-for @dir/go --tool '{any}' --tool '{object}'");
    let config = format!("active_toolsets = [\"*\"]\nstartup_wait = 600\n{}", server("a", &flags, ""));
    for (era, expected) in [(Era::Legacy, &["object"][..]), (Era::Modern, &["any", "object"])] {
        let lab = Lab::new();
        lab.write("tools.toml", &lab.fill(&config));
        let go = lab.write("go", "");
        let listed = lab.run(lab.program(&toolman_path()).args(["list", "tools"]));
        assert_eq!(listed.code, Some(0), "{}", listed.stderr);
        std::fs::remove_file(go).expect("it was written");
        let mut client = Client::pipe(era, Gateway::spawn_toolman(lab, &config, |_| ()), "{}");
        let list = client.request("tools/list", "{}").result();
        assert_eq!(promising(&list), expected, "{era:?}: while it starts");
        client.gateway().lab.write("go", "");
        client.call("a_object", "{}").text();
        assert_eq!(
            promising(&client.request("tools/list", "{}").result()),
            expected,
            "{era:?}: when it is up"
        );
    }
}

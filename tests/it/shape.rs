//! The shape of the file: one toolbox for each server, and the verbs that move, describe, rename, switch and remove.

use serde_json::{Value, json};

use crate::clients::{Home, text};
use crate::harness::{Gateway, Lab, VERSION, fake};
use crate::pty::{ALL, Terminal};

const CONFIG: &str = r#"{
  // all of it
  "toolboxes": {
    "notes": {
      "mcpServers": {
        // remembers
        "memory": { "command": "memory", /* none */ "args": [] }, // since May
        "files": { "command": "files" }
      }
    },
    "ops": {
      "description": "Operations",
      "mcpServers": {
        "memory": { "command": "other" },
      },
    },
    "web": { "mcpServers": { "fetch": { "command": "fetch", "disabled": true } } }
  },
  "auth": { "tokens": [
    { "name": "ann", "token": "fixture-token-a", "toolboxes": ["ops"] }, // ann's
    { "name": "bob", "token": "fixture-token-b", "toolboxes": ["notes"] }
  ] }
}
"#;

fn with(config: &str) -> Home {
    let home = Home::new();
    home.write(&home.config(), config.as_bytes());
    home
}

/// Runs a verb on the configuration, and answers its JSON, what it says and the file afterwards.
fn changed(args: &[&str]) -> (Value, String, String) {
    let home = with(CONFIG);
    let finished = home.run(&[args, &["--yes"]].concat());
    assert_eq!(finished.code, Some(0), "{args:?}: {}", finished.stderr);
    let after = text(&home.config());
    let home = with(CONFIG);
    let answer = home.json(&[args, &["--yes"]].concat());
    assert_eq!(text(&home.config()), after, "{args:?}");
    assert_eq!(home.run(&["check"]).code, Some(0), "{args:?}");
    (answer, finished.stderr, after)
}

/// Runs a verb that must change nothing, and answers what it says.
fn refused(args: &[&str]) -> String {
    let home = with(CONFIG);
    let finished = home.run(&[args, &["--yes"]].concat());
    assert_eq!(finished.code, Some(2), "{args:?}: {}", finished.stderr);
    assert_eq!(text(&home.config()), CONFIG, "{args:?}");
    finished.stderr
}

#[test]
fn move_keeps_the_text_and_the_comments_of_an_entry() {
    let (answer, said, after) = changed(&["move", "notes/memory", "fetch", "--to", "new"]);
    let entry = "        // remembers
        \"memory\": { \"command\": \"memory\", /* none */ \"args\": [] }, // since May
        \"fetch\": { \"command\": \"fetch\", \"disabled\": true }
";
    assert!(after.contains(entry), "{after}");
    assert_eq!(
        answer["moved"],
        json!([{"server": "memory", "from": "notes"}, {"server": "fetch", "from": "web"}])
    );
    assert_eq!(answer["removedToolboxes"], json!(["web"]));
    for line in [
        "Moves memory from toolbox `notes` to `new`\n",
        "Moves fetch from toolbox `web` to `new`\n",
        "Removes toolbox `web`, which has no other server\n",
    ] {
        assert!(said.contains(line), "{said}");
    }
}

#[test]
fn describe_rename_enable_disable_and_remove() {
    let before = CONFIG.to_owned();
    for (args, old, new, member, value) in [
        (
            &["describe", "ops", "The ${COST} of ops"][..],
            "\"Operations\"",
            "\"The $${COST} of ops\"",
            "description",
            json!("The ${COST} of ops"),
        ),
        (
            &["describe", "notes", "Notes"],
            "    \"notes\": {\n",
            "    \"notes\": {\n      \"description\": \"Notes\",\n",
            "toolbox",
            json!("notes"),
        ),
        (
            &["disable", "files"],
            "{ \"command\": \"files\" }",
            "{\n          \"command\": \"files\",\n          \"disabled\": true\n        }",
            "disabled",
            json!(true),
        ),
        (&["enable", "fetch"], "\"fetch\", \"disabled\": true }", "\"fetch\" }", "disabled", json!(false)),
        (
            &["enable", "web/fetch"],
            "\"fetch\", \"disabled\": true }",
            "\"fetch\" }",
            "server",
            json!("fetch"),
        ),
        (
            &["remove", "files"],
            ", // since May\n        \"files\": { \"command\": \"files\" }\n",
            " // since May\n",
            "removedToolboxes",
            json!([]),
        ),
    ] {
        let (answer, _, after) = changed(args);
        assert_eq!(after, before.replacen(old, new, 1), "{args:?}");
        assert_eq!(answer[member], value, "{args:?}: {answer}");
    }
    let (answer, said, after) = changed(&["rename", "ops", "operations"]);
    let renamed =
        before.replacen("\"ops\": {", "\"operations\": {", 1).replacen("\"ops\"]", "\"operations\"]", 1);
    assert_eq!(after, renamed);
    assert_eq!((&answer["renamedFrom"], &answer["tokens"]), (&json!("ops"), &json!(["ann"])));
    assert!(
        said.contains("Renames toolbox `ops` to `operations`\nRenames it in the tokens `ann` as well\n"),
        "{said}"
    );
    // What is so already is left alone.
    for args in [
        &["enable", "files"][..],
        &["disable", "fetch"],
        &["rename", "ops", "ops"],
        &["move", "files", "--to", "notes"],
    ] {
        let home = with(CONFIG);
        let finished = home.run(args);
        assert_eq!(
            (finished.code, finished.stderr.as_str()),
            (Some(0), "There is nothing to change.\n"),
            "{args:?}"
        );
        assert_eq!(text(&home.config()), CONFIG, "{args:?}");
    }
}

#[test]
fn a_server_that_needs_a_variable_which_is_not_set_is_not_enabled() {
    let config = r#"{
  "toolboxes": {
    "web": {
      "mcpServers": {
        "one": { "command": "one", "args": ["${NOWHERE_SET}"] },
        "two": { "command": "two", "args": ["${NOWHERE_SET}"], "disabled": true }
      }
    }
  }
}
"#;
    let home = with(config);
    let finished = home.run(&["enable", "two", "--yes"]);
    assert_eq!(finished.code, Some(2), "{finished:?}");
    for part in ["web.mcpServers.two.args[0]", "NOWHERE_SET", "would not be valid after this change"] {
        assert!(finished.stderr.contains(part), "{part}: {finished:?}");
    }
    assert!(!finished.stderr.contains("mcpServers.one"), "{finished:?}");
    assert_eq!(text(&home.config()), config);
    // What the file lacked before is no reason to refuse another change.
    assert_eq!(home.run(&["describe", "web", "Pages", "--yes"]).code, Some(0));
    // A file in which such servers are left out may have any number of them.
    let home = with(&config.replacen("{\n", "{\n  \"onMissingVariable\": \"skip\",\n", 1));
    assert_eq!(home.run(&["enable", "two", "--yes"]).code, Some(0));
}

#[test]
fn a_change_that_check_would_refuse_is_not_written() {
    for (args, parts) in [
        // Tokens name these toolboxes.
        (
            &["remove", "ops/memory"][..],
            &["`ops` is not configured in this file", "would not be valid after this change"][..],
        ),
        (&["move", "ops/memory", "--to", "web"], &["`ops` is not configured in this file"]),
        (&["rename", "ops", "a__b"], &["a toolbox name may not contain `__`"]),
        (&["move", "files", "--to", " "], &["a name may not be blank"]),
        (&["rename", "ops", "web"], &["a toolbox `web` already exists"]),
        (&["rename", "opps", "x"], &["there is no toolbox `opps`", "did you mean `ops`?"]),
        (&["describe", "x", "y"], &["there is no toolbox `x`", "`notes`, `ops` and `web`"]),
        (&["enable", "memory"], &["several servers are called `memory`", "`notes/memory` or `ops/memory`"]),
        (&["move", "memory", "--to", "web"], &["`notes/memory` or `ops/memory`"]),
        (
            &["move", "notes/memory", "--to", "ops"],
            &["the toolbox `ops` would have two servers called `memory`"],
        ),
        (&["move", "notes/memory", "ops/memory", "--to", "x"], &["would have two servers called `memory`"]),
        (&["disable", "flies"], &["there is no server `flies`", "did you mean `files`?"]),
        (&["add", "files", "--", "x"], &["a server `files` already exists in toolbox `notes`"]),
    ] {
        let said = refused(args);
        for part in parts {
            assert!(said.contains(part), "{args:?}: {said}");
        }
    }
}

#[test]
fn a_toolbox_goes_with_its_last_server() {
    let home =
        with(r#"{"toolboxes": {"a": {"mcpServers": {"x": {"command": "x"}}}, "b": {"mcpServers": {}}}}"#);
    let finished = home.run(&["remove", "x", "--yes"]);
    let said = "Removes x from toolbox `a`\nRemoves toolbox `a`, which has no other server\n";
    assert!(finished.stderr.contains(said), "{}", finished.stderr);
    assert_eq!(text(&home.config()), r#"{"toolboxes": { "b": {"mcpServers": {}}}}"#);
}

#[test]
fn toolman_enables_and_disables() {
    let home = Home::new();
    let file = home.path("project/tools.toml");
    let before = "# mine\n[[servers]]\nnamespace = \"a\" # first\ncommand = \"a\"\n\n[[servers]]\nnamespace = \"b\"\ncommand = \"b\"\n";
    home.write(&file, before.as_bytes());
    assert_eq!(home.run_with("toolman", &["disable", "a", "--yes"]).code, Some(0));
    assert_eq!(text(&file), before.replacen("\"a\"\n\n", "\"a\"\ndisabled = true\n\n", 1));
    assert_eq!(home.run_with("toolman", &["enable", "a", "--yes"]).code, Some(0));
    assert_eq!(text(&file), before);
    for args in [&["move", "a", "--to", "b"][..], &["describe", "a", "b"], &["rename", "a", "b"]] {
        let finished = home.run_with("toolman", args);
        assert_eq!(finished.code, Some(2), "{args:?}");
        assert!(finished.stderr.contains("tools.toml has no toolboxes"), "{}", finished.stderr);
    }
    let help = home.run_with("toolman", &["--help"]).stdout;
    assert!(help.contains("\n  enable ") && !help.contains("\n  move "), "{help}");
}

/// Each server gets a toolbox that is named after it; a name that is taken gets a number.
#[test]
fn every_server_has_a_toolbox_of_its_own() {
    let home = Home::new();
    home.put(
        "cursor",
        br#"{"mcpServers": {"github": {"command": "one"}, "my__files": {"command": "files"}}}"#,
    );
    home.put(
        "windsurf",
        br#"{"mcpServers": {"github": {"command": "two"}, "my_files": {"command": "more"}}}"#,
    );
    home.put("goose", b"extensions:\n  web:\n    type: stdio\n    cmd: fetch\n    args: []\n    enabled: true\n    description: Reads ${PAGES}\n");
    home.json(&["init", "--yes"]);
    let server = |name: &str, command: &str| json!({"mcpServers": {name: {"command": command}}});
    let mut web = server("web", "fetch");
    web["description"] = json!("Reads $${PAGES}");
    assert_eq!(
        home.config_value()["toolboxes"],
        json!({
            "github": server("github", "one"), "my_files": server("my__files", "files"),
            "github-2": server("github-2", "two"), "my_files-2": server("my_files-2", "more"), "web": web,
        })
    );
    assert_eq!(home.json(&["init", "--yes"])["changed"], json!(false));
    // So it is with `add`; a toolbox of that name may have other servers.
    for (args, toolbox) in [
        (&["a__b", "--description", "What ${A} is", "--", "x"][..], "a_b"),
        (&["a_b", "--", "y"], "a_b-2"),
        (&["in", "--toolbox", "web", "--", "x"], "web"),
    ] {
        let finished = home.run(&[&["add", "--yes", "--json"], args].concat());
        let answer: Value = serde_json::from_str(&finished.stdout).expect("one JSON value");
        assert_eq!(answer["toolbox"], toolbox, "{answer}");
    }
    let toolboxes = &home.config_value()["toolboxes"];
    assert_eq!(toolboxes["a_b"]["description"], "What $${A} is");
    assert_eq!(toolboxes["web"]["mcpServers"]["in"], json!({"command": "x"}));
    // One toolbox for all, if that is wanted.
    let home = Home::new();
    home.put("cursor", br#"{"mcpServers": {"a": {"command": "one"}, "b": {"command": "two"}}}"#);
    home.json(&["init", "--toolbox", "all", "--yes"]);
    let all = json!({"all": {"mcpServers": {"a": {"command": "one"}, "b": {"command": "two"}}}});
    assert_eq!(home.config_value()["toolboxes"], all);
}

/// What a new file begins with, whoever creates it.
#[test]
fn a_new_file_begins_with_settings_and_why_they_are_set() {
    for (program, file, secret, head) in [
        (
            "mcp-workbench",
            "xdg-config/mcp-workbench/workbench-config.json",
            false,
            "  // A server whose variables are not set does not start; all others do.
  \"onMissingVariable\": \"skip\",
  // A result that is too long for the client is kept, and the model reads it in parts.
  \"offloadOver\": \"auto\",
  // Calls are noted in a journal, without their arguments; `log` shows them.
  \"journal\": true,
  \"toolboxes\": {
",
        ),
        (
            "mcp-workbench",
            "xdg-config/mcp-workbench/workbench-config.json",
            true,
            "  // The values of variables, kept out of this file.
  \"envFile\": \"secrets.env\",
  // A result",
        ),
        (
            "toolman",
            "xdg-config/toolman/tools.toml",
            true,
            "# A server whose variables are not set does not start; all others do.
on_missing_variable = \"skip\"
# The values of variables, kept out of this file.
env_file = \"secrets.env\"
# A result that is too long for the client is kept, and the model reads it in parts.
offload_over = \"auto\"
# Calls are noted in a journal, without their arguments; `log` shows them.
journal = true
active_toolsets = []
",
        ),
    ] {
        let env = if secret { r#"{"API_KEY": "fixture-edited"}"# } else { "{}" };
        let servers = format!(r#"{{"mcpServers": {{"a": {{"command": "x", "env": {env}}}}}}}"#);
        for args in [
            &["init", "--user", "--yes"][..],
            &["import", "cursor", "--yes"],
            &["add", "a", "--env", if secret { "API_KEY=fixture-edited" } else { "A=b" }, "--yes", "--", "x"],
        ] {
            let home = Home::new();
            home.put("cursor", servers.as_bytes());
            let finished = home.run_with(program, args);
            assert_eq!(finished.code, Some(0), "{args:?}: {}", finished.stderr);
            let text = text(&home.path(file));
            assert!(text.contains(head) && !text.contains("oolMode"), "{args:?}: {text}");
            assert_eq!(home.run_with(program, &["check"]).code, Some(0), "{args:?}");
        }
    }
}

/// A toolbox without a description is introduced by its tools once they are known, before that by its servers.
#[test]
fn introductions() {
    let mut memory = fake("--with echo,raw,crash");
    memory["toolFilters"] = json!(["echo", "raw"]);
    let config = |limit: usize| {
        json!({"instructionsLimit": limit, "toolboxes": {
            "notes": {"mcpServers": {"memory": memory}},
            "told": {"description": "What it is for", "mcpServers": {"other": fake("--with echo")}},
            "two": {"mcpServers": {"a": fake("--with echo,slow"), "b": fake("--with never")}},
        }})
    };
    let start = |lab: Lab, limit: usize| {
        let mut gateway = Gateway::spawn_with(lab, config(limit), |_| ());
        let instructions = gateway.initialize(VERSION).result()["instructions"].clone();
        (gateway, instructions.as_str().expect("text").to_owned())
    };
    let offered = |gateway: &mut Gateway| {
        let tools = gateway.request("tools/list", "{}").result();
        tools["tools"][0]["description"].as_str().expect("text").to_owned()
    };
    let told = "\n- told (1 server): What it is for\n";
    let unknown = "\n- two (2 servers): a, b\n";
    let (mut gateway, instructions) = start(Lab::new(), 0);
    for text in [instructions, offered(&mut gateway)] {
        for row in ["\n- notes (1 server): memory\n", told, unknown] {
            assert!(text.contains(row), "{text}");
        }
    }
    let opened = gateway.open("notes");
    assert_eq!(opened["description"], "", "{opened}");
    gateway.open("told");
    let now = offered(&mut gateway);
    assert!(now.contains("\n- notes (1 server, 2 tools): echo, raw\n") && now.contains(told), "{now}");
    let (mut gateway, instructions) = start(gateway.finish(), 0);
    for text in [instructions, offered(&mut gateway)] {
        for row in ["\n- notes (1 server, 2 tools): echo, raw\n", told, unknown] {
            assert!(text.contains(row), "{text}");
        }
    }
    gateway.open("two");
    let (gateway, instructions) = start(gateway.finish(), 0);
    assert!(instructions.contains("\n- two (2 servers, 3 tools): echo, slow, never\n"), "{instructions}");
    let whole = instructions.len();
    let (_, instructions) = start(gateway.finish(), whole - 1);
    assert!(instructions.contains("\n- two (2 servers, 3 tools): echo, slow, …\n"), "{instructions}");
    assert!(instructions.len() < whole, "{instructions}");
}

/// `init` offers to start the servers where somebody can be asked.
#[test]
fn init_offers_to_start_every_server_once() {
    let home = || {
        let home = Home::new();
        let servers = json!({"mcpServers": {"a-well": fake("--with echo"), "ill": fake("--exit 3")}});
        home.put("cursor", home.lab.fill(&servers.to_string()).as_bytes());
        home
    };
    let remembered = |home: &Home| home.json(&["list", "servers"]).to_string();
    for args in [&["init", "--yes"][..], &["init", "--yes", "--no-start"]] {
        let finished = home().run(args);
        assert_eq!((finished.code, finished.stdout.as_str()), (Some(0), ""), "{args:?}");
    }
    let started = home();
    let answer = started.json(&["init", "--yes", "--start"]);
    let servers = answer["servers"].as_array().expect("a list");
    assert_eq!(servers.len(), 2, "{answer}");
    assert_eq!(
        (&servers[0]["server"], &servers[0]["ok"], &servers[0]["tools"]),
        (&json!("a-well"), &json!(true), &json!(1))
    );
    assert_eq!((&servers[1]["server"], &servers[1]["ok"]), (&json!("ill"), &json!(false)));
    assert!(remembered(&started).contains("well"));
    assert_eq!(home().run(&["init", "--start", "--no-start"]).code, Some(2));
    assert_eq!(home().json(&["init", "--start", "--dry-run"]).get("servers"), None);
    for (answer, starts) in [("y\n", true), ("n\n", false)] {
        let home = home();
        let mut terminal = Terminal::start(home.command("mcp-workbench", &["init"]), ALL);
        terminal.wait_for("workbench-config.json? [y/N").press("y\n");
        terminal.wait_for("Start every server once").wait_for("[y/N] ").press(answer);
        let ended = terminal.end();
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert_eq!(ended.shown.contains("1 of 2 servers cannot be used"), starts, "{ended:?}");
        assert!(ended.shown.contains("connect cursor"), "{ended:?}");
    }
}

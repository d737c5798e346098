//! Verbs that change files: what they say, what they write, and what they refuse.

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

use serde_json::{Value, json};

use crate::clients::{Home, read, text};

/// Status, stdout and stderr, with `HOME` for the test's own directory and `PROGRAM` for the executable.
fn said(home: &Home, program: &str, args: &[&str]) -> (i32, String, String) {
    let finished = home.run_with(program, args);
    let directory = home.path("").display().to_string();
    let directory = directory.trim_end_matches('/');
    let command = home.command(program, &[]);
    let executable = std::path::Path::new(command.get_program()).display().to_string();
    let plain = |text: String| text.replace(&executable, "PROGRAM").replace(directory, "HOME");
    (finished.code.unwrap_or(-1), plain(finished.stdout), plain(finished.stderr))
}

#[track_caller]
fn check(home: &Home, args: &[&str], status: i32, stdout: &str, stderr: &str) {
    assert_eq!(said(home, "mcp-workbench", args), (status, stdout.to_owned(), stderr.to_owned()), "{args:?}");
}

const CONFIG: &str = "{
  // mine
  \"toolboxes\": {
    \"dev\": {
      \"mcpServers\": {
        \"one\": { \"command\": \"one\" } // first
      }
    }
  }
}
";

fn with_config(text: &str) -> Home {
    let home = Home::new();
    home.write(&home.config(), text.as_bytes());
    home
}

#[test]
fn add_shows_asks_and_keeps_comments() {
    let home = with_config(CONFIG);
    let diff = "--- ~/xdg-config/mcp-workbench/workbench-config.json
+++ ~/xdg-config/mcp-workbench/workbench-config.json
@@ -3,8 +3,16 @@
   \"toolboxes\": {
     \"dev\": {
       \"mcpServers\": {
-        \"one\": { \"command\": \"one\" } // first
+        \"one\": { \"command\": \"one\" }, // first
+        \"two\": {
+          \"command\": \"npx\",
+          \"args\": [\"-y\", \"a b\", \"--token\", \"${TWO_TOKEN}\", \"${KEY}\"],
+          \"env\": {
+            \"MODE\": \"…\"
+          }
+        }
       }
     }
-  }
+  },
+  \"envFile\": \"secrets.env\"
 }
";
    let args = [
        "add",
        "two",
        "--toolbox",
        "dev",
        "--env",
        "MODE=fixture-edited",
        "--",
        "npx",
        "-y",
        "a b",
        "--token",
        "t0",
        "${KEY}",
    ];
    let with = |option: &'static str| [&args[..2], &[option], &args[2..]].concat();
    let summary = "Adds two to toolbox `dev`
Its secrets become variables, kept in ~/xdg-config/mcp-workbench/secrets.env: TWO_TOKEN
";
    let only = "Nothing was written: this is a dry run.\n";
    check(&home, &with("--dry-run"), 0, diff, &format!("{summary}{only}"));
    let refused = "error: nothing was written: there is no terminal to ask on
add --yes to write the change, or --dry-run to see it only
";
    check(&home, &args, 2, diff, &format!("{summary}{refused}"));
    assert_eq!(text(&home.config()), CONFIG);
    check(
        &home,
        &with("--yes"),
        0,
        "",
        &format!("{summary}Wrote ~/xdg-config/mcp-workbench/workbench-config.json\n"),
    );
    assert_eq!(home.secrets(), "TWO_TOKEN=t0\n");
    let written = text(&home.config());
    assert!(written.contains("// mine\n") && written.contains("// first\n"), "{written}");
    assert!(written.contains("\"MODE\": \"fixture-edited\""), "{written}");
    let again = "error: a server `two` already exists in toolbox `dev`
choose another name, or `mcp-workbench remove` the old one first
";
    check(&home, &with("--yes"), 2, "", again);
    let (status, _, stderr) = said(&home, "mcp-workbench", &["remove", "two", "--yes"]);
    assert_eq!(
        (status, stderr.as_str()),
        (0, "Removes two from toolbox `dev`\nWrote ~/xdg-config/mcp-workbench/workbench-config.json\n")
    );
    let servers: Value =
        serde_json::from_str(&text(&home.config()).replace("// mine", "").replace("// first", ""))
            .expect("JSON");
    assert_eq!(servers["toolboxes"]["dev"]["mcpServers"], json!({"one": {"command": "one"}}));
}

#[test]
fn add_by_url_into_a_new_toolbox() {
    let home = with_config(CONFIG);
    let args = [
        "add",
        "r",
        "--url",
        "https://u:fixturePassword@h/mcp",
        "-H",
        "Authorization: Bearer ${T}",
        "--sse",
        "--toolbox",
        "net",
        "--yes",
    ];
    let answer = home.json(&args);
    assert_eq!(
        (&answer["toolbox"], &answer["server"], &answer["written"]),
        (&json!("net"), &json!("r"), &json!(true))
    );
    assert!(answer["diff"].as_str().expect("text").contains("https://u:${R_PASSWORD}@h/mcp"), "{answer}");
    assert_eq!(home.secrets(), "R_PASSWORD=fixturePassword\n");
    let (status, _, stderr) = said(&home, "mcp-workbench", &["check"]);
    assert_eq!(status, 2, "T is not set, which did not matter before: {stderr}");
}

#[test]
fn remove_refuses_what_it_does_not_find() {
    let home = with_config(
        r#"{"toolboxes": {"a": {"mcpServers": {"github": {"command": "x"}}}, "b": {"mcpServers": {"github": {"command": "x"}}}}}"#,
    );
    for (args, message, hint) in [
        (&["remove", "githib"][..], "there is no server `githib`", "did you mean `github`?"),
        (&["remove", "zzz"], "there is no server `zzz`", "there is only `github`"),
        (
            &["remove", "github"],
            "several servers are called `github`",
            "name one of them: `a/github` or `b/github`",
        ),
        (&["remove", "github", "--toolbox", "c"], "there is no toolbox `c`", "there are `a` and `b`"),
    ] {
        check(&home, args, 2, "", &format!("error: {message}\n{hint}\n"));
        let finished = home.run(&[args, &["--json"]].concat());
        let answer: Value = serde_json::from_str(&finished.stdout).expect("one JSON value");
        assert_eq!(answer, json!({"error": {"kind": "usage", "message": message, "hint": hint}}));
        assert_eq!((finished.code, finished.stderr.as_str()), (Some(2), ""));
    }
    assert_eq!(home.run(&["remove", "github", "--toolbox", "b", "--yes"]).code, Some(0));
    assert!(text(&home.config()).contains("\"a\": {\"mcpServers\": {\"github\""));
}

#[test]
fn usage_errors() {
    let home = with_config(CONFIG);
    for (args, part) in [
        (&["add", "x"][..], "either a command or a URL"),
        (&["add", "x", "--url", "http://h/", "--", "y"], "cannot be used with"),
        (&["add", "x", "--url", "not a url", "--yes"], "expected a URL"),
        (&["connect", "cursr"], "did you mean `cursor`?"),
        (&["connect", "emacs"], "use `claude-desktop`, `claude-code`"),
        (&["disconnect", "emacs"], "there is no client `emacs`"),
        (&["import", "nowhere.json"], "or the path of a file"),
        (
            &["import", "cursor"],
            "has no file here; looked for ~/.cursor/mcp.json and ~/project/.cursor/mcp.json",
        ),
        (&["init", "--toolbox", "a__b"], "may not contain `__`"),
        (&["conect", "cursor"], "connect"),
        (&["completions", "csh"], "possible values"),
    ] {
        let (status, stdout, stderr) = said(&home, "mcp-workbench", args);
        assert_eq!((status, stdout.as_str()), (2, ""), "{args:?}");
        assert!(stderr.contains(part), "{args:?}: {stderr}");
    }
    assert_eq!(text(&home.config()), CONFIG);
    let finished = home.run(&["conect", "--json"]);
    let answer: Value = serde_json::from_str(&finished.stdout).expect("one JSON value");
    assert_eq!((finished.code, &answer["error"]["kind"]), (Some(2), &json!("usage")));
    assert_eq!(answer["error"]["message"], "unrecognized subcommand 'conect'");
}

/// The gateway must never become a server of its own.
#[test]
fn we_are_not_imported() {
    let home = Home::new();
    let servers = r#"{"mcpServers": {"a": {"command": "/opt/bin/mcp-workbench"}, "b": {"command": "npx", "args":
        ["-y", "mcp-workbench@latest"]}, "c": {"command": "toolman"}, "d": {"command": "npx", "args": ["toolmaker"]}}}"#;
    home.put("cursor", servers.as_bytes());
    let answer = home.json(&["init", "--yes"]);
    assert_eq!(answer["added"].as_array().map(Vec::len), Some(1), "{answer}");
    assert_eq!(answer["notes"].as_array().map(Vec::len), Some(3), "{answer}");
    // Another face says so in the entry.
    home.write(&home.path("xdg-config/toolman/tools.toml"), b"");
    let answer = home.json(&["--face", "toolman", "connect", "cursor", "--yes"]);
    assert_eq!(
        answer["args"],
        json!(["--face", "toolman", "--config", home.path("xdg-config/toolman/tools.toml")])
    );
}

#[test]
fn a_configuration_with_problems_is_reported_and_left() {
    let broken = "{\"toolboxes\": {\"dev\": {\"mcpServers\": {}, \"desc\": \"\"}}}";
    let home = with_config(broken);
    for args in [&["add", "x", "--yes", "--", "y"][..], &["init", "--yes"], &["connect", "cursor", "--yes"]] {
        let finished = home.run(args);
        assert_eq!(finished.code, Some(2), "{args:?}");
        assert!(finished.stderr.contains("unknown key `desc`"), "{}", finished.stderr);
        assert!(
            finished.stderr.ends_with("correct the file first; nothing was changed\n"),
            "{}",
            finished.stderr
        );
    }
    assert_eq!(text(&home.config()), broken);
    let nothing = Home::new();
    let finished = nothing.run(&["remove", "x"]);
    assert_eq!(finished.code, Some(2));
    assert!(finished.stderr.contains("no workbench-config.json found"), "{}", finished.stderr);
}

/// No verb that changes files needs a variable, wherever it stands.
#[test]
fn no_variable_needs_to_be_set() {
    let server = json!({"command": "x"});
    let config = |server: &Value| json!({"toolboxes": {"dev": {"mcpServers": {"a": server}}}});
    let top = |key: &str, value: Value| {
        let mut config = config(&server);
        config[key] = value;
        config
    };
    let unset = "${FIXTURE_UNSET}";
    for config in [
        top("toolMode", json!(unset)),
        top("metaTools", json!(unset)),
        top("names", json!(unset)),
        top("stateKey", json!(unset)),
        top("auth", json!({"tokens": [{"name": unset, "token": unset, "toolboxes": [unset]}]})),
        config(&json!({"type": unset, "url": "http://h"})),
        config(&json!({"transport": unset, "command": "x"})),
        config(
            &json!({"command": unset, "args": [unset], "cwd": unset, "isolation": unset, "inheritEnv": [unset]}),
        ),
        config(&json!({"url": format!("{unset}://h:{unset}/"), "headers": {"A": unset}})),
        config(&json!({"url": "https://h", "oauth": {"clientMetadataUrl": unset, "scope": unset}})),
    ] {
        let home = with_config(&config.to_string());
        home.put("cursor", b"{\"mcpServers\": {\"c\": {\"command\": \"c\"}}}");
        for args in [
            &["add", "b", "--yes", "--", "b"][..],
            &["import", "cursor", "--yes"],
            &["init", "--yes"],
            &["disconnect", "cursor", "--yes"],
            &["remove", "b", "--yes"],
        ] {
            let finished = home.run(args);
            assert_eq!(finished.code, Some(0), "{args:?} {config}: {}", finished.stderr);
        }
    }
    let server = "[[servers]]\nnamespace = \"a\"\n";
    for text in [
        format!(
            "resource_separator = \"{unset}\"\nactive_toolsets = [\"{unset}\"]\n{server}command = \"x\"\n"
        ),
        format!("{server}command = \"{unset} x\"\nisolation = \"{unset}\"\n"),
        format!("{server}url = \"https://{unset}/\"\ntype = \"{unset}\"\n"),
        format!("[[servers]]\nnamespace = \"{unset}\"\ncommand = \"x | {unset}\"\n"),
    ] {
        let home = Home::new();
        home.write(&home.path("xdg-config/toolman/tools.toml"), text.as_bytes());
        for args in [&["add", "b", "--yes", "--", "b"][..], &["remove", "b", "--yes"]] {
            let finished = home.run_with("toolman", args);
            assert_eq!(finished.code, Some(0), "{args:?} {text}: {}", finished.stderr);
        }
    }
    // What is wrong without any variable is still refused.
    let home = with_config(&top("toolMode", json!("wrong")).to_string());
    assert_eq!(home.run(&["add", "b", "--yes", "--", "b"]).code, Some(2));
}

/// With `-q` only results and errors are printed: stdout is what it is without, and stderr is empty.
#[test]
fn quiet_verbs_print_results_and_errors_only() {
    let warns =
        r#"{"toolboxes": {"dev": {"mcpServers": {"a": {"command": "x", "timeout": 5, "disabled": true}}}}}"#;
    let setup = |config: &str| {
        let home = with_config(config);
        let servers = r#"{"mcpServers": {"c": {"command": "c", "env": {"API_KEY": "fixture-edited"}, "trust": true},
            "workbench": {"command": "/opt/bench"}}}"#;
        home.put("cursor", servers.as_bytes());
        home
    };
    let connected: &[&[&str]] = &[&["connect", "cursor", "--yes"]];
    for (before, args) in [
        (&[][..], &["init", "--yes"][..]),
        (&[], &["init", "--dry-run"]),
        (&[], &["import", "cursor", "--yes"]),
        (&[], &["add", "b", "--url", "http://h/", "--yes"]),
        (&[], &["remove", "a", "--yes"]),
        (&[], &["connect", "cursor", "--yes"]),
        (connected, &["connect", "cursor", "--yes"]),
        (connected, &["disconnect", "cursor", "--yes"]),
        (&[], &["disconnect", "cursor", "--yes"]),
        (&[], &["list", "tools"]),
        (&[], &["list", "toolboxes"]),
        (&[], &["tokens"]),
        (&[], &["doctor"]),
        (&[], &["serve"]),
    ] {
        let run = |more: &[&str]| {
            let home = setup(warns);
            before.iter().for_each(|args| assert_eq!(home.run(args).code, Some(0), "{args:?}"));
            let said = said(&home, "mcp-workbench", &[args, more].concat());
            (said, home)
        };
        let ((status, stdout, stderr), _) = run(&[]);
        assert_eq!(status, 0, "{args:?}: {stderr}");
        assert!(!stderr.is_empty(), "{args:?} has something to be quiet about");
        let (quiet, _) = run(&["-q"]);
        assert_eq!(quiet, (0, stdout, String::new()), "{args:?}");
    }
    // What `check` finds out is its status.
    let home = setup(warns);
    check(&home, &["check", "-q"], 0, "", "");
    home.write(&home.config(), b"{}");
    let (status, stdout, stderr) = said(&home, "mcp-workbench", &["check", "-q"]);
    assert_eq!((status, stdout.as_str()), (2, ""));
    assert!(stderr.starts_with("error: the file has no `toolboxes`\n"), "{stderr}");
}

#[test]
fn a_dry_run_is_one_also_beside_yes() {
    let home = with_config(CONFIG);
    home.put("cursor", br#"{"mcpServers": {"c": {"command": "c"}}}"#);
    let client = read(&home.file_of("cursor"));
    for args in [
        &["add", "x", "--url", "http://h/"][..],
        &["remove", "one"],
        &["import", "cursor"],
        &["init"],
        &["connect", "cursor"],
    ] {
        let answer = home.json(&[args, &["--yes", "--dry-run"]].concat());
        assert_eq!((&answer["changed"], &answer["written"]), (&json!(true), &json!(false)), "{args:?}");
        let (status, _, stderr) = said(&home, "mcp-workbench", &[args, &["--dry-run", "-y"]].concat());
        assert_eq!(status, 0, "{args:?}: {stderr}");
        assert!(stderr.contains("Nothing was written: this is a dry run.\n"), "{args:?}: {stderr}");
    }
    assert_eq!((text(&home.config()).as_str(), read(&home.file_of("cursor"))), (CONFIG, client));
    home.json(&["connect", "cursor", "--yes"]);
    let connected = read(&home.file_of("cursor"));
    assert_eq!(home.json(&["disconnect", "cursor", "--yes", "--dry-run"])["written"], json!(false));
    assert_eq!(read(&home.file_of("cursor")), connected);
}

#[test]
fn json_shows_a_change_that_is_not_made() {
    let home = with_config(CONFIG);
    let (status, stdout, stderr) = said(&home, "mcp-workbench", &["add", "two", "--json", "--", "npx"]);
    let value: Value = serde_json::from_str(&stdout).expect("one JSON value");
    assert_eq!((status, &value["error"]["kind"]), (2, &json!("usage")), "{stdout}");
    assert!(
        stderr.starts_with(
            "Adds two to toolbox `two`\n--- HOME/xdg-config/mcp-workbench/workbench-config.json\n"
        ) && stderr.contains("+        \"two\": {")
    );
}

#[test]
fn toolman_has_the_same_verbs() {
    let home = Home::new();
    let file = home.path("xdg-config/toolman/tools.toml");
    home.write(&file, b"# top\nactive_toolsets = [\"a_*\"] # mine\n\n# one\n[[servers]]\nnamespace = \"one\"\ncommand = \"one\"\n");
    let run = |args: &[&str]| {
        let (status, _, stderr) = said(&home, "toolman", args);
        assert_eq!(status, 0, "{args:?}: {stderr}");
        stderr
    };
    assert_eq!(
        run(&["add", "two", "--yes", "--", "npx", "a b", "${KEY}", "it's"]),
        "Adds two\nWrote ~/xdg-config/toolman/tools.toml\n"
    );
    run(&["add", "three", "--yes", "--url", "https://h/mcp"]);
    let expected = "# top
active_toolsets = [\"a_*\"] # mine

# one
[[servers]]
namespace = \"one\"
command = \"one\"

[[servers]]
namespace = \"two\"
command = '''npx 'a b' ${KEY} 'it'\\''s''''

[[servers]]
namespace = \"three\"
url = \"https://h/mcp\"
";
    assert_eq!(text(&file), expected);
    run(&["remove", "two", "--yes"]);
    run(&["remove", "three", "--yes"]);
    run(&["remove", "one", "--yes"]);
    assert_eq!(text(&file), "# top\nactive_toolsets = [\"a_*\"] # mine\n");
    home.put(
        "cursor",
        b"{\"mcpServers\": {\"four\": {\"command\": \"4\", \"env\": {\"API_KEY\": \"fixture-edited\"}}}}",
    );
    let (_, stdout, _) = said(&home, "toolman", &["import", "cursor", "--yes", "--json"]);
    let answer: Value = serde_json::from_str(&stdout).expect("one JSON value");
    assert_eq!(
        (&answer["added"], &answer["secrets"][0]["namespace"]),
        (
            &json!([{"namespace": "four", "client": "Cursor", "disabled": false, "renamedFrom": null}]),
            &json!("four")
        )
    );
    home.put("codex", b"[mcp_servers.five]\ncommand = \"5\"\nenabled_tools = [\"x\"]\n");
    let note =
        "Codex: five: enabled_tools limits which tools are offered; toolman has `active_toolsets` for that\n";
    assert!(run(&["import", "codex", "--yes"]).contains(note));
    let (status, _, stderr) = said(&home, "toolman", &["add", "x", "--toolbox", "t", "--", "y"]);
    assert_eq!((status, stderr.as_str()), (2, "error: tools.toml has no toolboxes\nleave --toolbox out\n"));
}

#[test]
fn init_merges_and_lists_secrets() {
    let home = Home::with(&["claude-desktop", "cursor"]);
    let (status, _, stderr) = said(&home, "mcp-workbench", &["init", "--yes"]);
    let expected = "Claude Desktop: 2 servers in DESKTOP
Cursor: 4 servers in ~/.cursor/mcp.json
+ filesystem (Claude Desktop)
+ github (Claude Desktop)
+ github-2 (Cursor, called github there)
+ linear (Cursor)
+ local (Cursor)
= fs (Cursor) is the same as filesystem
warning: Cursor: local: args has ${workspaceFolder}, which is not replaced here
warning: Cursor: local: envFile is not read here; set its variables, or write them into `env`
Secrets in clear text become variables, kept in ~/xdg-config/mcp-workbench/secrets.env:
  GITHUB_PERSONAL_ACCESS_TOKEN (github: env.GITHUB_PERSONAL_ACCESS_TOKEN)
  GITHUB_PERSONAL_ACCESS_TOKEN_2 (github-2: env.GITHUB_PERSONAL_ACCESS_TOKEN)
Wrote ~/xdg-config/mcp-workbench/workbench-config.json
next: `mcp-workbench connect CLIENT`, with one of `claude-desktop` or `cursor`
";
    let desktop = home.file_of("claude-desktop").display().to_string();
    let desktop = desktop.replace(home.path("").display().to_string().trim_end_matches('/'), "~");
    assert_eq!((status, stderr.replace(&desktop, "DESKTOP").as_str()), (0, expected));
    assert!(!text(&home.config()).contains("fixture"), "no secret is written");
    let written = read(&home.config());
    let again = home.json(&["init", "--yes"]);
    assert_eq!((&again["changed"], &again["added"]), (&json!(false), &json!([])));
    assert!(read(&home.config()) == written, "twice is once");
}

/// Somebody with no client at all gets a file to begin with.
#[test]
fn init_from_nothing_makes_a_valid_file() {
    let nobody = Home::new();
    for program in ["mcp-workbench", "toolman"] {
        for args in [&["init", "--yes"][..], &["check"], &["init", "--project", "--yes"], &["check"]] {
            assert_eq!(nobody.run_with(program, args).code, Some(0), "{program} {args:?}");
        }
    }
}

#[test]
fn import_adds_to_a_file_with_comments() {
    let home = Home::with(&["lmstudio"]);
    home.write(&home.config(), CONFIG.replace('\n', "\r\n").as_bytes());
    let (status, stdout, _) = said(&home, "mcp-workbench", &["import", "lmstudio", "--dry-run"]);
    assert_eq!(status, 0);
    assert!(stdout.contains("+        \"hf-mcp-server\": {\n"), "{stdout}");
    assert_eq!(text(&home.config()), CONFIG.replace('\n', "\r\n"));
    assert_eq!(home.run(&["import", "lmstudio", "--yes"]).code, Some(0));
    let written = text(&home.config());
    assert!(written.contains("// mine\r\n") && written.contains("// first\r\n"), "{written}");
    assert_eq!(written.matches('\n').count(), written.matches("\r\n").count());
    assert!(written.contains("\"Bearer ${HF_MCP_SERVER_AUTHORIZATION}\""), "{written}");
}

#[test]
fn logins_are_imported_without_their_secrets() {
    let entry = r#"{"mcpServers": {"crm": {"httpUrl": "https://crm.example/mcp", "oauth": {"enabled": true,
        "clientId": "id-1", "clientSecret": "fixture-secret", "scopes": ["a", "b"], "callbackPort": 8123}}}}"#;
    for (program, file, expected) in [
        (
            "mcp-workbench",
            "workbench-config.json",
            &[
                "\"clientId\": \"id-1\"",
                "\"clientSecret\": \"${CRM_CLIENT_SECRET}\"",
                "\"scope\": \"a b\"",
                "\"callbackPort\": 8123",
            ],
        ),
        (
            "toolman",
            "tools.toml",
            &[
                "client_id = \"id-1\"",
                "client_secret = \"${CRM_CLIENT_SECRET}\"",
                "scope = \"a b\"",
                "callback_port = 8123",
            ],
        ),
    ] {
        let home = Home::new();
        let empty: &[u8] = if file.ends_with("toml") { b"" } else { b"{\"toolboxes\": {}}" };
        home.write(&home.path(&format!("project/{file}")), empty);
        home.write(&home.path("theirs.json"), entry.as_bytes());
        let theirs = home.path("theirs.json").display().to_string();
        let (status, stdout, stderr) = said(&home, program, &["import", &theirs, "--yes"]);
        assert_eq!(status, 0, "{stderr}");
        let written = text(&home.path(&format!("project/{file}")));
        for part in expected {
            assert!(written.contains(part), "{part} in {written}");
        }
        assert!(stderr.contains("oauth.enabled"), "{stderr}");
        for shown in [&written, &stdout, &stderr] {
            assert!(!shown.contains("fixture-secret"), "{shown}");
        }
    }
}

#[test]
fn the_whole_way() {
    let home = Home::new();
    let fake = crate::harness::fake_path();
    let client = json!({"mcpServers": {"fake": {"command": fake, "args": ["--tools", "1"]}}});
    home.put("claude-code", client.to_string().as_bytes());
    assert_eq!(home.run(&["init", "--yes"]).code, Some(0));
    assert_eq!(home.run(&["connect", "claude-code", "--yes"]).code, Some(0));
    let file: Value = serde_json::from_slice(&read(&home.file_of("claude-code"))).expect("JSON");
    let servers = file["mcpServers"].as_object().expect("servers");
    assert_eq!(servers.keys().collect::<Vec<_>>(), ["workbench"]);
    let entry = &servers["workbench"];
    assert!(std::path::Path::new(entry["command"].as_str().expect("a path")).is_absolute());
    let args: Vec<_> =
        entry["args"].as_array().expect("a list").iter().map(|arg| arg.as_str().expect("text")).collect();
    let program = entry["command"].as_str().expect("a path");
    let name = std::path::Path::new(program).file_name().expect("a file").to_str().expect("UTF-8");
    let mut client = home.command(name, &args);
    client.stdin(Stdio::piped()).stdout(Stdio::piped()).current_dir("/");
    let mut child = client.spawn().expect("it starts");
    let requests = [
        json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18",
            "capabilities": {}, "clientInfo": {"name": "claude-code", "version": "1"}}}),
        json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call",
            "params": {"name": "open_toolbox", "arguments": {"toolbox_name": "fake"}}}),
    ];
    let mut stdin = child.stdin.take().expect("piped");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    for request in requests {
        writeln!(stdin, "{request}").expect("it listens");
    }
    let answer = lines.find_map(|line| {
        let message: Value = serde_json::from_str(&line.expect("UTF-8")).expect("JSON");
        (message["id"] == 2).then_some(message)
    });
    let answer = answer.expect("an answer");
    assert_eq!(answer["result"]["structuredContent"]["servers_connected"], 1, "{answer}");
    drop(stdin);
    assert!(child.wait().expect("it ends").success());
}

#[test]
fn schema_completions_and_man() {
    let home = Home::new();
    for (program, title) in [("mcp-workbench", "workbench-config.json"), ("toolman", "tools.toml")] {
        let (status, stdout, stderr) = said(&home, program, &["schema"]);
        let schema: Value = serde_json::from_str(&stdout).expect("one JSON value");
        assert_eq!((status, stderr.as_str(), &schema["title"]), (0, "", &json!(title)));
        let (status, stdout, _) = said(&home, program, &["completions", "bash"]);
        assert!(status == 0 && stdout.ends_with(&format!(" {program}\n")), "{stdout}");
        let (status, stdout, _) = said(&home, program, &["man"]);
        assert!(status == 0 && stdout.contains(".TH") && stdout.contains(program), "{stdout}");
        for (verb, key) in [(&["man"][..], "page"), (&["completions", "bash"], "script"), (&["demo"], "text")]
        {
            let (status, stdout, _) = said(&home, program, &[verb, &["--json"]].concat());
            let value: Value = serde_json::from_str(&stdout).expect("one JSON value");
            let text = value[key].as_str().expect("text");
            assert!(status == 0 && text.contains('\n') && !text.contains('\u{1b}'), "{verb:?}: {text}");
        }
    }
}

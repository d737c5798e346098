//! Answers that wait until the client has the tools that they speak of. No test waits for the time to pass but those that
//! are about it: what a client has not been given stands behind a `ping` that was asked for later.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::client::{Client, Era, Host, Web};
use crate::harness::{Gateway, Lab, TOOLS_CHANGED, VERSION, classic, dev, fake, server};

/// What the log says when a client has taken too long.
const GIVEN_UP: &str = "answers no longer wait for it";
/// What a client may take.
const LONGEST: Duration = Duration::from_secs(2);
/// A client that needs half a second when it has read a list.
const GEMINI: &str = "gemini-cli-mcp-client";
/// One that needs a tenth.
const CLAUDE: &str = "claude-code";

/// Two toolboxes, `dev` and `ops`.
fn toolboxes(mode: &str) -> Value {
    let mut config = dev(mode, json!({"a": fake("--with echo")}));
    config["toolboxes"]["ops"] = json!({"mcpServers": {"b": fake("--with echo")}});
    config
}

/// A gateway that tells what it does, and its client.
fn client(name: &str, config: &Value) -> Gateway {
    let mut gateway = Gateway::spawn_with(Lab::new(), config, |command| {
        command.arg("-vv");
    });
    gateway.initialize_as(VERSION, "{}", name);
    gateway
}

fn toolman(name: &str) -> Gateway {
    let config = server("a", "--tools 3 --resources 1", "");
    let mut gateway = Gateway::spawn_toolman(Lab::new(), config, |command| {
        command.arg("-vv");
    });
    gateway.initialize_as(VERSION, "{}", name);
    gateway.tools();
    gateway
}

fn switch(list: &str, name: &str) -> Value {
    let mut lists = json!({"tools_on": [], "tools_off": [], "resources_on": [], "resources_off": []});
    lists[list] = json!([name]);
    lists
}

impl Gateway {
    /// Asks for a toolbox and waits until the client is told of its tools.
    #[track_caller]
    fn begin_to_open(&mut self, toolbox: &str) -> String {
        let id = self.post_call("open_toolbox", json!({"toolbox_name": toolbox}));
        self.notification(TOOLS_CHANGED);
        assert!(self.is_held(&id), "{toolbox} is answered at once");
        id
    }

    /// Whether a request is still not answered when a later one is.
    #[track_caller]
    fn is_held(&mut self, id: &str) -> bool {
        !self.has(|message| message.id() == id && message.method().is_empty())
    }

    /// How often the client was waited for in vain.
    #[track_caller]
    fn given_up(&mut self) -> usize {
        self.fence();
        self.stderr().matches(GIVEN_UP).count()
    }
}

#[test]
fn the_answer_follows_when_the_client_has_the_tools_and_a_moment_to_take_them_up() {
    let all = [(GEMINI, 500), (CLAUDE, 100), ("opencode", 500), ("Zed", 100), ("goose-desktop", 100)];
    for (name, settling) in all {
        for mode in ["auto", "dynamic"] {
            let mut gateway = client(name, &toolboxes(mode));
            for (toolbox, tools) in [("dev", 2), ("ops", 3)] {
                let open = gateway.begin_to_open(toolbox);
                let asked = Instant::now();
                assert_eq!(gateway.tools().len(), tools, "{name} {mode}");
                assert_eq!(gateway.next().id(), open, "it follows the list");
                assert!(asked.elapsed() >= Duration::from_millis(settling), "{name} {mode}");
            }
            assert_eq!(gateway.given_up(), 0);
        }
    }
}

#[test]
fn a_client_that_never_asks_is_waited_for_once() {
    let mut gateway = client(GEMINI, &toolboxes("auto"));
    let begun = Instant::now();
    let open = gateway.begin_to_open("dev");
    assert_eq!(gateway.answer(&open).json()["tools_registered"], 1);
    assert!(begun.elapsed() >= LONGEST);
    gateway.open("ops");
    assert_eq!(gateway.given_up(), 1);
}

#[test]
fn a_list_releases_the_answers_that_were_held_when_it_was_asked_for() {
    let mut gateway = client(GEMINI, &toolboxes("auto"));
    let both = ["dev", "ops"].map(|toolbox| gateway.begin_to_open(toolbox));
    assert!(gateway.is_held(&both[0]));
    assert_eq!(gateway.tools().len(), 3);
    for open in both {
        gateway.answer(&open).json();
    }
    assert_eq!(gateway.given_up(), 0);

    let mut gateway = client(GEMINI, &toolboxes("auto"));
    let first = gateway.begin_to_open("dev");
    assert_eq!(gateway.tools().len(), 2);
    let second = gateway.post_call("open_toolbox", r#"{"toolbox_name":"ops"}"#);
    gateway.answer(&first).json();
    gateway.notification(TOOLS_CHANGED);
    assert!(gateway.is_held(&second), "the list was asked for before");
    assert_eq!(gateway.tools().len(), 3);
    gateway.answer(&second).json();
    assert_eq!(gateway.given_up(), 0);
}

#[test]
fn other_requests_do_not_release_an_answer_and_are_served() {
    let mut gateway = client(GEMINI, &toolboxes("auto"));
    let open = gateway.begin_to_open("dev");
    assert!(gateway.call("dev__a__echo", "{}").text().contains("{}"));
    gateway.request("resources/list", "{}").result();
    gateway.request("prompts/list", "{}").result();
    assert!(gateway.is_held(&open));
    gateway.tools();
    gateway.answer(&open).json();
}

#[test]
fn the_end_of_stdin_releases_an_answer() {
    let mut gateway = client(GEMINI, &toolboxes("auto"));
    let open = gateway.begin_to_open("dev");
    gateway.close();
    assert_eq!(gateway.answer(&open).json()["tools_registered"], 1);
    assert!(!gateway.stderr().contains(GIVEN_UP));
}

#[test]
fn nobody_else_is_held() {
    for (name, mode) in
        [("test-client", "dynamic"), ("codex-mcp-client", "dynamic"), ("", "auto"), (CLAUDE, "proxy")]
    {
        let mut gateway = client(name, &toolboxes(mode));
        gateway.open("dev");
        assert_eq!(gateway.given_up(), 0, "{name} {mode}");
    }
    let gateway = Gateway::spawn_with(Lab::new(), toolboxes("auto"), |command| {
        command.arg("-vv");
    });
    let mut modern = Client::pipe(Era::Modern, gateway, "{}");
    modern.name = CLAUDE.to_owned();
    modern.call("open_toolbox", r#"{"toolbox_name":"dev"}"#).json();
    assert_eq!(modern.gateway().given_up(), 0, "a modern client's list does not change");
}

#[test]
fn what_changes_no_list_is_not_held() {
    let mut config = toolboxes("auto");
    config["toolboxes"]["broken"] = json!({"mcpServers": {"c": fake("--exit 3")}});
    let mut gateway = client(GEMINI, &config);
    let open = gateway.begin_to_open("dev");
    gateway.open("dev");
    gateway.call("open_toolbox", r#"{"toolbox_name":"broken"}"#).failure();
    assert!(gateway.is_held(&open), "the second opening is answered before the first");
    gateway.tools();
    gateway.answer(&open).json();
    assert_eq!(gateway.given_up(), 0);
}

#[test]
fn the_classic_opening_is_held_and_the_closing_is_not() {
    let mut gateway = client(GEMINI, &classic("auto", json!({"a": fake("--with echo")})));
    let open = gateway.post_call("workbench_open_toolbox", r#"{"toolbox_name":"dev"}"#);
    gateway.notification(TOOLS_CHANGED);
    assert!(gateway.is_held(&open));
    gateway.tools();
    gateway.answer(&open).json();
    gateway.call("workbench_close_toolbox", r#"{"toolbox_name":"dev"}"#).json();
    gateway.notification(TOOLS_CHANGED);
    assert_eq!(gateway.given_up(), 0);
}

#[test]
fn what_is_switched_on_is_held_too() {
    let mut gateway = toolman(GEMINI);
    for (list, name) in [("tools_on", "a_*"), ("resources_on", "a_*"), ("tools_off", "a_tool-1")] {
        let id = gateway.post_call("toolman_activate", switch(list, name));
        gateway.notification(TOOLS_CHANGED);
        assert!(gateway.is_held(&id), "{list}");
        gateway.tools();
        gateway.answer(&id).json();
        gateway.call("toolman_activate", switch(list, name)).json();
    }
    gateway.call("toolman_activate", switch("tools_on", "unknown")).failure();
    assert_eq!(gateway.given_up(), 0);
    let mut other = toolman("test-client");
    other.call("toolman_activate", switch("tools_on", "a_*")).json();
    assert_eq!(other.given_up(), 0);
}

#[test]
fn over_http_only_a_client_with_a_stream_is_held() {
    let host = Host::new(Gateway::spawn_with(Lab::new(), toolboxes("auto"), |command| {
        command.args(["serve", "--http", "127.0.0.1:0", "-vv"]);
    }));
    let web = || {
        let mut web = Web::new(&host.address);
        web.name = CLAUDE.to_owned();
        web
    };
    let mut listening = Client::web(Era::Legacy, web(), "{}");
    let open = listening.post_call("open_toolbox", r#"{"toolbox_name":"dev"}"#);
    listening.notification(TOOLS_CHANGED);
    listening.request("ping", "{}").result();
    assert!(listening.left().is_empty(), "the answer is held");
    assert_eq!(listening.tools().len(), 2);
    assert_eq!(listening.answer(&open).json()["tools_registered"], 1);

    let mut deaf = web();
    deaf.open_session("{}");
    let params = json!({"name": "open_toolbox", "arguments": {"toolbox_name": "dev"}});
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
    let answer = deaf.exchange("POST", &deaf.common(), &body.to_string());
    assert!(answer.body.contains("tools_registered"), "{}", answer.body);
    assert!(!host.stderr().contains(GIVEN_UP));
}

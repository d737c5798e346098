//! Servers over HTTP that are replaced while somebody uses them: what they offer then, and what they were told before.

use serde_json::{Value, json};

use crate::client::{CAN_ALL, Client, Era, Host, Remote};
use crate::harness::{Gateway, Lab, Message, PROMPTS_CHANGED, TOOLS_CHANGED, VERSION, dev, fake};

const UPDATED: &str = "notifications/resources/updated";
const URI: &str = "fake://resource/1";

/// A client of a gateway in front of one server.
struct Scene {
    client: Client,
    /// Stands before the names of tools and prompts.
    prefix: &'static str,
    /// Stands before URIs.
    uris: &'static str,
    _host: Option<Host>,
}

/// How the client reaches the gateway.
#[derive(Debug, Clone, Copy)]
enum Way {
    Workbench,
    Toolman,
    /// The rest over HTTP.
    WorkbenchHttp,
    ToolmanHttp(Era),
    Plain(Era),
}

const WAYS: [Way; 7] = [
    Way::Workbench,
    Way::Toolman,
    Way::WorkbenchHttp,
    Way::ToolmanHttp(Era::Legacy),
    Way::ToolmanHttp(Era::Modern),
    Way::Plain(Era::Legacy),
    Way::Plain(Era::Modern),
];

impl Scene {
    /// Everything of the server is listed to the client, which hears of changes.
    fn new(way: Way, remote: &Remote, transport: &str) -> Self {
        let workbench = dev("dynamic", json!({"a": {"type": transport, "url": remote.url()}}));
        let toolman = format!(
            "active_toolsets = [\"*\"]\n[[servers]]\nnamespace = \"n\"\nurl = \"{}\"\ntransport = \"{transport}\"\n",
            remote.url()
        );
        let (host, mut client) = match way {
            Way::Workbench => (None, Client::pipe(Era::Legacy, Gateway::spawn(workbench), CAN_ALL)),
            Way::Toolman => {
                let gateway = Gateway::spawn_toolman(Lab::new(), toolman, |_| ());
                (None, Client::pipe(Era::Legacy, gateway, CAN_ALL))
            }
            Way::WorkbenchHttp => Self::over_http(Host::workbench(workbench), Era::Legacy, "/mcp"),
            Way::ToolmanHttp(era) => Self::over_http(Host::toolman(toolman), era, "/mcp"),
            Way::Plain(era) => Self::over_http(Host::workbench(workbench), era, "/mcp/dev"),
        };
        let (prefix, uris) = match way {
            Way::Workbench | Way::WorkbenchHttp => {
                client.call("open_toolbox", r#"{"toolbox_name":"dev"}"#).text();
                ("dev__a__", "workbench://dev/a/")
            }
            Way::Toolman | Way::ToolmanHttp(_) => ("n_", "n_"),
            Way::Plain(_) => ("", ""),
        };
        client.tools();
        while client.left().iter().any(|message| message.method() == TOOLS_CHANGED) {
            client.notification(TOOLS_CHANGED);
        }
        if client.era == Era::Modern {
            let kinds = json!({"toolsListChanged": true, "promptsListChanged": true});
            client.post("subscriptions/listen", json!({"notifications": kinds}));
            client.notification("notifications/subscriptions/acknowledged");
        }
        Self { client, prefix, uris, _host: host }
    }

    fn over_http(host: Host, era: Era, path: &str) -> (Option<Host>, Client) {
        let client = host.client_at(era, path);
        (Some(host), client)
    }

    #[track_caller]
    fn call(&mut self, tool: &str, arguments: Value) -> Message {
        self.client.call(&format!("{}{tool}", self.prefix), arguments)
    }

    /// The names in a list, those of the server alone.
    #[track_caller]
    fn names(&mut self, method: &str, list: &str) -> Vec<String> {
        let names = self.client.request(method, "{}").names(list);
        let own = |name: &String| !name.starts_with("toolman_") && name != "open_toolbox";
        let names = names.iter().filter(|name| own(name));
        names.map(|name| name.strip_prefix(self.prefix).unwrap_or(name).to_owned()).collect()
    }

    fn tools(&mut self) -> Vec<String> {
        self.names("tools/list", "tools")
    }

    /// Tries until something holds.
    #[track_caller]
    fn until(&mut self, what: &str, mut holds: impl FnMut(&mut Self) -> bool) {
        let end = std::time::Instant::now() + crate::harness::DEADLINE;
        while !holds(self) {
            assert!(std::time::Instant::now() < end, "it never came true: {what}; {:?}", self.client.left());
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }
}

fn worked(answer: &Message) -> bool {
    !answer.at(&["result"]).is_empty() && !answer.is_error()
}

#[test]
fn what_a_redeployed_server_offers_is_listed_and_can_be_called() {
    for (transport, flags) in [("http", "--era legacy"), ("http", "--era modern"), ("sse", "--sse")] {
        for way in WAYS {
            let case = format!("{way:?} {flags}");
            let mut remote = Remote::start(&format!("--with echo --tools 1 {flags}"));
            let mut scene = Scene::new(way, &remote, transport);
            assert_eq!(scene.tools(), ["echo", "tool-1"], "{case}");
            assert_eq!(scene.names("prompts/list", "prompts"), [""; 0], "{case}");
            remote.redeploy(&format!("--with echo,report --prompts 1 {flags}"));
            scene.until("calls are answered again", |scene| worked(&scene.call("echo", json!({}))));
            scene.client.notification(TOOLS_CHANGED);
            scene.client.notification(PROMPTS_CHANGED);
            scene.until(&format!("the lists are new: {case}"), |scene| {
                scene.tools() == ["echo", "report"] && scene.names("prompts/list", "prompts") == ["prompt-1"]
            });
            assert!(worked(&scene.call("report", json!({}))), "{case}");
            assert!(!worked(&scene.call("tool-1", json!({}))), "{case}");
        }
    }
}

#[test]
fn a_modern_client_of_the_workbench_can_use_what_a_redeployed_server_offers() {
    for era in ["legacy", "modern"] {
        let mut remote = Remote::start(&format!("--tools 1 --era {era}"));
        let host = Host::workbench(dev("proxy", json!({"a": {"type": "http", "url": remote.url()}})));
        let mut client = host.client(Era::Modern);
        client.call("open_toolbox", r#"{"toolbox_name":"dev"}"#).text();
        remote.redeploy(&format!("--with echo --era {era}"));
        // Nothing reaches the server meanwhile, unless it was missed: what is not in its list is not called.
        let tool = json!({"toolbox": "dev", "server": "a", "tool": "echo"});
        client.until("the new tool is known", |client| {
            client.call("open_toolbox", r#"{"toolbox_name":"dev"}"#);
            worked(&client.call("use_tool", json!({"tool": tool})))
        });
        let opened = client.call("open_toolbox", r#"{"toolbox_name":"dev"}"#).json();
        let names: Vec<_> =
            opened["tools"].as_array().expect("a list").iter().map(|tool| &tool["name"]).collect();
        assert_eq!(names, ["echo"], "{era}");
    }
}

#[test]
fn what_was_expected_of_a_server_is_expected_of_the_one_in_its_place() {
    for way in [Way::Workbench, Way::Toolman, Way::WorkbenchHttp, Way::ToolmanHttp(Era::Legacy)] {
        for flags in ["--era legacy", "--era legacy --sse", "--era modern"] {
            let case = format!("{way:?} {flags}");
            let flags = format!("--with echo,report,update,notify --resources 1 {flags}");
            let mut remote = Remote::start(&flags);
            let mut scene = Scene::new(way, &remote, if flags.contains("sse") { "sse" } else { "http" });
            let uri = format!("{}{URI}", scene.uris);
            scene.client.subscribe(&uri);
            scene.client.request("logging/setLevel", r#"{"level":"warning"}"#).result();
            remote.redeploy(&flags);
            scene.until("calls are answered again", |scene| worked(&scene.call("echo", json!({}))));
            scene.until(&format!("the new one tells of the resource: {case}"), |scene| {
                scene.call("update", json!({"uri": URI}));
                scene.client.left().iter().any(|message| message.method() == UPDATED)
            });
            assert_eq!(scene.client.notification(UPDATED).value()["params"]["uri"], uri, "{case}");
            if flags.contains("legacy") {
                scene.until(&format!("the new one knows the level: {case}"), |scene| {
                    scene.call("report", json!({})).json()["level"] == json!({"level": "warning"})
                });
            }
        }
    }
}

#[test]
fn a_modern_callers_level_is_told_to_a_new_session_again() {
    let remote = Remote::start("--with echo,requests,forget");
    let mut scene = Scene::new(Way::ToolmanHttp(Era::Modern), &remote, "http");
    let call = json!({"name": "n_echo", "arguments": {}});
    let id = scene.client.post_with("tools/call", call, r#""io.modelcontextprotocol/logLevel":"info""#);
    scene.client.answer(&id).text();
    let told = |scene: &mut Scene| {
        let told = scene.call("requests", json!({"method": "logging/setLevel"})).json();
        told.as_array()
            .expect("a list")
            .iter()
            .map(|told| told["params"]["level"].clone())
            .collect::<Vec<_>>()
    };
    scene.until("the level is told", |scene| told(scene) == ["info"]);
    scene.call("forget", json!({})).text();
    scene.until("the level is told again", |scene| told(scene) == ["info", "info"]);
}

/// A tool, as text.
fn tool(name: &str) -> String {
    json!({"name": name, "inputSchema": {"type": "object"}}).to_string()
}

#[test]
fn what_changes_while_no_stream_is_open_is_read_when_there_is_one_again() {
    for era in ["legacy", "modern"] {
        let remote = Remote::start(&format!("--with change,cut --era {era}"));
        let mut scene = Scene::new(Way::Toolman, &remote, "http");
        scene.call("change", json!({"add": [tool("new")], "times": 0})).text();
        scene.call("cut", json!({})).text();
        scene.client.notification(TOOLS_CHANGED);
        assert_eq!(scene.tools(), ["change", "cut", "new"], "{era}");
    }
}

#[test]
fn nobody_is_told_of_lists_that_are_what_they_were() {
    for (era, end) in [("legacy", "forget"), ("legacy", "cut"), ("modern", "cut")] {
        let remote = Remote::start(&format!(
            "--with change,cut,forget,requests --resources 1 --prompts 1 --era {era}"
        ));
        let mut scene = Scene::new(Way::Toolman, &remote, "http");
        let reads = |scene: &mut Scene| {
            let requests = scene.call("requests", json!({})).json();
            let methods =
                requests.as_array().expect("a list").iter().map(|request| request["method"].clone());
            methods.filter(|method| method.as_str().is_some_and(|method| method.ends_with("/list"))).count()
        };
        assert_eq!(reads(&mut scene), 4);
        scene.call(end, json!({})).text();
        scene.until("every list has been read again", |scene| reads(scene) == 8);
        scene.call("change", json!({"add": [tool("new")], "times": 0})).text();
        scene.call(end, json!({})).text();
        scene.until("every list has been read again", |scene| reads(scene) == 12);
        scene.client.notification(TOOLS_CHANGED);
        let told: Vec<_> = scene.client.left().iter().map(Message::method).collect();
        assert_eq!(told, [""; 0], "{era} {end}");
    }
}

#[test]
fn a_server_of_the_other_era_in_the_place_of_one_is_understood() {
    for way in [Way::Workbench, Way::Toolman, Way::ToolmanHttp(Era::Modern)] {
        for (before, after) in [("legacy", "modern"), ("modern", "legacy")] {
            let case = format!("{way:?} {before} {after}");
            let mut remote = Remote::start(&format!("--with echo --era {before}"));
            let mut scene = Scene::new(way, &remote, "http");
            remote.redeploy(&format!("--with echo,report --era {after}"));
            scene.until(&format!("it is understood: {case}"), |scene| {
                worked(&scene.call("echo", json!({}))) && scene.tools() == ["echo", "report"]
            });
            scene.client.notification(TOOLS_CHANGED);
            let headers = scene.call("report", json!({})).json()["headers"]["report"].clone();
            assert_eq!(headers["mcp-session-id"].is_string(), after == "legacy", "{case}: {headers}");
        }
    }
}

#[test]
fn a_server_that_tells_nothing_is_listed_anew_when_it_was_out_of_reach() {
    let refusals = [
        r#"--era modern --error subscriptions/listen={"code":-32601,"message":"no"}"#,
        "--era legacy --no-stream",
    ];
    for way in [Way::Workbench, Way::Toolman, Way::ToolmanHttp(Era::Modern)] {
        for flags in refusals {
            let case = format!("{way:?} {flags}");
            let mut remote = Remote::start(&format!("--with echo {flags}"));
            let mut scene = Scene::new(way, &remote, "http");
            remote.kill();
            scene.until(&format!("it is out of reach: {case}"), |scene| {
                !worked(&scene.call("echo", json!({})))
            });
            remote.again_as(&format!("--with echo,report {flags}"));
            scene.until(&format!("it is back: {case}"), |scene| {
                worked(&scene.call("echo", json!({}))) && scene.tools() == ["echo", "report"]
            });
            scene.client.notification(TOOLS_CHANGED);
        }
    }
}

#[test]
fn a_server_that_never_acknowledges_a_subscription_is_listed_anew_all_the_same() {
    let mut remote = Remote::start("--with echo --era modern");
    let mut scene = Scene::new(Way::Toolman, &remote, "http");
    remote.redeploy("--with echo,report --era modern --hang subscriptions/listen");
    scene.client.notification(TOOLS_CHANGED);
    assert_eq!(scene.tools(), ["echo", "report"]);
}

#[test]
fn a_list_that_could_not_be_read_again_is_tried_once_more() {
    let mut entry = fake("--with change --hang tools/list#2");
    entry["connectTimeout"] = json!(1);
    let mut gateway = Gateway::start(dev("dynamic", json!({"a": entry})));
    gateway.open("dev");
    gateway.notification(TOOLS_CHANGED);
    gateway.call("dev__a__change", json!({"add": [tool("new")]})).text();
    gateway.notification(TOOLS_CHANGED);
    assert!(gateway.tools().contains(&"dev__a__new".to_owned()));
}

#[test]
fn a_question_of_a_lost_session_keeps_no_other_from_being_asked() {
    let flags = "--with echo,ask";
    let mut remote = Remote::start(flags);
    let mut scene = Scene::new(Way::Toolman, &remote, "http");
    let ask = json!({"method": "elicitation/create", "params": r#"{"message":"?"}"#}).to_string();
    scene.client.post_call("n_ask", &ask);
    let is_question = |message: &Message| message.method() == "elicitation/create";
    let lost = scene.client.take("a question", is_question);
    remote.redeploy(flags);
    scene.until("calls are answered again", |scene| worked(&scene.call("echo", json!({}))));
    let withdrawn = scene.client.notification("notifications/cancelled");
    assert_eq!(withdrawn.at(&["params", "requestId"]), lost.id());
    let id = scene.client.post_call("n_ask", &ask);
    let question = scene.client.take("another question", is_question);
    scene.client.reply(&question, r#""result":{"action":"decline"}"#);
    assert_eq!(scene.client.answer(&id).text(), r#"{"result":{"action":"decline"}}"#);
}

/// The HTTP client knows no names of servers; the span around it does.
#[test]
fn log_lines_of_the_http_client_name_the_server() {
    let mut remote = Remote::start("--with echo --era legacy");
    let entry = json!({"a": {"type": "http", "url": remote.url(), "headers": {"Connection": "close"}}});
    let mut gateway = Gateway::spawn_with(Lab::new(), dev("dynamic", entry), |command| {
        command.arg("-v");
    });
    gateway.initialize(VERSION);
    gateway.call("open_toolbox", r#"{"toolbox_name":"dev"}"#).text();
    remote.redeploy("--with echo --era legacy");
    assert!(worked(&gateway.call("dev__a__echo", json!({}))));
    gateway.stderr_with("warn: [dev/a] the header Connection belongs to the connection");
    gateway.stderr_with("info: [dev/a] the server does not know our session any more");
}

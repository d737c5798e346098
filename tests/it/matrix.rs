//! Every client to every upstream: one list of scenarios for both eras and both transports on either side.
//!
//! The toolman face with all tools active and an empty namespace shows an upstream as it is, over stdio and HTTP alike.

use serde_json::json;

use crate::client::{CAN_ALL, Client, Era, Host, Over, Remote, subscription};
use crate::harness::{Gateway, Lab, TOOLS_CHANGED, raw_at, server};

/// One cell of the matrix.
struct Cell {
    client: Client,
    upstream_era: Era,
    remote: Option<Remote>,
    _host: Option<Host>,
}

impl Cell {
    fn new(client: (Era, Over), upstream: (Era, Over)) -> Self {
        let era = if upstream.0 == Era::Modern { "modern" } else { "legacy" };
        let flags = format!("--with all --resources 2 --era {era}");
        let remote = (upstream.1 == Over::Http).then(|| Remote::start(&flags));
        let entry = match &remote {
            None => server("", &flags, "restart = true"),
            Some(remote) => format!("[[servers]]\nnamespace = \"\"\nurl = \"{}\"\n", remote.url()),
        };
        let config = format!("active_toolsets = [\"*\"]\n{entry}");
        let (client, host) = match client.1 {
            Over::Stdio => {
                let gateway = Gateway::spawn_toolman(Lab::new(), config, |_| ());
                (Client::pipe(client.0, gateway, CAN_ALL), None)
            }
            Over::Http => {
                let host = Host::toolman(config);
                (host.client(client.0), Some(host))
            }
        };
        Self { client, upstream_era: upstream.0, remote, _host: host }
    }

    fn run(&mut self) {
        self.list();
        self.call();
        self.large_payload();
        self.progress();
        self.cancel();
        self.list_change_and_resources();
        self.crash();
        // Last: from its first question on, some upstreams get one call at a time.
        self.elicitation();
    }

    fn list(&mut self) {
        let answer = self.client.request("tools/list", "{}");
        let names = answer.names("tools");
        assert_eq!(names[..3], ["toolman_activate", "echo", "result"], "{answer:?}");
        let modern = self.client.era == Era::Modern;
        for key in ["resultType", "ttlMs", "cacheScope", "_meta"] {
            assert_eq!(!answer.at(&["result", key]).is_empty(), modern, "{key}: {answer:?}");
        }
        assert_eq!(names.contains(&"toolman_call".to_owned()), modern);
    }

    fn call(&mut self) {
        let arguments = r#"{"big":18446744073709551616,"long":1.10,"text":"\u0041"}"#;
        let answer = self.client.call("echo", arguments);
        assert_eq!(raw_at(&answer.text(), &["arguments"]), arguments);
        let modern = self.client.era == Era::Modern;
        assert_eq!(answer.at(&["result", "resultType"]), if modern { r#""complete""# } else { "" });
        let sent = answer.json();
        let meta = &sent["_meta"];
        let told = meta["io.modelcontextprotocol/protocolVersion"] == "2026-07-28"
            && meta["io.modelcontextprotocol/clientCapabilities"]["elicitation"].is_object();
        assert_eq!(told, self.upstream_era == Era::Modern, "{sent}");
    }

    fn large_payload(&mut self) {
        let answer = self.client.call("large", json!({"bytes": 1_000_000}));
        assert_eq!(answer.text().len(), 1_000_000);
        let text = "y".repeat(1_000_000);
        let answer = self.client.call("echo", json!({"text": text}));
        assert_eq!(answer.json()["arguments"]["text"], *text);
    }

    fn progress(&mut self) {
        let params = json!({"name": "progress", "arguments": {"n": 20, "extra": r#","new":1.10"#}});
        let id = self.client.post_with("tools/call", params, r#""progressToken":"tok""#);
        for n in 1..=20 {
            let params = self.client.take("progress", |_| true).at(&["params"]);
            assert_eq!(raw_at(&params, &["progressToken"]), r#""tok""#, "{params}");
            assert_eq!(raw_at(&params, &["progress"]), n.to_string());
            assert_eq!(raw_at(&params, &["new"]), "1.10");
        }
        assert_eq!(self.client.answer(&id).text(), "progress");
    }

    fn cancel(&mut self) {
        let id = self.client.post_call("slow", json!({"key": "cancel"}));
        self.client.call("started", json!({"key": "cancel"})).text();
        self.client.cancel(&id);
        self.client.call("cancelled", json!({"count": 1})).text();
        assert!(
            !self.client.left().iter().any(|message| message.id() == id),
            "an answer to what was cancelled"
        );
    }

    fn elicitation(&mut self) {
        let params = r#"{"message":"Who?","requestedSchema":{"type":"object","properties":{}},"new":1.10}"#;
        let arguments = json!({"method": "elicitation/create", "params": params}).to_string();
        let response = r#"{"action":"accept","content":{"name":"Ann","n":1.10}}"#;
        let (questions, answer) = self.client.call_and_answer("ask", &arguments, response);
        assert_eq!(answer.text(), format!(r#"{{"result":{response}}}"#));
        let [question] = questions.as_slice() else { panic!("one question: {questions:?}") };
        assert_eq!(question["method"], "elicitation/create");
        assert_eq!(question["params"]["message"], "Who?");
        assert_eq!(question["params"]["new"], json!(1.10));
    }

    fn list_change_and_resources(&mut self) {
        let uri = "fake://resource/1";
        let read = self.client.request("resources/read", json!({"uri": uri}));
        assert_eq!(read.at(&["result", "contents", "0", "uri"]), format!("{uri:?}"));
        let modern = self.client.era == Era::Modern;
        assert_eq!(!read.at(&["result", "ttlMs"]).is_empty(), modern, "{read:?}");

        let id = self.client.subscribe(uri);
        self.client.until("the upstream knows of the subscription", |client| {
            client.call("update", json!({"uri": uri})).text();
            client.left().iter().any(|message| message.method() == "notifications/resources/updated")
        });
        let updated = self.client.notification("notifications/resources/updated");
        assert_eq!(updated.at(&["params", "uri"]), format!("{uri:?}"));
        assert_eq!(subscription(&updated), id);

        let tool = r#"{"name":"new","inputSchema":{"type":"object"}}"#;
        self.client.call("change", json!({"add": [tool]})).text();
        let changed = self.client.notification(TOOLS_CHANGED);
        assert_eq!(subscription(&changed), id);
        assert!(self.client.tools().contains(&"new".to_owned()));
    }

    fn crash(&mut self) {
        let lost = self.client.post_call("slow", json!({"key": "crash"}));
        self.client.call("started", json!({"key": "crash"})).text();
        let crash = self.client.post_call("crash", "{}");
        for id in [lost, crash] {
            let answer = self.client.answer(&id);
            let failed = !answer.at(&["error"]).is_empty() || answer.is_error();
            assert!(failed, "{answer:?}");
        }
        if let Some(remote) = &mut self.remote {
            remote.again();
        }
        self.client.until("the upstream is back", |client| {
            let answer = client.call("echo", "{}");
            answer.at(&["error"]).is_empty() && !answer.is_error()
        });
    }
}

macro_rules! cells {
    ($($name:ident: $client:ident $over:ident to $upstream:ident $behind:ident;)*) => {
        $(#[test]
        fn $name() {
            Cell::new((Era::$client, Over::$over), (Era::$upstream, Over::$behind)).run();
        })*
    };
}

cells! {
    legacy_stdio_to_legacy_stdio: Legacy Stdio to Legacy Stdio;
    legacy_stdio_to_legacy_http: Legacy Stdio to Legacy Http;
    legacy_stdio_to_modern_stdio: Legacy Stdio to Modern Stdio;
    legacy_stdio_to_modern_http: Legacy Stdio to Modern Http;
    legacy_http_to_legacy_stdio: Legacy Http to Legacy Stdio;
    legacy_http_to_legacy_http: Legacy Http to Legacy Http;
    legacy_http_to_modern_stdio: Legacy Http to Modern Stdio;
    legacy_http_to_modern_http: Legacy Http to Modern Http;
    modern_stdio_to_legacy_stdio: Modern Stdio to Legacy Stdio;
    modern_stdio_to_legacy_http: Modern Stdio to Legacy Http;
    modern_stdio_to_modern_stdio: Modern Stdio to Modern Stdio;
    modern_stdio_to_modern_http: Modern Stdio to Modern Http;
    modern_http_to_legacy_stdio: Modern Http to Legacy Stdio;
    modern_http_to_legacy_http: Modern Http to Legacy Http;
    modern_http_to_modern_stdio: Modern Http to Modern Stdio;
    modern_http_to_modern_http: Modern Http to Modern Http;
}

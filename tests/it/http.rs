//! `serve --http` as a whole: who sees what, when things end, and what upstreams over HTTP are sent.

use serde_json::{Value, json};

use crate::client::{Era, Exchanged, Host, Remote, Web};
use crate::harness::{DEADLINE, Gateway, Lab, Message, dev, fake, gateway_path, server};

fn use_tool(tool: &str, arguments: Value) -> Value {
    json!({"tool": {"toolbox": "dev", "server": "a", "tool": tool}, "arguments": arguments})
}

/// A plain request for a path.
fn get(host: &Host, path: &str, headers: &str) -> Exchanged {
    let mut web = Web::new(&host.address);
    web.path = path.to_owned();
    web.exchange("GET", headers, "")
}

fn texts(answer: &Message) -> String {
    answer.result()["content"].to_string()
}

fn two_tokens() -> Host {
    let toolbox = || json!({"description": "", "mcpServers": {"a": fake("--with echo,report")}});
    Host::workbench(json!({
        "toolMode": "proxy",
        "toolboxes": {"dev": toolbox(), "secret": toolbox()},
        "auth": {"tokens": [
            {"name": "ci", "token": "token-of-ci", "toolboxes": ["dev"]},
            {"name": "all", "token": "token-of-all"},
        ]},
    }))
}

#[test]
fn a_toolbox_that_a_token_may_not_open_does_not_exist_for_it() {
    let host = two_tokens();
    for era in [Era::Legacy, Era::Modern] {
        let mut ci = host.client_with(era, "token-of-ci");
        let mut all = host.client_with(era, "token-of-all");
        if era == Era::Modern {
            for (client, sees) in [(&mut ci, false), (&mut all, true)] {
                let discovered = client.request("server/discover", "{}").result();
                let instructions = discovered["instructions"].as_str().expect("a text");
                assert!(instructions.contains("dev"), "{instructions}");
                assert_eq!(instructions.contains("secret"), sees, "{instructions}");
                assert_eq!(discovered["cacheScope"], "private");
            }
        }
        for (client, sees) in [(&mut ci, false), (&mut all, true)] {
            let list = client.request("tools/list", "{}");
            assert_eq!(list.raw.contains("secret"), sees, "{list:?}");
            if era == Era::Modern {
                assert_eq!(list.result()["cacheScope"], "private");
            }
        }
        let refused = ci.call("open_toolbox", r#"{"toolbox_name":"secret"}"#);
        assert_eq!(refused.text_block(0), "Toolbox 'secret' not found in configuration");
        let unknown = ci.call("open_toolbox", r#"{"toolbox_name":"nowhere"}"#);
        assert!(!texts(&unknown).contains("secret"), "{unknown:?}");
        ci.call("open_toolbox", r#"{"toolbox_name":"dev"}"#).text();
        all.call("open_toolbox", r#"{"toolbox_name":"secret"}"#).text();
        let inside = json!({"tool": {"toolbox": "secret", "server": "a", "tool": "echo"}});
        assert!(ci.call("use_tool", &inside).is_error());
        assert!(ci.call("secret__a__echo", "{}").is_error());
        all.call("use_tool", &inside).text();
    }
    for (path, token, status) in [
        ("/mcp/secret", "token-of-ci", 404),
        ("/mcp/nowhere", "token-of-ci", 404),
        ("/mcp/dev", "token-of-ci", 400),
        ("/mcp/secret", "token-of-all", 400),
        ("/mcp", "wrong", 401),
        ("/mcp/secret", "wrong", 401),
        ("/healthz", "wrong", 200),
        ("/readyz", "wrong", 200),
    ] {
        let answer = get(&host, path, &format!("Authorization: Bearer {token}\r\n"));
        assert_eq!(answer.status, status, "{path} {token}: {answer:?}");
        assert_eq!(answer.headers.contains_key("www-authenticate"), status == 401);
    }
}

#[test]
fn a_session_of_another_token_is_not_there() {
    let host = two_tokens();
    let mut ci = host.client_with(Era::Legacy, "token-of-ci");
    let mut web = Web::new(&host.address);
    web.token = Some("token-of-all".to_owned());
    web.session = ci.over_http().session.clone();
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    assert_eq!(web.exchange("POST", &web.common(), ping).status, 404);
    web.token = Some("token-of-ci".to_owned());
    assert_eq!(web.exchange("POST", &web.common(), ping).status, 200);
    assert!(!host.stderr().contains("token-of"), "tokens stand in no log");
}

#[test]
fn the_end_of_the_last_session_ends_its_upstreams() {
    let host = Host::workbench(dev("proxy", json!({"a": fake("--with echo")})));
    let mut clients = [Era::Legacy, Era::Legacy].map(|era| host.client(era));
    for client in &mut clients {
        client.call("open_toolbox", r#"{"toolbox_name":"dev"}"#).text();
    }
    let fakes = |host: &Host| {
        let all = host.lab.processes();
        all.iter().filter(|(_, line)| line.contains("fake-upstream") && line.contains("--with")).count()
    };
    let [mut one, mut two] = clients;
    let running = fakes(&host);
    assert!(running > 0);
    let delete = |web: &Web| web.exchange("DELETE", &web.common(), "").status;
    assert_eq!(delete(one.over_http()), 204);
    assert_eq!(delete(one.over_http()), 404, "it has ended");
    two.call("use_tool", use_tool("echo", json!({}))).text();
    assert_eq!(fakes(&host), running, "the other has it open");
    assert_eq!(delete(two.over_http()), 204);
    two.until("the upstream is gone", |_| fakes(&host) == 0);
    assert_eq!(get(&host, "/healthz", "").status, 200);
}

#[test]
fn a_call_in_flight_finishes_while_the_gateway_drains() {
    for era in [Era::Legacy, Era::Modern] {
        let mut host = Host::workbench(dev("proxy", json!({"a": fake("--with slow,started")})));
        let mut client = host.client(era);
        client.call("open_toolbox", r#"{"toolbox_name":"dev"}"#).text();
        let slow = client.post_call("use_tool", use_tool("slow", json!({"key": "k", "ms": 1000})));
        client.call("use_tool", use_tool("started", json!({"key": "k"}))).text();
        host.signal("TERM");
        client.until("it drains", |_| get(&host, "/readyz", "").status == 503);
        assert_eq!(get(&host, "/healthz", "").status, 200);
        let web = client.over_http();
        let refused = web.exchange("POST", &web.common(), r#"{"jsonrpc":"2.0","id":99,"method":"ping"}"#);
        assert_eq!(refused.status, 503);
        assert_eq!(refused.headers.get("connection").map(String::as_str), Some("close"));
        assert_eq!(client.answer(&slow).text(), "slow");
        assert_eq!(host.wait().code(), Some(0));
    }
}

#[test]
fn what_takes_longer_than_the_drain_fails_and_the_exit_is_orderly() {
    for era in [Era::Legacy, Era::Modern] {
        let config = dev("proxy", json!({"a": fake("--with slow,started")}));
        let gateway = Gateway::spawn_with(Lab::new(), config, |command| {
            command.args(["serve", "--http", "127.0.0.1:0", "--drain", "0.1"]);
        });
        let mut host = Host::new(gateway);
        let mut client = host.client(era);
        client.call("open_toolbox", r#"{"toolbox_name":"dev"}"#).text();
        let slow = client.post_call("use_tool", use_tool("slow", json!({"key": "k"})));
        client.call("use_tool", use_tool("started", json!({"key": "k"}))).text();
        host.signal("TERM");
        let answer = client.answer(&slow);
        assert!(!answer.at(&["error"]).is_empty() || answer.is_error(), "{answer:?}");
        assert_eq!(host.wait().code(), Some(0));
        host.lab.wait_until_gone(DEADLINE);
    }
}

#[test]
fn numbers_beyond_measure_do_no_harm() {
    let mut a = fake("--with echo");
    for key in ["connectTimeout", "callTimeout", "maxCallTime"] {
        a[key] = json!(1e300);
    }
    let mut config = dev("proxy", json!({"a": a}));
    for key in ["maxMessageBytes", "maxBodyBytes", "maxNameLength"] {
        config[key] = json!(u64::MAX);
    }
    for key in ["questionTimeout", "sessionIdleTimeout"] {
        config[key] = json!(1e300);
    }
    let gateway = Gateway::spawn_with(Lab::new(), config, |command| {
        command.args(["serve", "--http", "127.0.0.1:0", "--drain", "1e19"]);
    });
    let mut host = Host::new(gateway);
    for era in [Era::Legacy, Era::Modern] {
        let mut client = host.client(era);
        client.call("open_toolbox", r#"{"toolbox_name":"dev"}"#).text();
        client.call("use_tool", use_tool("echo", json!({}))).text();
    }
    // The session's own stream has one of the first numbers.
    let mut client = host.client(Era::Legacy);
    for stream in [0, 1, 2, u64::MAX] {
        client.over_http().listen_after(&format!("{stream}-{}", u64::MAX));
        assert_eq!(client.request("ping", "{}").result(), json!({}), "{stream}");
    }
    host.signal("TERM");
    assert_eq!(host.wait().code(), Some(0));
}

#[test]
fn toolman_is_ready_when_its_servers_are() {
    let config = format!("startup_wait = 30\n{}", server("p", "--with echo --wait-for @dir/go", ""));
    let host = Host::toolman(config);
    let answer = get(&host, "/readyz", "");
    assert_eq!(answer.status, 503);
    assert!(!answer.body.is_empty(), "a reason");
    assert_eq!(get(&host, "/healthz", "").status, 200);
    host.lab.write("go", "");
    host.client(Era::Modern).until("it is ready", |_| get(&host, "/readyz", "").status == 200);
}

#[test]
fn a_port_in_use_and_a_public_address_without_tokens_are_refused() {
    let host = Host::workbench(dev("proxy", json!({})));
    let lab = Lab::new();
    let file = lab.write("workbench-config.json", &dev("proxy", json!({})).to_string());
    for (address, code, says) in [
        (host.address.as_str(), 1, "cannot listen on"),
        ("0.0.0.0:0", 2, "--auth-token-file"),
        ("nonsense", 2, "nonsense"),
    ] {
        let finished = lab.run(lab.command().arg("--config").arg(&file).args(["serve", "--http", address]));
        assert_eq!(finished.code, Some(code), "{address}: {finished:?}");
        assert!(finished.stderr.contains(says), "{address}: {finished:?}");
        assert_eq!(finished.stdout, "");
    }
}

#[cfg(unix)]
#[test]
fn a_token_file_belongs_to_its_owner() {
    use std::os::unix::fs::PermissionsExt;

    let prepare = |name: &str, mode: u32| {
        let lab = Lab::new();
        lab.write("workbench-config.json", &dev("proxy", json!({})).to_string());
        let file = lab.write(name, "token-of-file\n");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
        lab
    };
    let arguments = |name| ["serve", "--http", "127.0.0.1:0", "--auth-token-file", name];
    for mode in [0o620, 0o602, 0o622, 0o664, 0o666] {
        let lab = prepare("token", mode);
        let refused = lab.run(lab.command().args(arguments("token")));
        assert_eq!((refused.code, &*refused.stdout), (Some(2), ""), "{mode:o}: {refused:?}");
        let expected = "error: --auth-token-file token can be written by its group or by others\nrun `chmod 600 token`\n";
        assert_eq!(refused.stderr, expected, "{mode:o}");
    }
    for (name, mode, warning) in [
        ("token", 0o600, None),
        ("token", 0o400, None),
        ("token", 0o640, Some("run `chmod 600 token`")),
        ("token", 0o604, Some("run `chmod 600 token`")),
        ("token", 0o440, Some("run `chmod 600 token`")),
        ("my 'token'", 0o644, Some(r"run `chmod 600 'my '\''token'\'''`")),
    ] {
        let gateway = Gateway::run_in(prepare(name, mode), &gateway_path(), |command| {
            command.args(arguments(name));
        });
        let mut host = Host::new(gateway);
        assert_eq!(get(&host, "/mcp", "").status, 401, "{mode:o}");
        let authorization = "Authorization: Bearer token-of-file\r\n";
        assert_eq!(get(&host, "/mcp", authorization).status, 400, "{mode:o}");
        let said = warning.map_or_else(|| host.stderr(), |warning| host.stderr_with(warning));
        assert_eq!(said.matches("chmod").count(), usize::from(warning.is_some()), "{mode:o}: {said}");
        host.signal("TERM");
        assert_eq!(host.wait().code(), Some(0));
    }
}

#[test]
fn upstreams_get_the_headers_of_the_file_and_never_those_of_the_client() {
    for (era, upstream) in
        [(Era::Legacy, "legacy"), (Era::Legacy, "modern"), (Era::Modern, "legacy"), (Era::Modern, "modern")]
    {
        let remote = Remote::start(&format!("--with report --era {upstream}"));
        let server = json!({"type": "http", "url": remote.url(), "headers": {"X-Own": "from the file"}});
        let mut config = dev("proxy", json!({"a": server}));
        config["auth"] = json!({"tokens": [{"name": "ci", "token": "token-of-ci"}]});
        let host = Host::workbench(config);
        let mut client = host.client_with(era, "token-of-ci");
        client.over_http().headers = "Cookie: crumb=1\r\nX-Other: y\r\n".to_owned();
        client.call("open_toolbox", r#"{"toolbox_name":"dev"}"#).text();
        let report = client.call("use_tool", use_tool("report", json!({}))).json();
        let headers = &report["headers"]["report"];
        assert_eq!(headers["x-own"], "from the file", "{headers}");
        for name in ["authorization", "cookie", "x-other"] {
            assert!(headers[name].is_null(), "{name}: {headers}");
        }
        let modern = upstream == "modern";
        assert_eq!(headers["mcp-method"], if modern { json!("tools/call") } else { Value::Null });
        assert_eq!(headers["mcp-name"], if modern { json!("report") } else { Value::Null });
        assert_eq!(headers["mcp-session-id"].is_null(), modern, "{headers}");
    }
}

#[test]
fn a_lost_session_is_opened_anew_without_the_client_noticing() {
    for era in [Era::Legacy, Era::Modern] {
        let remote = Remote::start("--with echo,forget,report");
        let server = json!({"type": "http", "url": remote.url()});
        let host = Host::workbench(dev("proxy", json!({"a": server})));
        let mut client = host.client(era);
        client.call("open_toolbox", r#"{"toolbox_name":"dev"}"#).text();
        client.call("use_tool", use_tool("forget", json!({}))).text();
        client.call("use_tool", use_tool("echo", json!({}))).text();
        assert_eq!(client.call("use_tool", use_tool("report", json!({}))).json()["sessions"], 2);
    }
}

#[test]
fn an_upstream_over_http_that_was_away_is_reached_again() {
    for upstream in ["legacy", "modern"] {
        let mut remote = Remote::start(&format!("--with slow,started,echo --era {upstream}"));
        let server = json!({"type": "http", "url": remote.url()});
        let host = Host::workbench(dev("proxy", json!({"a": server})));
        let mut client = host.client(Era::Modern);
        client.call("open_toolbox", r#"{"toolbox_name":"dev"}"#).text();
        let lost = client.post_call("use_tool", use_tool("slow", json!({"key": "k"})));
        client.call("use_tool", use_tool("started", json!({"key": "k"}))).text();
        remote.kill();
        assert!(client.answer(&lost).failure().contains("[dev/a/slow]"), "{upstream}");
        remote.again();
        client.until("it is back", |client| !client.call("use_tool", use_tool("echo", json!({}))).is_error());
    }
}

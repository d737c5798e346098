//! Answers of all shapes, and the requests that lead to them.

use std::collections::HashMap;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;

use super::server::{BodyStep, Reply, Server};
use super::{Client, HANGING, HELLO, INITIALIZE, LIMIT, error, result};
use crate::protocol::tool_headers::ToolHeader;
use crate::transport::http_client::Endpoint;

/// Checks what the client receives, line by line, from a server that gives one answer to everything.
async fn check(reply: impl Fn() -> Reply + Send + Sync + 'static, expected: &[&str]) {
    let server = Server::start(move |_| reply()).await;
    let mut client = Client::of(&server);
    client.ask(7, "tools/call", r#""name":"t","#).await;
    for expected in expected {
        client.expect(expected).await;
    }
    assert_eq!(client.close().await, (Ok(()), Vec::new()));
    assert_eq!(server.log(), ["POST tools/call version=2026-07-28"], "nothing is sent twice");
}

#[tokio::test]
async fn answers_come_as_json_or_as_a_stream() {
    let answer = result(7, "a");
    let progress = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{}}"#;
    let question = r#"{"jsonrpc":"2.0","id":"q","method":"roots/list"}"#;
    let (on_answer, on_progress, on_question) =
        (format!("7 {answer}"), format!("7 {progress}"), format!("7 {question}"));

    let text = answer.clone();
    check(move || Reply::json(&text), &[&on_answer]).await;
    let text = format!("\n {}\n", answer.replace(',', ",\n"));
    check(
        {
            let text = text.clone();
            move || Reply::json(&text)
        },
        &[&format!("7 {text}")],
    )
    .await;
    let text = format!(r#"[{answer},{{"jsonrpc":"2.0","id":null,"error":{{"code":1,"message":"m"}}}}]"#);
    let on_stream = text.clone();
    check(move || Reply::json(&text), &[&on_answer]).await;
    check(move || Reply::events(format!("data: {on_stream}\n\n")), &[&on_answer]).await;
    let text = format!("[{progress},{answer}]");
    check(move || Reply::json(&text), &[&on_progress, &on_answer]).await;
    let text = format!(
        "event: message\ndata: {progress}\n\n: comment\n\nevent: other\ndata: {{}}\n\ndata: {question}\n\ndata: {answer}\n\n"
    );
    check(move || Reply::events(&text), &[&on_progress, &on_question, &on_answer]).await;
    // The answer counts as soon as it arrives, before the stream ends. Answers to other requests are passed
    // on.
    let text = format!("data: {}\n\ndata: nonsense\n\ndata: {answer}\n\n", result(8, "other"));
    let on_other = format!("7 {}", result(8, "other"));
    check(move || Reply::events(&text).then(BodyStep::Hold), &[&on_other, &on_answer]).await;
    // The same holds for an answer that cannot be read.
    let text = answer.replace("\"a\"", "NaN");
    let on_broken = format!("7 {text}");
    check(move || Reply::events(format!("data: {text}\n\n")).then(BodyStep::Hold), &[&on_broken]).await;
    // Some servers send the wrong content type.
    let text = answer.clone();
    check(move || Reply::status(200).kind("text/plain").text(&text), &[&on_answer]).await;
}

#[tokio::test]
async fn what_is_no_answer_becomes_an_error() {
    let instead = |kind: &str, status: u16| {
        error(
            7,
            &format!(
                "the server answered HTTP {status} with {kind} instead of a JSON-RPC message; is the URL right?"
            ),
            Some(status),
        )
    };
    check(
        || Reply::status(200).kind("text/html; charset=utf-8").text("<html>"),
        &[&instead("text/html", 200)],
    )
    .await;
    check(|| Reply::status(202), &[&instead("nothing", 202)]).await;
    check(|| Reply::json("{"), &[&instead("application/json", 200)]).await;
    let other = format!("7 {}", result(8, "other"));
    check(|| Reply::json(result(8, "other")), &[&other, &instead("application/json", 200)]).await;
    check(
        || Reply::status(500).text(r#"{"jsonrpc":"2.0","id":7,"error":"internal"}"#),
        &[&error(7, "the server answered HTTP 500 Internal Server Error", Some(500))],
    )
    .await;
    check(
        || Reply::status(502).text("<html>"),
        &[&error(7, "the server answered HTTP 502 Bad Gateway", Some(502))],
    )
    .await;
    check(|| Reply::status(404), &[&error(7, "the server answered HTTP 404 Not Found", Some(404))]).await;
    check(
        || Reply::status(403).kind("application/json").text(r#"{"error":"invalid_token"}"#),
        &[&error(
            7,
            "the server answered HTTP 403 Forbidden: it refuses these credentials or this address",
            Some(403),
        )],
    )
    .await;
    let ended = error(7, "the server ended the stream without an answer", None);
    check(|| Reply::events("data: {}\n\n"), &[&ended, "[missed]"]).await;
    // The modern era has no resumption.
    check(|| Reply::events("id: 1\ndata:\n\n").then(BodyStep::Break), &[&ended, "[missed]"]).await;
}

#[tokio::test]
async fn errors_of_the_server_are_its_own() {
    let body = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32022,"message":"m","data":{"supported":[]}}}"#;
    check(move || Reply::status(400).kind("application/json").text(body), &[&format!("7 {body}")]).await;
    let body = r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32601,"message":"m"}}"#;
    check(move || Reply::status(404).kind("application/json").text(body), &[&format!("7 {body}")]).await;
}

#[tokio::test]
async fn what_is_too_long_fails_its_call_only() {
    let long = || result(7, &"x".repeat(LIMIT));
    let length = long().len();
    let expected =
        error(7, &format!("the answer has {length} bytes, more than the {LIMIT} of maxMessageBytes"), None);
    check(move || Reply::json(long()).with("content-length", &length.to_string()), &[&expected]).await;
    let chunked = error(7, &format!("the answer has more than the {LIMIT} bytes of maxMessageBytes"), None);
    check(move || Reply::json(long()), &[&chunked]).await;
    check(move || Reply::events(format!("data: {}\n\n", long())), &[&expected]).await;
    let note = format!(r#"{{"jsonrpc":"2.0","method":"n","params":{{"x":"{}"}}}}"#, "x".repeat(LIMIT));
    let answer = result(7, "a");
    let expected = format!("7 {answer}");
    check(move || Reply::events(format!("data: {note}\n\ndata: {answer}\n\n")), &[&expected]).await;
}

#[tokio::test]
async fn calls_do_not_wait_for_each_other() {
    let (open, wait) = watch::channel(false);
    let server = Server::start(move |asked| {
        let reply = Reply::json(result(asked.id, "a"));
        if asked.id == 1 { reply.when(wait.clone()) } else { reply }
    })
    .await;
    let mut client = Client::of(&server);
    client.ask(1, "tools/list", "").await;
    client.ask(2, "tools/list", "").await;
    client.expect(&format!("2 {}", result(2, "a"))).await;
    open.send_replace(true);
    client.expect(&format!("1 {}", result(1, "a"))).await;
}

#[tokio::test]
async fn headers_say_what_the_body_says() {
    let server = Server::start(|asked| {
        let names = [
            "accept",
            "content-type",
            "mcp-method",
            "mcp-name",
            "mcp-param-region",
            "x-key",
            "authorization",
        ];
        let shown = names.map(|name| asked.header(name)).join("|");
        Reply::json(result(asked.id, &shown))
    })
    .await;
    let mut client = Client::at(Endpoint {
        url: server.url.replace("http://", "http://me:p%40ss@"),
        headers: vec![("X-Key".into(), "k".into()), ("Accept".into(), "text/html".into())],
        sse: false,
    });
    let region = ToolHeader { path: vec!["where".into()], suffix: "Region".into() };
    client.tools.set(HashMap::from([("t".to_owned(), vec![region])]));
    client.ask(1, "tools/call", r#""name":"t","arguments":{"where":"é"},"#).await;
    let both = "application/json, text/event-stream|application/json";
    let key = "k|Basic bWU6cEBzcw==";
    client.expect(&format!("1 {}", result(1, &format!("{both}|tools/call|t|=?base64?w6k=?=|{key}")))).await;
    client.call(2, "tools/call").await;
    client.expect(&format!("2 {}", result(2, &format!("{both}|-|-|-|{key}")))).await;
}

#[tokio::test]
async fn cancelling_a_modern_call_ends_its_stream() {
    let (dropped, gone) = oneshot::channel();
    let dropped = parking_lot::Mutex::new(Some(dropped));
    let server = Server::start(move |asked| match asked.id {
        1 => Reply::events("data: {\"jsonrpc\":\"2.0\",\"method\":\"started\"}\n\n")
            .then(BodyStep::Hold)
            .dropped(dropped.lock().take().unwrap()),
        id => Reply::json(result(id, "a")),
    })
    .await;
    let mut client = Client::of(&server);
    client.ask(1, "tools/call", r#""name":"t","#).await;
    client.expect(r#"1 {"jsonrpc":"2.0","method":"started"}"#).await;
    client.send(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#).await;
    timeout(HANGING, gone).await.unwrap().unwrap_err();
    client.ask(2, "tools/list", "").await;
    client.expect(&format!("2 {}", result(2, "a"))).await;
    assert_eq!(server.log(), ["POST tools/call version=2026-07-28", "POST tools/list version=2026-07-28"]);
}

#[tokio::test]
async fn redirects_stay_within_the_origin() {
    let server = Server::start(|asked| match asked.path.as_str() {
        "/mcp" => Reply::status(307).with("location", "/there/"),
        "/there/" => {
            Reply::json(result(asked.id, &format!("{} {}", asked.header("x-key"), asked.body.len())))
        }
        _ => unreachable!(),
    })
    .await;
    let endpoint =
        |url: &str| Endpoint { url: url.into(), headers: vec![("x-key".into(), "k".into())], sse: false };
    let mut client = Client::at(endpoint(&server.url));
    client.call(5, "m").await;
    client.expect(&format!("5 {}", result(5, "k 49"))).await;

    let target = server.url.clone();
    let other = Server::start(move |_| Reply::status(308).with("location", &target)).await;
    let mut client = Client::at(endpoint(&other.url));
    client.call(5, "m").await;
    let origin = server.url.strip_suffix("/mcp").unwrap();
    client
        .expect(&error(
            5,
            &format!("the server redirects to {origin}, which is another origin and is not followed; if that is right, put the new URL into the configuration"),
            Some(308),
        ))
        .await;
    assert_eq!(server.log().len(), 2);

    let circle = Server::start(|_| Reply::status(301).with("location", "/mcp")).await;
    let mut client = Client::of(&circle);
    client.call(5, "m").await;
    client.expect(&error(5, "the server redirects in a circle", None)).await;
}

#[tokio::test]
async fn the_old_transport_is_found_by_itself_and_on_demand() {
    for (sse, log) in [
        (true, vec!["GET", "POST initialize", "POST notifications/initialized", "POST tools/list"]),
        (
            false,
            vec![
                "POST server/discover version=2026-07-28",
                "POST initialize",
                "GET",
                "POST initialize",
                "POST notifications/initialized",
                "POST tools/list",
            ],
        ),
    ] {
        let (say, said) = mpsc::channel(9);
        let said = parking_lot::Mutex::new(Some(said));
        let server = Server::start(move |asked| match (asked.method.as_str(), asked.path.as_str()) {
            ("GET", "/mcp") => Reply::events("event: endpoint\ndata: /messages?s=1\n\n")
                .then(BodyStep::From(said.lock().take().unwrap())),
            ("POST", "/messages?s=1") => {
                let answer = match asked.rpc.as_str() {
                    "initialize" => HELLO.to_owned(),
                    "tools/list" => result(asked.id, "a"),
                    _ => return Reply::status(202),
                };
                say.try_send(format!("event: message\ndata: {answer}\n\n")).unwrap();
                Reply::status(202).text("Accepted")
            }
            _ => Reply::status(405),
        })
        .await;
        let mut client = Client::at(Endpoint { url: server.url.clone(), headers: Vec::new(), sse });
        client.ask(9, "server/discover", "").await;
        if sse {
            client
                .expect(r#"9 {"jsonrpc":"2.0","id":9,"error":{"code":-32601,"message":"the HTTP+SSE transport has no modern era"}}"#)
                .await;
        } else {
            client.expect(&error(9, "the server answered HTTP 405 Method Not Allowed", Some(405))).await;
        }
        client.send(INITIALIZE).await;
        client.expect(&format!("- {HELLO}")).await;
        client.send(super::INITIALIZED).await;
        client.call(2, "tools/list").await;
        client.expect(&format!("- {}", result(2, "a"))).await;
        assert_eq!(client.close().await, (Ok(()), Vec::new()));
        assert_eq!(server.log(), log);
    }
}

#[tokio::test]
async fn the_old_transport_sends_nothing_to_another_origin() {
    let server = Server::start(|asked| match asked.method.as_str() {
        "GET" => Reply::events("event: endpoint\ndata: http://127.0.0.1:1/messages\n\n").then(BodyStep::Hold),
        _ => Reply::status(404),
    })
    .await;
    let client = Client::at(Endpoint { url: server.url.clone(), headers: Vec::new(), sse: true });
    let reason = "the server names an `endpoint` of another origin, where nothing is sent";
    assert_eq!(client.end().await, (Err(reason.to_owned()), Vec::new()));
    // If the old transport was only a fallback, the first answer stands.
    let mut client = Client::of(&server);
    client.send(INITIALIZE).await;
    client.expect(&error(1, "the server answered HTTP 404 Not Found", Some(404))).await;
    assert_eq!(client.close().await, (Ok(()), Vec::new()));
}

#[tokio::test]
async fn the_end_of_the_old_stream_is_the_end() {
    let (say, said) = mpsc::channel(1);
    let said = parking_lot::Mutex::new(Some(said));
    let server = Server::start(move |asked| match asked.method.as_str() {
        "GET" => Reply::events("event: endpoint\ndata: messages\n\n")
            .then(BodyStep::From(said.lock().take().unwrap())),
        _ => Reply::status(if asked.path == "/messages" && asked.rpc == "ping" { 202 } else { 500 }),
    })
    .await;
    let mut client = Client::at(Endpoint { url: server.url.clone(), headers: Vec::new(), sse: true });
    client.call(1, "other").await;
    client.expect(&error(1, "the server answered HTTP 500 Internal Server Error", Some(500))).await;
    client.call(2, "ping").await;
    let long = result(2, &"x".repeat(LIMIT));
    say.send(format!("data: {long}\n\n")).await.unwrap();
    client
        .expect(&error(
            2,
            &format!("the answer has {} bytes, more than the {LIMIT} of maxMessageBytes", long.len()),
            None,
        ))
        .await;
    drop(say);
    assert_eq!(client.end().await, (Err("the server ended the event stream".into()), Vec::new()));
}

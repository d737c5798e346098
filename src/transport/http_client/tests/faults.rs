//! Servers that are unreachable or misbehave.

use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::server::{BodyStep, Reply, Server};
use super::{Client, error, result};
use crate::transport::http_client::connect::Http;
use crate::transport::http_client::reach::Gate;
use crate::transport::http_client::{Authorities, Endpoint, HttpClient, Incoming};

fn endpoint(url: &str) -> Endpoint {
    Endpoint {
        url: url.to_owned(),
        headers: vec![("Authorization".into(), "Bearer s3cret".into())],
        sse: false,
    }
}

#[tokio::test]
async fn a_server_out_of_reach_ends_the_client() {
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let plain = Server::start(|_| Reply::status(200)).await;
    let tls = plain.url.replace("http://", "https://");
    let tls_origin = tls.strip_suffix("/mcp").unwrap();
    for (url, reason) in [
        (format!("http://me:pa55word@{free}/mcp"), format!("connection refused by http://{free}")),
        (
            "http://does-not-exist.invalid/mcp".into(),
            "the host name does-not-exist.invalid cannot be resolved".into(),
        ),
        (tls.clone(), format!("TLS: {tls_origin} does not speak TLS; is its URL http://?")),
    ] {
        let mut client = Client::at(endpoint(&url));
        client.ask(1, "server/discover", "").await;
        client.expect(&error(1, &reason, None)).await;
        assert_eq!(client.end().await, (Err(reason), Vec::new()));
    }
}

#[tokio::test]
async fn certificates_are_checked() {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let origin = format!("https://localhost:{}", listener.local_addr().unwrap().port());
    let server = tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            let mut request = Vec::new();
            while !String::from_utf8_lossy(&request).contains("2026-07-28\"}}}") {
                assert_ne!(stream.read_buf(&mut request).await.unwrap(), 0);
            }
            let body = result(1, "safe");
            let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len());
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    let mut trusted = rustls::RootCertStore::empty();
    trusted.add(made.cert.der().clone()).unwrap();
    for (roots, expected) in [
        (trusted, format!("1 {}", result(1, "safe"))),
        (
            rustls::RootCertStore::empty(),
            error(1, &format!("TLS: the certificate of {origin} is not accepted: UnknownIssuer"), None),
        ),
    ] {
        let client = HttpClient::new(endpoint(&origin), 999).unwrap();
        let tls = rustls::ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let http =
            Http::with_tls(Arc::new(tls), client.headers.clone(), Gate::configured(Authorities::default()));
        let (out, outgoing) = tokio::sync::mpsc::channel(9);
        out.send(super::modern(1, "server/discover", "").into_bytes()).await.unwrap();
        let (send, mut received) = tokio::sync::mpsc::channel(9);
        let run = client.run_with(http, outgoing, move |incoming: Incoming<'_>| {
            send.try_send(format!("1 {}", String::from_utf8_lossy(incoming.message))).unwrap();
        });
        let first = tokio::select! {
            biased;
            first = received.recv() => first,
            _ = run => received.recv().await,
        };
        assert_eq!(first.unwrap(), expected);
    }
    server.abort();
}

#[tokio::test]
async fn an_answer_that_is_under_way_outlives_the_listener() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let origin = format!("http://{}", listener.local_addr().unwrap());
    let mut client = Client::at(endpoint(&origin));
    client.ask(1, "tools/list", "").await;
    let (mut connection, _) = listener.accept().await.unwrap();
    drop(listener);
    client.ask(2, "tools/list", "").await;
    let reason = format!("connection refused by {origin}");
    client.expect(&error(2, &reason, None)).await;
    let body = result(1, "late");
    let answer = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    connection.write_all(answer.as_bytes()).await.unwrap();
    client.expect(&format!("1 {body}")).await;
    assert_eq!(client.end().await, (Err(reason), Vec::new()));
}

#[tokio::test]
async fn credentials_that_are_refused_end_the_handshake() {
    let server = Server::start(|_| Reply::status(401).with("www-authenticate", "Bearer")).await;
    let mut client = Client::at(endpoint(&server.url));
    client.ask(1, "server/discover", "").await;
    let reason = "the server answered HTTP 401 Unauthorized: it needs credentials; set or correct `headers`";
    client.expect(&error(1, reason, Some(401))).await;
    assert_eq!(client.end().await, (Err(reason.to_owned()), Vec::new()));
}

#[tokio::test]
async fn a_request_that_was_sent_is_never_sent_again() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut client = Client::at(endpoint(&format!("http://{}", listener.local_addr().unwrap())));
    client.ask(1, "tools/call", "").await;
    for (id, answer, reason) in [
        (1, "", "the server closed the connection without an answer"),
        (
            2,
            "HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\n{",
            "the connection broke in the middle of the answer",
        ),
        (
            3,
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 50\r\n\r\ndata: {",
            "the server ended the stream without an answer",
        ),
        (4, "SSH-2.0-x\r\n\r\n", "the connection failed: invalid HTTP version parsed"),
    ] {
        let (mut connection, _) = listener.accept().await.unwrap();
        let mut request = Vec::new();
        while !String::from_utf8_lossy(&request).contains("2026-07-28\"}}}") {
            assert_ne!(connection.read_buf(&mut request).await.unwrap(), 0);
        }
        connection.write_all(answer.as_bytes()).await.unwrap();
        drop(connection);
        client.expect(&error(id, reason, None)).await;
        // A connection that breaks while a list is read tells us nothing new.
        if id < 4 {
            client.expect("[missed]").await;
        }
        client.ask(id + 1, if id < 3 { "tools/call" } else { "tools/list" }, "").await;
    }
}

#[tokio::test]
async fn connections_are_used_again() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut client = Client::at(endpoint(&format!("http://{}", listener.local_addr().unwrap())));
    client.ask(1, "tools/list", "").await;
    let (mut connection, _) = listener.accept().await.unwrap();
    for id in 1..5 {
        let mut request = Vec::new();
        while !String::from_utf8_lossy(&request).contains("2026-07-28\"}}}") {
            assert_ne!(connection.read_buf(&mut request).await.unwrap(), 0);
        }
        // An answer whose stream ends with it frees its connection, too.
        let body = format!("data: {}\n\n", result(id, "a"));
        let answer = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        connection.write_all(answer.as_bytes()).await.unwrap();
        client.expect(&format!("{id} {}", result(id, "a"))).await;
        // The client's task runs on this thread and must see the end first.
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        client.ask(id + 1, "tools/list", "").await;
    }
}

#[tokio::test]
async fn a_panic_costs_one_message() {
    let server = Server::start(|asked| Reply::json(result(asked.id, "a"))).await;
    let client = HttpClient::new(endpoint(&server.url), 999).unwrap();
    let (out, outgoing) = tokio::sync::mpsc::channel(9);
    let (send, mut received) = tokio::sync::mpsc::channel(9);
    let run = tokio::spawn(client.run(outgoing, move |incoming: Incoming<'_>| {
        assert_ne!(incoming.on, Some(1), "a panic on purpose");
        send.try_send(incoming.on).unwrap();
    }));
    for id in [1, 2] {
        out.send(super::modern(id, "tools/list", "").into_bytes()).await.unwrap();
    }
    assert_eq!(received.recv().await, Some(Some(2)));
    drop(out);
    assert_eq!(run.await.unwrap(), Ok(()));
}

#[tokio::test]
async fn a_client_that_is_let_go_drops_what_is_open() {
    let (dropped, gone) = tokio::sync::oneshot::channel();
    let dropped = parking_lot::Mutex::new(Some(dropped));
    let server = Server::start(move |_| {
        Reply::events("data: {\"jsonrpc\":\"2.0\",\"method\":\"started\"}\n\n")
            .then(BodyStep::Hold)
            .dropped(dropped.lock().take().unwrap())
    })
    .await;
    let mut client = Client::of(&server);
    client.ask(1, "subscriptions/listen", "").await;
    client.expect(r#"1 {"jsonrpc":"2.0","method":"started"}"#).await;
    assert_eq!(client.close().await, (Ok(()), Vec::new()));
    tokio::time::timeout(super::HANGING, gone).await.unwrap().unwrap_err();
}

#[test]
fn endpoints_are_checked_without_showing_secrets() {
    let check = |url: &str, header: (&str, &str), expected: &str| {
        let endpoint =
            Endpoint { url: url.into(), headers: vec![(header.0.into(), header.1.into())], sse: false };
        assert_eq!(HttpClient::new(endpoint, 1).err().unwrap(), expected);
    };
    let fine = ("x", "y");
    check("http://u:s3cret@h:x/", fine, "the URL's port is malformed");
    check("ws://u:s3cret@h/", fine, "the URL must begin with http:// or https://");
    check("http://h/", ("a b", "s3cret"), "\"a b\" is not a header name");
    check("http://h/", ("key", "s3cret\r\nx: y"), "the value of the header key cannot be sent");
}

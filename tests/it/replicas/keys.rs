//! The keys in the store while work is done, for a user that has exactly the rights of the documents.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::json;

use super::streams::PROGRESS;
use super::{Cluster, echo, open, until};
use crate::client::{Client, Era};
use crate::harness::{DEADLINE, dev, fake};
use crate::store::{Reply, Store};

const ASK: &str = r#"{"method":"elicitation/create","params":"{\"message\":\"Who?\",\"requestedSchema\":{\"type\":\"object\",\"properties\":{}}}"}"#;

/// The commands that the server is sent, as it tells them itself.
struct Monitor(BufReader<TcpStream>);

impl Monitor {
    fn of(store: &Store) -> Self {
        let mut stream = TcpStream::connect(store.address()).expect("it listens");
        stream.set_read_timeout(Some(DEADLINE)).expect("a time");
        stream.write_all(b"MONITOR\r\n").expect("it reads");
        let mut reader = BufReader::new(stream);
        let mut ok = String::new();
        reader.read_line(&mut ok).expect("a line");
        assert_eq!(ok.trim(), "+OK");
        Self(reader)
    }

    /// Who sent each command, its name and its first words, up to the one that has this word.
    fn until(mut self, last: &str) -> Vec<(String, String, String)> {
        let mut commands = Vec::new();
        let mut line = Vec::new();
        loop {
            line.clear();
            self.0.read_until(b'\n', &mut line).expect("a line");
            let text = String::from_utf8_lossy(&line);
            let (_, rest) = text.split_once('[').expect("who");
            let (who, words) = rest.split_once("] ").expect("a command");
            let mut words = words.split('"').skip(1).step_by(2).map(str::to_owned);
            let (name, first) =
                (words.next().unwrap_or_default(), words.by_ref().take(2).collect::<Vec<_>>().join(" "));
            if first == last {
                return commands;
            }
            commands.push((who.to_owned(), name.to_uppercase(), first));
        }
    }
}

/// Looks at all keys at once, again and again, until it is told to end. Returns how often, and the keys without an end.
fn watch(address: String, ended: Arc<AtomicBool>) -> std::thread::JoinHandle<(usize, Vec<String>)> {
    const LASTING: &str = "local l = {} for _, k in ipairs(redis.call('KEYS', '*')) do \
        if redis.call('PTTL', k) < 0 then l[#l + 1] = k end end return l";
    std::thread::spawn(move || {
        let (mut looks, mut lasting) = (0, Vec::new());
        while !ended.load(Ordering::Relaxed) {
            let stream = TcpStream::connect(&address).expect("it listens");
            let Ok(Reply::List(found)) = crate::store::ask(stream, &["EVAL", LASTING, "0"]) else {
                panic!("a list")
            };
            lasting.extend(found.into_iter().map(|key| format!("{key:?}")));
            looks += 1;
            // The server is there for others, too.
            std::thread::sleep(Duration::from_millis(2));
        }
        (looks, lasting)
    })
}

#[test]
fn no_key_lasts_letters_go_when_they_come_and_sessions_leave_a_marker() {
    let Some(store) = Store::start() else { return };
    let mut words = vec!["ACL", "SETUSER", "gateway", "on", ">p@ss word", "resetchannels"];
    words.extend("~mcpwb:{default}:* &mcpwb:{default}:* +@all -@admin -@dangerous".split(' '));
    store.ask(&words);
    let url = format!("redis://gateway:p%40ss%20word@{}/0", store.address());
    let monitor = Monitor::of(&store);
    let ended = Arc::new(AtomicBool::new(false));
    let watching = watch(store.address(), ended.clone());
    let mut cluster = Cluster { store, hosts: Vec::new() };
    let mut own = fake("--with echo,progress,ask,job,large --resources 1");
    own["isolation"] = json!("session");
    let mut config = dev("dynamic", json!({"a": own, "b": fake("--with job --era modern")}));
    (config["offloadOver"], config["stateKey"]) = (json!(4000), json!("none"));
    (0..3).for_each(|_| cluster.add_at(config.clone(), &url));

    // A bit of everything that replicas share: sessions, streams, questions, views, homes, tasks, results, states.
    let mut clients: Vec<Client> = [Era::Legacy, Era::Modern].map(|era| cluster.client(era)).into();
    for client in &mut clients {
        open(client);
        for n in 0..3 {
            echo(client, n);
        }
        let params = r#"{"name":"dev__a__progress","arguments":{"n":5}}"#;
        let id = client.post_with("tools/call", params, r#""progressToken":"p""#);
        client.notification(PROGRESS);
        client.answer(&id);
        let (questions, _) = client.call_and_answer("dev__a__ask", ASK, r#"{"action":"decline"}"#);
        assert_eq!(questions.len(), 1);
        client.call("dev__a__large", r#"{"bytes":5000}"#).text();
    }
    clients[1].can(r#"{"extensions":{"io.modelcontextprotocol/tasks":{}}}"#);
    let task = clients[1].call("dev__b__job", "{}").result();
    assert_eq!(task["status"], "working", "{task}");
    let kept = cluster.store.entries();
    for kind in ["members", "key", "session:", "log:", "view:", "own:", "result:", "mail:"] {
        assert!(kept.iter().any(|entry| entry.key.contains(kind)), "no {kind} in {kept:#?}");
    }
    let logs = kept.iter().filter(|entry| entry.key.contains(":log:"));
    assert!(
        logs.into_iter().all(|log| log.expires <= 300_000),
        "streams are kept for five minutes: {kept:#?}"
    );

    let web = clients[0].over_http();
    assert_eq!(web.exchange("DELETE", &web.common(), "").status, 204);
    until("a marker is all that is left of the session", || {
        let left = cluster.store.entries();
        let left: Vec<_> = left
            .iter()
            .filter(|entry| entry.key.contains(":session:") || entry.key.contains(":log:"))
            .collect();
        left.len() == 1 && left[0].expires <= 60_000
    });
    until("every letter was received", || {
        let boxes = cluster.store.entries().into_iter().filter(|entry| entry.key.contains(":mail:"));
        boxes.into_iter().all(|entry| cluster.store.ask(&["XLEN", &entry.key]) == Reply::Number(0))
    });
    ended.store(true, Ordering::Relaxed);
    let (looks, lasting) = watching.join().expect("no panic");
    assert!(looks > 10 && lasting.is_empty(), "{looks} looks: {lasting:?}");
    cluster.store.ask(&["ECHO", "all was done"]);
    check_commands(&monitor.until("all was done"));
    let Reply::List(refused) = cluster.store.ask(&["ACL", "LOG"]) else { panic!("a list") };
    assert!(refused.is_empty(), "the rights suffice: {refused:?}");
}

/// What makes a key gives it its time in the same breath: in a script, or between MULTI and EXEC. Most letters go to
/// mailboxes that are there.
fn check_commands(commands: &[(String, String, String)]) {
    const KEEP_NO_KEY: [&str; 13] = [
        "EVAL", "HMGET", "HGET", "PEXPIRE", "UNLINK", "XRANGE", "XREAD", "XDEL", "ZREM", "MULTI", "EXEC",
        "AUTH", "HELLO",
    ];
    // What the test itself asks.
    const OURS: [&str; 8] = ["KEYS", "PTTL", "DUMP", "XLEN", "ECHO", "ACL", "MONITOR", "EVAL"];
    let mut before: HashMap<&str, &str> = HashMap::new();
    let mut letters = 0;
    for (who, name, first) in commands {
        let last = before.insert(who, name);
        if who.ends_with("lua") || OURS.contains(&&**name) || KEEP_NO_KEY.contains(&&**name) {
            continue;
        }
        let makes_no_key = first.ends_with(" NOMKSTREAM");
        assert!(*name == "XADD" && (makes_no_key || last == Some("MULTI")), "{name} {first}");
        letters += 1;
    }
    assert!(letters > 10, "replicas talk by letters: {letters}");
}

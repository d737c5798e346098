//! The store server that the tests start for themselves: it can do what they ask of it.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::store::{Reply, Store};

fn text(words: &str) -> Reply {
    Reply::Text(words.to_owned())
}

#[test]
fn it_forgets_breaks_off_and_begins_anew_where_it_was() {
    let Some(mut store) = Store::start() else { return };
    assert_eq!(store.ask(&["SET", "a", "some words", "PX", "60000"]), text("OK"));
    let [entry] = &store.entries()[..] else { panic!("one key") };
    assert_eq!(entry.key, "a");
    assert!((1..=60_000).contains(&entry.expires), "{entry:?}");
    assert!(entry.content.contains("some words"), "{entry:?}");
    assert!(store.try_ask(&["NONSENSE"]).is_err_and(|error| error.contains("unknown command")));
    store.flush();
    assert!(store.entries().is_empty());

    let mut held = TcpStream::connect(store.address()).expect("it listens");
    held.set_read_timeout(Some(Duration::from_secs(30))).expect("a time");
    store.drop_connections();
    assert_eq!(held.read(&mut [0; 1]).ok(), Some(0), "the connection was broken");
    assert_eq!(store.ask(&["SET", "a", "1"]), text("OK"));
    let (pid, address) = (store.pid(), store.address());
    store.kill();
    assert!(TcpStream::connect(&address).is_err(), "it refuses connections");
    store.restart();
    assert_eq!(store.address(), address);
    assert_ne!(store.pid(), pid);
    assert!(store.entries().is_empty());
}

#[test]
fn it_is_silent_while_it_is_paused() {
    let Some(store) = Store::start() else { return };
    let mut stream = TcpStream::connect(store.address()).expect("it listens");
    store.pause();
    stream.set_read_timeout(Some(Duration::from_millis(50))).expect("a time");
    stream.write_all(b"PING\r\n").expect("the system takes it");
    let mut answer = [0; 7];
    assert!(stream.read(&mut answer).is_err(), "it said something");
    store.resume();
    stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a time");
    stream.read_exact(&mut answer).expect("it answers");
    assert_eq!(&answer, b"+PONG\r\n");
}

#[test]
fn the_oldest_is_redis_6_2() {
    let Some(store) = Store::oldest() else { return };
    let Reply::Text(about) = store.ask(&["INFO", "server"]) else { panic!("a text") };
    assert!(about.contains("redis_version:6.2."), "{about}");
}

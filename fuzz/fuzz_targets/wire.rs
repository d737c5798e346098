//! Bytes of a peer: cut into the same lines in whatever pieces they come, JSON exactly where another parser says so, and
//! messages that keep their payloads.
#![no_main]

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use libfuzzer_sys::fuzz_target;
use mcp_workbench::{Line, Lines, Message, Scanner, id_of_response, raw_id};

const LIMIT: usize = 512;
/// The other parser goes no deeper.
const DEEPEST: usize = 100;

fuzz_target!(|input: (u8, &[u8])| {
    let (size, bytes) = input;
    let pieces = frames(bytes, usize::from(size) + 1);
    assert_eq!(pieces, frames(bytes, usize::MAX));
    for line in pieces {
        look_at(&line);
    }
    look_at(bytes);
});

fn look_at(text: &[u8]) {
    let mut scanner = Scanner::default();
    let _ = raw_id(&mut scanner, text);
    let _ = id_of_response(&mut scanner, text, text);
    let depth = text.iter().filter(|byte| matches!(byte, b'[' | b'{')).count();
    match scanner.scan(text) {
        Ok(doc) => {
            let _ = Message::read(doc.root());
            let _ = Message::from_server(doc.root());
            let mut copy = Vec::new();
            doc.root().write_with(&mut copy, &[("id", Some("1"))]);
            Scanner::default().scan(&copy).expect("what we write is JSON");
            assert!(depth > DEEPEST || is_json(text));
        }
        Err(_) => assert!(depth > DEEPEST || !is_json(text)),
    }
}

fn is_json(text: &[u8]) -> bool {
    std::str::from_utf8(text).is_ok() && serde_json::from_slice::<serde::de::IgnoredAny>(text).is_ok()
}

fn frames(bytes: &[u8], size: usize) -> Vec<Vec<u8>> {
    let mut lines = Lines::new(LIMIT);
    let mut found = Vec::new();
    for mut chunk in bytes.chunks(size) {
        while !chunk.is_empty() {
            // A read from memory never waits.
            let read = pin!(lines.read(&mut chunk)).poll(&mut Context::from_waker(Waker::noop()));
            assert!(matches!(read, Poll::Ready(Ok(1..))));
            while let Some(line) = lines.next_line() {
                found.push(match line {
                    Line::Whole(text) => text.to_vec(),
                    Line::TooLong(line) => [line.start, b"...", line.end].concat(),
                });
            }
        }
    }
    found.extend(lines.rest().map(<[u8]>::to_vec));
    found
}

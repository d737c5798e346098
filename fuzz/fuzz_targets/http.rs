//! What comes over HTTP: event streams in whatever pieces, and headers that must agree with a body.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mcp_workbench::{Parser, headers_agree};

fuzz_target!(|input: (u8, &str, &str)| {
    let (size, one, other) = input;
    headers_agree(one, other);
    let size = usize::from(size) + 1;
    assert_eq!(events(one.as_bytes(), size), events(one.as_bytes(), usize::MAX));
});

fn events(bytes: &[u8], size: usize) -> (Vec<String>, Option<String>) {
    let mut parser = Parser::new(64);
    let mut found = Vec::new();
    for chunk in bytes.chunks(size) {
        parser.feed(chunk, |event| found.push(format!("{event:?}")));
    }
    (found, parser.last_id().map(ToOwned::to_owned))
}

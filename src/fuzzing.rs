//! What fuzz targets reach. Built with `--cfg fuzzing` only.

use hyper::header::{HeaderMap, HeaderName, HeaderValue};

pub use crate::config::expand::expand;
pub use crate::config::{Inputs, load, load_toolman};
pub use crate::json::Scanner;
pub use crate::lock::Form as LockForm;
pub use crate::lock::fuzzing::read_lock;
pub use crate::protocol::cut_off::{id_of_response, raw_id};
pub use crate::protocol::message::Message;
pub use crate::transport::lines::{Line, Lines};
pub use crate::transport::sse::Parser;

use crate::config::command_line;
use crate::face::reading;
use crate::gateway::http::fuzzing as http;
use crate::results::fuzzing as results;

/// Splits a command string and fills its variables in.
pub fn split_command(text: &str, shell: Option<bool>) {
    if let Ok(command_line::CommandLine::Words { assignments, words }) = command_line::split(text, shell) {
        let mut used = Vec::new();
        for word in assignments.iter().map(|(_, word)| word).chain(&words) {
            let _ = word.fill(&|name| (name != "NONE").then(|| name.to_lowercase()), &mut used);
        }
    }
}

/// Checks whether headers, one `name: value` a line, agree with a body.
pub fn headers_agree(headers: &str, body: &str) {
    let mut map = HeaderMap::new();
    for line in headers.lines() {
        if let Some((name, value)) = line.split_once(':')
            && let Ok(name) = HeaderName::from_bytes(name.as_bytes())
            && let Ok(value) = HeaderValue::from_str(value.trim())
        {
            map.append(name, value);
        }
    }
    let mut scanner = Scanner::default();
    if let Ok(doc) = scanner.scan_str(body) {
        http::look_at(&map, doc.root());
    }
}

/// Takes a long result out of its way, and answers a call of `read_result` with these arguments about its text.
pub fn read_long_result(arguments: &str, result: &str) {
    results::take_out(result);
    let mut scanner = Scanner::default();
    if let Ok(doc) = scanner.scan_str(arguments)
        && let Ok(request) = reading::request(Some(doc.root()))
        && !result.is_empty()
    {
        results::answer(&request, result.repeat(5000 / result.len() + 1));
    }
}

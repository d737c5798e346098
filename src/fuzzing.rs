//! The root of the crate that fuzz targets reach: of all modules only those that they run through, which are built in a
//! fraction of the time. `fuzz/Cargo.toml` makes a library of it, with `--cfg fuzzing`.
#![allow(dead_code, unused_imports, reason = "of these modules, too, targets reach only a part")]

mod config;
mod hash;
mod json;
mod lock;
mod protocol;
mod results;
mod text;

mod catalog {
    mod names;

    pub use names::nearest;
}

mod face {
    mod arguments;
    mod own_tool;
    pub mod reading;
}

mod gateway {
    pub mod http {
        mod guard;
        mod headers;

        use hyper::header::HeaderMap;

        use self::headers::{Accepted, agree, is_json, legacy_version, mirror, mirrored, says_modern};
        use crate::json::Node;
        use crate::protocol::era::ModernMeta;
        use crate::protocol::message::{Id, Request};

        /// Reads headers in every possible way, and checks whether they agree with a body.
        pub(crate) fn look_at(headers: &HeaderMap, params: Node<'_>) {
            let (_, _, _) = (Accepted::read(headers), is_json(headers), says_modern(headers));
            let _ = legacy_version(headers);
            if let Ok(meta) = ModernMeta::read(Some(params)) {
                let (id, method) = (Id::Number(1), "tools/call".into());
                let _ = agree(headers, &Request { id, method, params: Some(params), meta });
            }
            let marked = r#"{"properties":{"region":{"properties":{"name":{"type":"string","x-mcp-header":"Region"}}}}}"#;
            let _ = mirror(&mirrored(headers), marked, params.get("arguments"));
        }
    }
}

mod transport {
    pub mod lines;
    pub mod sse;
}

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
use crate::gateway::http::look_at;
use crate::results::fuzzing::{answer, take_out};

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
        look_at(&map, doc.root());
    }
}

/// Takes a long result out of its way, and answers a call of `read_result` with these arguments about its text.
pub fn read_long_result(arguments: &str, result: &str) {
    take_out(result);
    let mut scanner = Scanner::default();
    if let Ok(doc) = scanner.scan_str(arguments)
        && let Ok(request) = reading::request(Some(doc.root()))
        && !result.is_empty()
    {
        answer(&request, result.repeat(5000 / result.len() + 1));
    }
}

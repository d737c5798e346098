//! The upstream that every contestant is measured against: reads a line, answers, and does as little as can be.

use std::borrow::Cow;
use std::io::{Read, Write};

use memchr::{memchr, memmem};

use crate::{bridges, limits, load};

/// First argument of an executable that plays a role.
pub(crate) const ARGUMENT: &str = "role";

/// What a modern client says of itself in every request.
const META: &str = "\"_meta\":{\"io.modelcontextprotocol/protocolVersion\":\"2026-07-28\",\
    \"io.modelcontextprotocol/clientInfo\":{\"name\":\"bench\",\"version\":\"1\"},\
    \"io.modelcontextprotocol/clientCapabilities\":{}}";

/// The protocol versions that a client or an upstream speaks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Era {
    Legacy,
    Modern,
}

impl Era {
    pub(crate) fn named(name: &str) -> Self {
        match name {
            "legacy" => Self::Legacy,
            "modern" => Self::Modern,
            other => panic!("no such era: {other}"),
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Legacy => "legacy",
            Self::Modern => "modern",
        }
    }

    /// Raw parameters as a client of this era sends them.
    pub(crate) fn params(self, params: &str) -> Cow<'_, str> {
        match self {
            Self::Legacy => params.into(),
            Self::Modern => {
                let members = params.strip_suffix('}').expect("an object");
                let comma = if members == "{" { "" } else { "," };
                format!("{members}{comma}{META}}}").into()
            }
        }
    }
}

/// Plays the role that the arguments name, until stdin ends.
pub(crate) fn play(arguments: &[String]) {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match &*arguments {
        ["upstream", era, tools] => upstream(Era::named(era), tools.parse().expect("a number of tools")),
        ["counted", file, era, tools] => {
            let starts = std::fs::File::options().create(true).append(true).open(file);
            starts.and_then(|mut file| file.write_all(b"started\n")).expect("a file that can be written");
            upstream(Era::named(era), tools.parse().expect("a number of tools"));
        }
        ["holding", kilobytes, era, tools] => {
            let held = vec![1_u8; kilobytes.parse::<usize>().expect("a number of kilobytes") * 1024];
            upstream(Era::named(era), tools.parse().expect("a number of tools"));
            std::hint::black_box(held);
        }
        ["bytes"] => limits::bytes(),
        ["before", file] => limits::before(file),
        ["envelope", era] => limits::envelope(Era::named(era)),
        ["rmcp"] => limits::rmcp(),
        ["constant", size] => bridges::constant(size.parse().expect("a size")),
        ["bridge", era] => bridges::bridge(Era::named(era), 1),
        ["bridge", era, fronts] => bridges::bridge(Era::named(era), fronts.parse().expect("a number")),
        ["hello", file] => limits::hello(file),
        ["load", way, client, server, size, in_flight, calls, started @ ..] => {
            let eras = (Era::named(client), Era::named(server));
            load::run(way, eras, size, in_flight, calls, started);
        }
        other => panic!("no such role: {other:?}"),
    }
}

/// A server with so many tools, all alike: `size` asks for a text of that length, `text` is sent back, `never` for no
/// answer.
fn upstream(era: Era, tools: usize) {
    let modern = era == Era::Modern;
    let (complete, kept): (&[u8], &[u8]) = match era {
        Era::Legacy => (b"", b""),
        Era::Modern => (
            b"\"resultType\":\"complete\",",
            b"\"resultType\":\"complete\",\"ttlMs\":60000,\"cacheScope\":\"public\",",
        ),
    };
    let definitions: Vec<String> = (0..tools).map(definition).collect();
    let list = format!("\"tools\":[{}]}}", definitions.join(","));
    let mut text = Vec::new();
    let mut out = Vec::new();
    each_line(std::io::stdin().lock(), |line, more| {
        if let Some(id) = number_after(line, b"\"id\":") {
            let answered = out.len();
            out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
            out.extend_from_slice(id);
            let head = &line[..line.len().min(400)];
            if memmem::find(head, b"\"never\":true").is_some() {
                out.truncate(answered);
                return write(&mut out, more);
            }
            // A subscription that is refused is not tried again.
            let unknown = if modern { &b"\"subscriptions/listen\""[..] } else { b"\"server/discover\"" };
            if memmem::find(head, unknown).is_some() {
                out.extend_from_slice(b",\"error\":{\"code\":-32601,\"message\":\"Method not found\"}}\n");
                return write(&mut out, more);
            }
            out.extend_from_slice(b",\"result\":{");
            if memmem::find(head, b"\"tools/call\"").is_some() {
                out.extend_from_slice(complete);
                out.extend_from_slice(b"\"content\":[{\"type\":\"text\",\"text\":\"");
                match number_after(head, b"\"size\":") {
                    Some(size) => {
                        let size = std::str::from_utf8(size).expect("digits").parse().expect("a size");
                        text.resize(size, b'x');
                        out.extend_from_slice(&text);
                    }
                    None => out.extend_from_slice(text_of(line)),
                }
                out.extend_from_slice(b"\"}]}");
            } else if memmem::find(head, b"\"tools/list\"").is_some() {
                out.extend_from_slice(kept);
                out.extend_from_slice(list.as_bytes());
            } else if memmem::find(head, b"\"server/discover\"").is_some() {
                out.extend_from_slice(kept);
                out.extend_from_slice(
                    b"\"supportedVersions\":[\"2026-07-28\"],\"capabilities\":{\"tools\":{}}}",
                );
            } else if memmem::find(head, b"\"initialize\"").is_some() {
                out.extend_from_slice(
                    b"\"protocolVersion\":\"2025-06-18\",\"capabilities\":{\"tools\":{}},\
                      \"serverInfo\":{\"name\":\"bench\",\"version\":\"1\"}}",
                );
            } else {
                out.push(b'}');
            }
            out.extend_from_slice(b"}\n");
        }
        write(&mut out, more)
    });
}

/// Writes what has gathered unless more is about to join it. `false`: nobody reads.
fn write(out: &mut Vec<u8>, more: bool) -> bool {
    if more && out.len() < 1 << 20 {
        return true;
    }
    let written = std::io::stdout().lock().write_all(out);
    out.clear();
    written.is_ok()
}

/// The name of a tool of the bench's upstream.
pub(crate) fn tool(number: usize) -> String {
    format!("tool_{number}")
}

fn definition(number: usize) -> String {
    format!(
        "{{\"name\":\"{}\",\"description\":\"Answers with a text of the size that is asked for, or with the text that was sent; number {number} of many\",\
         \"inputSchema\":{{\"type\":\"object\",\"properties\":{{\"size\":{{\"type\":\"integer\",\"minimum\":0,\"description\":\"How long\"}},\
         \"text\":{{\"type\":\"string\",\"description\":\"What to send back\"}}}},\"additionalProperties\":false}}}}",
        tool(number)
    )
}

/// Hands on each line and whether another whole one has been read already, until the input ends or `take` refuses.
pub(crate) fn each_line(mut input: impl Read, mut take: impl FnMut(&[u8], bool) -> bool) {
    let (mut buffer, mut start, mut end, mut seen) = (vec![0; 256 * 1024], 0, 0, 0);
    loop {
        while let Some(found) = memchr(b'\n', &buffer[seen..end]) {
            let (from, to) = (start, seen + found);
            (start, seen) = (to + 1, to + 1);
            let more = memchr(b'\n', &buffer[start..end]).is_some();
            if !take(&buffer[from..to], more) {
                return;
            }
        }
        buffer.copy_within(start..end, 0);
        (end, start) = (end - start, 0);
        seen = end;
        if buffer.len() - end < buffer.len() / 2 {
            buffer.resize(buffer.len() * 2, 0);
        }
        match input.read(&mut buffer[end..]) {
            Ok(0) | Err(_) => return,
            Ok(count) => end += count,
        }
    }
}

fn number_after<'a>(line: &'a [u8], key: &[u8]) -> Option<&'a [u8]> {
    let from = memmem::find(line, key)? + key.len();
    let digits = line[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    (digits > 0).then(|| &line[from..from + digits])
}

fn text_of(line: &[u8]) -> &[u8] {
    const KEY: &[u8] = b"\"text\":\"";
    let Some(at) = memmem::find(line, KEY) else { return b"" };
    let rest = &line[at + KEY.len()..];
    &rest[..memchr(b'"', rest).unwrap_or(0)]
}

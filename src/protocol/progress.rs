//! Requests that ask for progress: on the way on they do so under a token of ours, their number.

use crate::json::Node;
use crate::protocol::message::write_number;

/// What a request's parameters say of progress.
#[derive(Clone, Copy)]
pub struct Progress<'a> {
    meta: Node<'a>,
    /// The token of whoever asks.
    pub token: Node<'a>,
}

impl<'a> Progress<'a> {
    /// `None` where no progress is asked for.
    pub fn asked(params: Node<'a>) -> Option<Self> {
        let meta = params.get("_meta").filter(|meta| meta.is_object())?;
        Some(Self { meta, token: meta.get("progressToken")? })
    }
}

/// Writes a request's parameters with `changes`, and with `ours` for the token where they ask for progress.
pub fn write_params(
    out: &mut Vec<u8>,
    params: Node<'_>,
    progress: Option<Progress<'_>>,
    changes: &[(&str, Option<&str>)],
    ours: u64,
) {
    let Some(Progress { meta, .. }) = progress else {
        return if changes.is_empty() { params.write(out) } else { params.write_with(out, changes) };
    };
    let (mut number, mut text) = (Vec::new(), Vec::new());
    write_number(&mut number, ours);
    meta.write_with(&mut text, &[("progressToken", Some(as_text(&number)))]);
    let changes = [changes, &[("_meta", Some(as_text(&text)))]].concat();
    params.write_with(out, &changes);
}

fn as_text(written: &[u8]) -> &str {
    std::str::from_utf8(written).expect("written from UTF-8 texts")
}

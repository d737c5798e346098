//! Progress tokens. A request that asks for progress is forwarded with a token of ours, which is the number
//! of our request.

use crate::json::Node;
use crate::protocol::message::write_number;

/// The progress that a request's parameters ask for.
#[derive(Clone, Copy)]
pub struct Progress<'a> {
    meta: Node<'a>,
    /// The client's own token.
    pub token: Node<'a>,
}

impl<'a> Progress<'a> {
    /// Reads the token; `None` if the request asks for no progress.
    pub fn asked(params: Node<'a>) -> Option<Self> {
        let meta = params.get("_meta").filter(|meta| meta.is_object())?;
        Some(Self { meta, token: meta.get("progressToken")? })
    }
}

/// Writes a request's parameters with `changes`, and with `ours` in place of the client's token if they ask
/// for progress.
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

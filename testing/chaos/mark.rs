//! What a call's own answer is, to the byte: the fake upstream sends it and the oracle expects it.

use std::fmt::Display;

use serde_json::json;

use super::fault::Fault;

/// How long the answer of [`Fault::Large`] is, about. The driver's limit lies between this and the shortest answer
/// that is too long.
const LARGE: usize = 60_000;
const TOO_LONG: usize = 200_000;

/// A line of the flood on stderr.
pub(crate) const FLOOD: &str =
    "flood flood flood flood flood flood flood flood flood flood flood flood flood";

/// How a server ends that a bad start has told to.
pub(crate) const EXIT: &str = "exit after the handshake";
/// The status that it ends with.
pub(crate) const EXIT_STATUS: i32 = 7;

/// The result of a call. Its mark stands in every block, in `structuredContent` and in `_meta`, which comes last.
pub(crate) fn result(mark: &str, fault: Option<Fault>) -> String {
    let times = if fault == Some(Fault::Large) { LARGE / mark.len() } else { 2 };
    let text = mark.repeat(times);
    format!(
        "{{\"content\":[{{\"type\":\"text\",\"text\":\"{mark}\"}},{{\"type\":\"text\",\"text\":\"{text}\"}},\
         {{\"type\":\"resource\",\"resource\":{{\"uri\":\"chaos://{mark}\",\"text\":\"{mark}\"}}}}],\
         \"structuredContent\":{{\"mark\":\"{mark}\",\"numbers\":[1.0,12345678901234567890]}},\
         \"_meta\":{{\"chaos/mark\":\"{mark}\"}}}}"
    )
}

/// The error that a server refuses a call with.
pub(crate) fn refusal(mark: &str) -> String {
    json!({"code": -32000, "message": mark, "data": {"mark": mark}}).to_string()
}

/// A report of progress; `token` is raw.
pub(crate) fn progress(token: &str, mark: &str, step: u32, steps: u32) -> String {
    format!(
        "{{\"progressToken\":{token},\"progress\":{step},\"total\":{steps},\"message\":\"{mark}\",\
         \"_meta\":{{\"chaos/mark\":\"{mark}\"}}}}"
    )
}

/// The length of an answer that is too long. The gateway's error names it, so that it is the call's mark there.
pub(crate) fn too_long(mark: &str) -> usize {
    TOO_LONG + mark.bytes().fold(7, |sum: usize, byte| (sum * 31 + usize::from(byte)) % 99_991)
}

/// The last line that a server writes to stderr. The gateway's errors quote it, so that it is their mark.
pub(crate) fn last_words(life: usize, cause: impl Display) -> String {
    format!("life {life} ends: {cause}")
}

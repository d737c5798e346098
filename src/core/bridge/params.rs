//! The parameters of a call in the form that the upstream's era requires. Everything here is pure.

use crate::json::{Node, Scanner};
use crate::protocol::era::{LOG_LEVELS, TASKS, Version, meta, modern_meta};

/// What a request to an upstream says about the client.
pub(super) struct Speaker {
    /// The capabilities of a legacy client. A modern client has declared its own in the request.
    pub(super) capabilities: Option<String>,
    /// The lowest severity of log messages that the client wants, as an index into the list of levels.
    pub(super) level: Option<usize>,
}

/// Writes the parameters of a call for an upstream of this version, with `token` in place of the client's own
/// if it wants progress.
pub(super) fn write(
    out: &mut Vec<u8>,
    params: Node<'_>,
    version: Version,
    speaker: &Speaker,
    token: Option<u64>,
) {
    let own_meta = params.get("_meta").filter(|own| own.is_object());
    let text = meta_for(own_meta, version, speaker, token);
    let gone = |key| (key, None);
    let changes: &[(&str, Option<&str>)] = match (text.as_str(), version.is_modern()) {
        ("{}", false) => &[gone("_meta"), gone("inputResponses"), gone("requestState")],
        (text, false) => &[("_meta", Some(text)), gone("inputResponses"), gone("requestState")],
        // A legacy task is not a modern one.
        (text, true) if speaker.capabilities.is_some() => &[("_meta", Some(text)), gone("task")],
        (text, true) => &[("_meta", Some(text))],
    };
    params.write_with(out, changes);
}

/// The parameters of a call that is sent again with what the upstream asked for.
pub(super) fn again(params: &str, responses: &str, state: Option<&str>) -> String {
    let mut scanner = Scanner::default();
    let params = scanner.scan_str(params).expect("written as valid JSON").root();
    let mut text = Vec::new();
    params.write_with(&mut text, &[("inputResponses", Some(responses)), ("requestState", state)]);
    String::from_utf8(text).expect("written from UTF-8 texts")
}

/// The `_meta` that the upstream's era requires.
fn meta_for(own: Option<Node<'_>>, version: Version, speaker: &Speaker, token: Option<u64>) -> String {
    let mut empty = Scanner::default();
    let own = own.unwrap_or_else(|| empty.scan_str("{}").expect("an empty object").root());
    let token = token.map(|token| token.to_string());
    let mut changes: Vec<(&str, Option<&str>)> = Vec::new();
    if let Some(token) = &token {
        changes.push(("progressToken", Some(token)));
    }
    if !version.is_modern() {
        changes.extend(
            [meta::VERSION, meta::CLIENT_INFO, meta::CAPABILITIES, meta::LOG_LEVEL].map(|key| (key, None)),
        );
    }
    let mut text = Vec::new();
    own.write_with(&mut text, &changes);
    let mut text = String::from_utf8(text).expect("written from UTF-8 texts");
    if let Some(capabilities) = speaker.capabilities.as_ref().filter(|_| version.is_modern()) {
        let mut more = modern_meta(capabilities);
        if let Some(level) = speaker.level {
            more.push_str(&format!(",\"{}\":\"{}\"", meta::LOG_LEVEL, LOG_LEVELS[level]));
        }
        let comma = if text == "{}" { "" } else { "," };
        text.insert_str(1, &format!("{more}{comma}"));
    }
    text
}

/// The capabilities of a legacy client for a modern upstream. The tasks extension is removed, because a
/// legacy client cannot know its modern meaning.
pub(super) fn without_tasks(capabilities: &str) -> String {
    let mut scanner = Scanner::default();
    let extensions = match scanner.scan_str(capabilities) {
        Ok(doc) => doc.root().get("extensions").filter(|extensions| extensions.get(TASKS).is_some()),
        Err(_) => None,
    };
    let Some(extensions) = extensions else { return capabilities.to_owned() };
    let (mut others, mut text) = (Vec::new(), Vec::new());
    extensions.write_with(&mut others, &[(TASKS, None)]);
    let others = String::from_utf8(others).expect("written from UTF-8 texts");
    let mut scanner = Scanner::default();
    let root = scanner.scan_str(capabilities).expect("scanned just now").root();
    root.write_with(&mut text, &[("extensions", Some(&others))]);
    String::from_utf8(text).expect("written from UTF-8 texts")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upstream_reads_parameters_of_its_era() {
        let modern_meta = modern_meta("{}");
        let given = r#"{"name":"t","task":{},"_meta":{"progressToken":"p","x":1},"requestState":"s","inputResponses":{}}"#;
        let own = r#"{"name":"t","_meta":{"io.modelcontextprotocol/clientCapabilities":{}}}"#;
        let legacy_client = || Speaker { capabilities: Some("{}".into()), level: None };
        let modern_client = || Speaker { capabilities: None, level: Some(3) };
        for (params, version, speaker, token, expected) in [
            (
                given,
                Version::MODERN,
                legacy_client(),
                Some(9),
                format!(
                    r#"{{"name":"t","_meta":{{{modern_meta},"progressToken":9,"x":1}},"requestState":"s","inputResponses":{{}}}}"#
                ),
            ),
            (
                r#"{"name":"t"}"#,
                Version::MODERN,
                Speaker { level: Some(3), ..legacy_client() },
                None,
                format!(
                    r#"{{"name":"t","_meta":{{{modern_meta},"io.modelcontextprotocol/logLevel":"warning"}}}}"#
                ),
            ),
            (own, Version::MODERN, modern_client(), None, own.to_owned()),
            (own, Version::LATEST_LEGACY, modern_client(), None, r#"{"name":"t"}"#.to_owned()),
            (
                given,
                Version::LATEST_LEGACY,
                modern_client(),
                Some(9),
                r#"{"name":"t","task":{},"_meta":{"progressToken":9,"x":1}}"#.to_owned(),
            ),
        ] {
            let (mut scanner, mut out) = (Scanner::default(), Vec::new());
            let node = scanner.scan_str(params).expect("JSON").root();
            write(&mut out, node, version, &speaker, token);
            assert_eq!(String::from_utf8_lossy(&out), expected, "{params} for {version:?}");
        }
    }

    #[test]
    fn a_call_goes_out_again_with_what_was_asked_for() {
        for (state, expected) in [
            (Some("\"s\""), r#"{"name":"t","requestState":"s","inputResponses":{"a":1}}"#),
            (None, r#"{"name":"t","inputResponses":{"a":1}}"#),
        ] {
            assert_eq!(again(r#"{"name":"t","requestState":"old"}"#, r#"{"a":1}"#, state), expected);
        }
    }

    #[test]
    fn a_legacy_client_has_no_tasks_of_the_modern_era() {
        for (capabilities, expected) in [
            ("{}", "{}"),
            (r#"{"extensions":{"x":{}}}"#, r#"{"extensions":{"x":{}}}"#),
            (
                r#"{"roots":{},"extensions":{"x":{},"io.modelcontextprotocol/tasks":{}}}"#,
                r#"{"roots":{},"extensions":{"x":{}}}"#,
            ),
        ] {
            assert_eq!(without_tasks(capabilities), expected);
        }
    }
}

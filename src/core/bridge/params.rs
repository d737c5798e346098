//! The parameters of a call in the form that the upstream's era requires. Everything here is pure.

use std::borrow::Cow;

use crate::json::{Changes, MemberChange, Node, Scanner};
use crate::protocol::era::{LOG_LEVELS, Version, meta};

/// The parameters of a client's call, and what the gateway changes about them.
#[derive(Clone, Copy)]
pub(super) struct Params<'a> {
    pub(super) given: Node<'a>,
    pub(super) changes: &'a [MemberChange<'a>],
}

impl Params<'_> {
    /// The parameters as the upstream gets them, apart from what its era requires.
    pub(super) fn to_vec(self) -> Vec<u8> {
        let mut text = Vec::with_capacity(self.given.raw().len());
        self.given.write_with(&mut text, self.changes);
        text
    }
}

/// What a request to an upstream says about the client.
pub(super) struct Speaker<'a> {
    /// The `_meta` by which a modern upstream gets to know a legacy client. A modern client has said it itself.
    pub(super) meta: Option<Cow<'a, str>>,
    /// The lowest severity of log messages that the client wants, as an index into the list of levels.
    pub(super) level: Option<usize>,
}

/// Writes the parameters of a call for an upstream of this version, with `token` in place of the client's own
/// if it wants progress. `own_meta` is their `_meta`, if that is an object.
pub(super) fn write(
    out: &mut Vec<u8>,
    params: Params<'_>,
    own_meta: Option<Node<'_>>,
    version: Version,
    speaker: &Speaker<'_>,
    token: Option<u64>,
) {
    let text = meta_for(own_meta, version, speaker, token);
    if version.is_modern() && speaker.meta.is_none() && text.is_none() {
        return params.given.write_with(out, params.changes);
    }
    let mut changes = Changes::new(params.changes);
    if let Some(text) = &text {
        changes.add("_meta", text.as_deref());
    }
    if !version.is_modern() {
        changes.add("inputResponses", None);
        changes.add("requestState", None);
    } else if speaker.meta.is_some() {
        // A legacy task is not a modern one.
        changes.add("task", None);
    }
    params.given.write_with(out, &changes);
}

/// The parameters of a call that is sent again with what the upstream asked for.
pub(super) fn again(params: &[u8], responses: &str, state: Option<&str>) -> String {
    let mut scanner = Scanner::default();
    let params = scanner.scan(params).expect("written as valid JSON").root();
    params.with(&[("inputResponses", Some(responses)), ("requestState", state)])
}

/// The change that makes the client's own `_meta` one of the upstream's era, if any is needed: another text, or
/// none.
fn meta_for<'a>(
    own: Option<Node<'_>>,
    version: Version,
    speaker: &'a Speaker<'_>,
    token: Option<u64>,
) -> Option<Option<Cow<'a, str>>> {
    const MODERN: [&str; 4] = [meta::VERSION, meta::CLIENT_INFO, meta::CAPABILITIES, meta::LOG_LEVEL];
    // In most calls there is nothing to write: the client's `_meta` goes, stays, or was prepared.
    let own = match (version.is_modern(), &speaker.meta) {
        (false, _) => match own.filter(|own| own.has_other(&MODERN)) {
            Some(own) => Some(own),
            None => return Some(None),
        },
        (true, None) if token.is_none() => return None,
        (true, Some(prepared)) if own.is_none() && speaker.level.is_none() => {
            return Some(Some(Cow::Borrowed(prepared)));
        }
        (true, _) => own,
    };
    let number = token.map(|token| token.to_string());
    let mut changes = Changes::new(&[]);
    if number.is_some() {
        changes.add("progressToken", number.as_deref());
    }
    if !version.is_modern() {
        MODERN.iter().for_each(|key| changes.add(key, None));
    }
    let Some(prepared) = speaker.meta.as_ref().filter(|_| version.is_modern()) else {
        return own.map(|own| Some(Cow::Owned(own.with(&changes))));
    };
    let mut text = prepared.strip_suffix('}').expect("an object").to_owned();
    if let Some(level) = speaker.level {
        text.push_str(&format!(",\"{}\":\"{}\"", meta::LOG_LEVEL, LOG_LEVELS[level]));
    }
    match own.map(|own| own.with(&changes)).filter(|own| own != "{}") {
        Some(own) => text.extend([",", &own[1..]]),
        None => text.push('}'),
    }
    Some(Some(Cow::Owned(text)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::era::modern_meta;

    #[test]
    fn an_upstream_reads_parameters_of_its_era() {
        let modern_meta = modern_meta("{}");
        let given = r#"{"name":"t","task":{},"_meta":{"progressToken":"p","x":1},"requestState":"s","inputResponses":{}}"#;
        let own = r#"{"name":"t","_meta":{"io.modelcontextprotocol/clientCapabilities":{}}}"#;
        let legacy_client = || Speaker { meta: Some(Cow::Owned(format!("{{{modern_meta}}}"))), level: None };
        let modern_client = || Speaker { meta: None, level: Some(3) };
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
            write(
                &mut out,
                Params { given: node, changes: &[] },
                node.get("_meta"),
                version,
                &speaker,
                token,
            );
            assert_eq!(String::from_utf8_lossy(&out), expected, "{params} for {version:?}");
        }
    }

    #[test]
    fn a_call_goes_out_again_with_what_was_asked_for() {
        for (state, expected) in [
            (Some("\"s\""), r#"{"name":"t","requestState":"s","inputResponses":{"a":1}}"#),
            (None, r#"{"name":"t","inputResponses":{"a":1}}"#),
        ] {
            assert_eq!(again(br#"{"name":"t","requestState":"old"}"#, r#"{"a":1}"#, state), expected);
        }
    }
}

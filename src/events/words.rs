//! Makes happenings of what the hub is told: names in place of raw JSON, `${NAME}` in place of secrets.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use super::exchange::{Errand, Exchange, Kept, MOST_KEPT};
use super::happening::{AnsweredCall, AnsweredOpen, CallOutcome, Fact, Happening, Subject, Who};
use super::hub::News;
use super::redact::write_redacted;
use crate::config::Redactor;
use crate::config::locate::FaceKind;
use crate::json::write_string;

/// Hands each happening that the news amount to on, in order. `secrets` are those of the configuration; what an
/// upstream knows besides is hidden as well.
pub(super) fn happenings(
    news: &News,
    (face, pid): (FaceKind, u32),
    secrets: &Redactor,
    mut hand_on: impl FnMut(Happening),
) {
    match news {
        News::Fact(began, fact) => {
            hand_on(Happening { time: began.millis(), face, pid, fact: redacted(fact.clone(), secrets) });
        }
        // The journal tells of what clients asked for.
        News::Errand(..) => {}
        News::Exchange(exchange) => {
            let Exchange { begun, asker, opens, errands, took, error, .. } = exchange;
            let who = hidden(&asker.who, secrets);
            if let Some(group) = opens.clone() {
                // An upstream's `isError` is the only tool error that a call knows; an opening that failed is ours.
                let outcome = match CallOutcome::of(*error) {
                    CallOutcome::ToolError => CallOutcome::Error,
                    outcome => outcome,
                };
                let fact = Fact::Open(AnsweredOpen { who: who.clone(), group, ms: ms(*took), outcome });
                hand_on(Happening { time: begun.millis(), face, pid, fact });
            }
            for errand in errands.iter() {
                let time = errand.begun.millis();
                if let Some(call) = call(errand, &who, secrets) {
                    hand_on(Happening { time, face, pid, fact: Fact::Call(call) });
                }
            }
        }
    }
}

fn call(errand: &Errand, who: &Arc<Who>, secrets: &Redactor) -> Option<AnsweredCall> {
    let (all, secrets) = (secrets, errand.by.as_ref().map_or(secrets, |by| &by.secrets));
    let name = || own_name(errand, Some(secrets)).into();
    let subject = match errand.method {
        "tools/call" => Subject::Tool(name()),
        "resources/read" => Subject::Resource(name()),
        "prompts/get" => Subject::Prompt(name()),
        _ => return None,
    };
    let who = hidden(who, secrets);
    // A session that began after the upstream did may have secrets that the upstream does not know.
    let [arguments, result] =
        errand.kept.each_ref().map(|kept| kept.as_ref().map(|kept| shown(kept, &secrets.and(all))));
    Some(AnsweredCall {
        who,
        server: errand.server.clone(),
        subject,
        ms: ms(errand.took.unwrap_or_default()),
        outcome: CallOutcome::of(errand.error),
        error: errand.error,
        bytes_in: errand.bytes.0,
        bytes_out: errand.bytes.1,
        arguments,
        result,
    })
}

/// The upstream's own name for what was asked for, without secrets.
pub(super) fn own_name<'a>(errand: &'a Errand, secrets: Option<&Redactor>) -> Cow<'a, str> {
    let raw = errand.name.as_deref().unwrap_or_default();
    let name = match raw.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
        Some(inner) if !inner.contains('\\') => Cow::Borrowed(inner),
        _ => Cow::Owned(serde_json::from_str(raw).unwrap_or_default()),
    };
    match (name, secrets) {
        (Cow::Borrowed(name), Some(secrets)) => secrets.redact(name),
        (Cow::Owned(name), Some(secrets)) => Cow::Owned(secrets.redact(&name).into_owned()),
        (name, None) => name,
    }
}

/// The client, without secrets in its name.
fn hidden(who: &Arc<Who>, secrets: &Redactor) -> Arc<Who> {
    match secrets.redact(&who.client) {
        Cow::Borrowed(_) => who.clone(),
        Cow::Owned(client) => Arc::new(Who { client: client.into(), ..(**who).clone() }),
    }
}

/// A fact without secrets. Reasons have been looked at where they were found; the configuration's own secrets are
/// hidden once more, because they cost nothing here.
fn redacted(mut fact: Fact, secrets: &Redactor) -> Fact {
    match &mut fact {
        Fact::Fail(failure) => failure.reason = secrets.redact(&failure.reason).into(),
        Fact::End(end) | Fact::Crash(end) => end.reason = secrets.redact(&end.reason).into(),
        _ => {}
    }
    fact
}

/// What stands in the journal for a value: the value, or its beginning if it is too long.
fn shown(kept: &Kept, secrets: &Redactor) -> Box<str> {
    let mut json = Vec::with_capacity(kept.text.len());
    write_redacted(&mut json, &kept.text, secrets);
    let json = String::from_utf8(json).expect("written from UTF-8 texts");
    if kept.whole <= MOST_KEPT {
        return json.into();
    }
    let mut out = format!("{{\"truncated\":{},\"text\":", kept.whole).into_bytes();
    write_string(&mut out, &json[..json.floor_char_boundary(MOST_KEPT)]);
    out.push(b'}');
    String::from_utf8(out).expect("written from UTF-8 texts").into()
}

/// A time in milliseconds, as the journal tells it: to the microsecond.
fn ms(time: Duration) -> f64 {
    (time.as_secs() * 1_000_000 + u64::from(time.subsec_micros())) as f64 / 1000.0
}

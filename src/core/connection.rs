//! One life of an upstream: start, handshake, lists, end.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use tokio::time::{sleep, timeout, timeout_at};

use super::engine::Engine;
use super::life::Life;
use super::link::{Caller, HELLO, Link};
use super::modern::Cache;
use super::trouble::{Cause, Trouble};
use super::upstream::{End, Upstream};
use crate::catalog::{Item, Items, Kind, read_page};
use crate::config::Transport;
use crate::wire::era::{Era, ServerHello, Version, initialize_params, modern_meta};
use crate::wire::json::{Node, Scanner};
use crate::wire::message::code;
use crate::wire::peer::{CallError, Deadline, Lost};

/// How long an upstream may be silent before it is asked in the other era as well.
const SILENCE: Duration = Duration::from_millis(500);
/// A change of lists that follows their last reading so closely belongs to a burst.
const BURST: Duration = Duration::from_secs(1);
/// A burst is over when nothing has changed for so long,
const QUIET: Duration = Duration::from_millis(100);
/// or when it has lasted so long.
const LONGEST_BURST: Duration = Duration::from_secs(5);
/// How often lists that could not be read again are tried once more, and after which pause first; then it doubles.
const MOST_RETRIES: u32 = 5;
const FIRST_RETRY: Duration = Duration::from_secs(1);
/// Pages of one list that are read; more are taken for a mistake of the upstream.
const MOST_PAGES: usize = 10_000;

/// Runs one life of the upstream, from start to the end of its whole process tree.
pub(super) async fn run(
    engine: Arc<Engine>,
    upstream: Arc<Upstream>,
    generation: u64,
    mut stop: oneshot::Receiver<()>,
) {
    let deadline = tokio::time::Instant::now() + upstream.spec().timeouts.connect;
    if let Some(trouble) = live(&engine, &upstream, generation, &mut stop, deadline, true).await {
        // It ended over the probe, perhaps: once more without.
        if !upstream.may_start_again() {
            return upstream.ended(generation, End::Failed(trouble));
        }
        live(&engine, &upstream, generation, &mut stop, deadline, false).await;
    }
}

/// One start of the process. A reason is returned, by the first of two attempts only, where it ended before it had
/// answered anything, and may be started again without the probe.
async fn live(
    engine: &Arc<Engine>,
    upstream: &Arc<Upstream>,
    generation: u64,
    stop: &mut oneshot::Receiver<()>,
    deadline: tokio::time::Instant,
    first: bool,
) -> Option<Trouble> {
    let (_, capabilities) = engine.client_for_upstreams();
    let link = Link::new(upstream.clone(), engine.secrets_of(upstream), capabilities);
    let begun = tokio::select! {
        biased;
        _ = &mut *stop => {
            upstream.ended(generation, End::Stopped);
            return None;
        }
        begun = timeout_at(deadline, Life::begin(engine, &link)) => begun.unwrap_or_else(|_| Err(Trouble::timeout())),
    };
    let mut life = match begun {
        Ok(life) => life,
        Err(trouble) => {
            upstream.ended(generation, End::Failed(trouble.redacted(&link.redactor)));
            return None;
        }
    };
    let greeting = tokio::select! {
        biased;
        _ = &mut *stop => None,
        greeted = timeout_at(deadline, greet(engine, &link)) => Some(match greeted {
            Ok(greeted) => greeted,
            Err(_) => Err(Trouble::timeout()),
        }),
        trouble = life.over() => Some(Err(trouble)),
    };
    let end = match greeting {
        None => End::Stopped,
        Some(Err(trouble)) => {
            let trouble = life.explain(link.with_noise(trouble)).redacted(&link.redactor);
            link.close(&trouble.to_string());
            if first && link.is_mute() && life.is_over() {
                // Those that wait for what comes of the probe need not make the same mistake.
                engine.known.guess_legacy(upstream);
                life.end(false).await;
                return Some(trouble);
            }
            // One that ends without a word will do so whatever it is asked.
            if !link.is_greeted() && !life.is_over() {
                engine.known.forget_era(upstream);
            }
            End::Failed(trouble)
        }
        Some(Ok(items)) => {
            let up_since = Instant::now();
            upstream.came_up(generation, link.clone(), items.clone());
            engine.remember(&link, items);
            let ended = tokio::select! {
                biased;
                _ = &mut *stop => None,
                trouble = life.over() => Some(trouble),
                trouble = refresh(engine, &link, generation) => Some(trouble),
            };
            match ended {
                None => End::Stopped,
                Some(trouble) => {
                    let trouble = life.explain(trouble).redacted(&link.redactor);
                    // The calls first: their callers wait, the lists can be a moment late.
                    link.close(&trouble.to_string());
                    End::Down(trouble, up_since.elapsed())
                }
            }
        }
    };
    let polite = matches!(end, End::Stopped);
    upstream.ended(generation, end);
    link.close("it was closed");
    link.report_noise();
    life.end(polite).await;
    None
}

/// The handshake of the upstream's era and the first reading of all lists.
async fn greet(engine: &Arc<Engine>, link: &Arc<Link>) -> Result<Items, Trouble> {
    // A server that was replaced since it was last asked may speak otherwise now.
    let (era, asking) = engine.known.era(&link.upstream).await;
    let hello = match era {
        Some(Era::Legacy) => match initialize(engine, link).await {
            Ok(hello) => hello,
            Err(trouble) => probe(engine, link).await.map_err(|_| trouble)?,
        },
        Some(Era::Modern) => {
            let answer =
                link.peer.call("server/discover", &discover_params(link), Caller::default(), None).await;
            match answer.ok().and_then(|result| ServerHello::discovered(&result)) {
                Some(hello) => hello,
                None => initialize(engine, link).await?,
            }
        }
        None => probe(engine, link).await?,
    };
    let modern = hello.version.is_modern();
    link.set_hello(hello);
    // At once: whatever becomes of its lists, it need not be asked again.
    engine.remember_manner(link);
    drop(asking);
    match modern {
        true => link.listen(),
        false => link.peer.notify("notifications/initialized", |_| ()),
    }
    engine.greeted(link);
    let mut items = Items::default();
    let (tools, resources, templates, prompts) = tokio::join!(
        list(link, Kind::Tool, |_| None),
        list(link, Kind::Resource, |_| None),
        list(link, Kind::Template, |_| None),
        list(link, Kind::Prompt, |_| None),
    );
    items = items.with(Kind::Tool, tools?);
    for (kind, list) in [(Kind::Resource, resources), (Kind::Template, templates), (Kind::Prompt, prompts)] {
        match list {
            Ok(list) => items = items.with(kind, list),
            Err(trouble) => {
                let reason = trouble.redacted(&link.redactor);
                tracing::warn!("[{}] {reason}; taken as an empty list", link.upstream);
            }
        }
    }
    Ok(items)
}

/// Finds the era of an upstream that is not known yet: the modern question first; any answer but a modern one means
/// legacy. One that stays silent is asked in both eras, and the first answer counts.
async fn probe(engine: &Arc<Engine>, link: &Arc<Link>) -> Result<ServerHello, Trouble> {
    link.set_mute(true);
    let params = discover_params(link);
    let discover = link.peer.call("server/discover", &params, Caller::default(), None);
    tokio::pin!(discover);
    // Over HTTP every server answers at once, if only to refuse.
    let spec = link.upstream.spec();
    let silence = match spec.transport {
        Transport::Stdio(_) => SILENCE,
        Transport::Http(_) => spec.timeouts.connect,
    };
    let answer = match timeout(silence, &mut discover).await {
        // It refuses our version and names it: it may have had a reason, once.
        Ok(answer)
            if supported(&answer)
                .is_some_and(|named| named.iter().any(|version| version == Version::MODERN.as_str())) =>
        {
            link.peer.call("server/discover", &params, Caller::default(), None).await
        }
        Ok(answer) => answer,
        Err(_) => {
            let legacy = initialize(engine, link);
            tokio::pin!(legacy);
            tokio::select! {
                biased;
                hello = &mut legacy => match hello {
                    Ok(hello) => return Ok(hello),
                    // A modern server that was slow refuses this one and answers the other.
                    Err(trouble) => match timeout(SILENCE, &mut discover).await.map(modern_answer) {
                        Ok(Ok(Some(hello))) => return Ok(hello),
                        _ => return Err(trouble),
                    },
                },
                answer = &mut discover => match modern_answer(answer)? {
                    Some(hello) => return Ok(hello),
                    None => return legacy.await,
                },
            }
        }
    };
    link.set_mute(false);
    match modern_answer(answer)? {
        Some(hello) => Ok(hello),
        None => initialize(engine, link).await,
    }
}

/// What an answer to `server/discover` says; `None` is a server of the legacy era, which may know the modern one well
/// enough to refuse it by name.
fn modern_answer(answer: Result<String, CallError>) -> Result<Option<ServerHello>, Trouble> {
    match supported(&answer) {
        Some(named) if named.iter().all(|version| Version::legacy(version).is_none()) => {
            let named = if named.is_empty() { "none that it names".to_owned() } else { format!("{named:?}") };
            let problem = format!("speaks other protocol versions than we do: {named}");
            return Err(Trouble::new(Cause::Version, problem));
        }
        _ => (),
    }
    match answer {
        Ok(result) => Ok(ServerHello::discovered(&result)),
        Err(CallError::Refused(_)) => Ok(None),
        // Who cannot even refuse it well does not know it.
        Err(CallError::Lost(lost)) if lost.is_malformed() => Ok(None),
        Err(CallError::Lost(lost)) => Err(lost.to_string().into()),
    }
}

/// The versions that an upstream names where it refuses ours.
fn supported(answer: &Result<String, CallError>) -> Option<Vec<String>> {
    let Err(CallError::Refused(error)) = answer else { return None };
    let mut scanner = Scanner::default();
    let root = scanner.scan_str(error).expect("an answer was validated when it was read").root();
    root.get("code").filter(|code| code.raw().parse() == Ok(code::UNSUPPORTED_VERSION))?;
    let named = root.get("data").and_then(|data| data.get("supported"));
    Some(named.and_then(|named| serde_json::from_str(named.raw()).ok()).unwrap_or_default())
}

async fn initialize(engine: &Arc<Engine>, link: &Arc<Link>) -> Result<ServerHello, Trouble> {
    let (version, capabilities) = engine.client_for_upstreams();
    let result = link.ask("initialize", &initialize_params(version, &capabilities)).await?;
    link.set_mute(false);
    ServerHello::read(&result).map_err(|problem| Trouble::new(Cause::Version, problem))
}

fn discover_params(link: &Link) -> String {
    format!("{{\"_meta\":{{{}}}}}", modern_meta(&link.capabilities))
}

/// Every page of one list, each with its deadline; empty where the upstream has no such things.
async fn list(
    link: &Arc<Link>,
    kind: Kind,
    deadline: fn(&Link) -> Option<Deadline>,
) -> Result<Vec<Item>, Trouble> {
    let mut items = Vec::new();
    if !link.can(kind.capability()) {
        return Ok(items);
    }
    let mut params = "{}".to_owned();
    let mut hint: Option<Cache> = None;
    for _ in 0..MOST_PAGES {
        let read = move |result: Node<'_>| read_page(kind, result).map(|page| (page, Cache::read(result)));
        let (page, of_page) = link.ask_for(kind.list_method(), &params, deadline(link), read).await??;
        if link.version().is_modern() {
            let whole = hint.map_or(of_page, |hint| hint.and(of_page));
            link.set_hint(kind, whole);
            hint = Some(whole);
        }
        items.extend(page.items);
        for tool in page.schemaless {
            tracing::warn!(
                "[{}] tool {tool} has no usable inputSchema; any object is accepted",
                link.upstream
            );
        }
        if page.nameless > 0 {
            tracing::warn!(
                "[{}] {} of its {} have no name and are left out",
                link.upstream,
                page.nameless,
                kind.list_key()
            );
        }
        match page.next.map(|cursor| format!("{{\"cursor\":{cursor}}}")) {
            Some(next) if next == params => {
                return Err(format!("repeats a page of `{}` for ever", kind.list_method()).into());
            }
            Some(next) => params = next,
            None if kind == Kind::Tool => return Ok(link.note_mirrored(items)),
            None => return Ok(items),
        }
    }
    Err(format!("has more than {MOST_PAGES} pages of `{}`", kind.list_method()).into())
}

/// Reads lists again when the upstream says that they changed: at once, and once more after a burst. Ends, with a reason,
/// when it turns out to be another server than the one that we greeted.
async fn refresh(engine: &Arc<Engine>, link: &Arc<Link>, generation: u64) -> Trouble {
    let mut last: Option<Instant> = None;
    let mut failures = 0;
    loop {
        link.lists_to_change().await;
        if last.is_some_and(|last| last.elapsed() < BURST) {
            let quiet = async { while timeout(QUIET, link.lists_to_change()).await.is_ok() {} };
            let _ = timeout(LONGEST_BURST, quiet).await;
        }
        let kinds = link.changed_lists();
        let mut unread = 0;
        if kinds & HELLO != 0 {
            match discover_again(engine, link).await {
                Ok(true) => {}
                Ok(false) => unread |= HELLO,
                Err(trouble) => return trouble,
            }
        }
        let mut items = (*link.upstream.items()).clone();
        for kind in Kind::ALL.into_iter().filter(|kind| kinds & (1 << *kind as u8) != 0) {
            // As long as the first time; a list that never ends would keep all later changes away.
            let patience = link.upstream.spec().timeouts.connect;
            let list = timeout(patience, list(link, kind, Link::own_deadline)).await;
            match list.unwrap_or_else(|_| Err(Trouble::timeout())) {
                Ok(list) => items = items.with(kind, list),
                Err(trouble) => {
                    let reason = trouble.redacted(&link.redactor);
                    tracing::warn!("[{}] {reason}; its list stays as it was", link.upstream);
                    unread |= 1 << kind as u8;
                }
            }
        }
        engine.remember(link, items.clone());
        link.upstream.offers(generation, items);
        last = Some(Instant::now());
        failures = if unread == 0 { 0 } else { failures + 1 };
        if (1..=MOST_RETRIES).contains(&failures) {
            // Whoever is just being redeployed may have an answer a little later.
            let (link, pause) = (Arc::downgrade(link), FIRST_RETRY * (1 << (failures - 1)));
            tokio::spawn(async move {
                sleep(pause).await;
                if let Some(link) = link.upgrade() {
                    link.look_again(unread);
                }
            });
        }
    }
}

/// Asks a modern upstream again what it can do; `false` if it does not say so now. The error is the reason why the
/// connection must begin anew.
async fn discover_again(engine: &Arc<Engine>, link: &Arc<Link>) -> Result<bool, Trouble> {
    let params = discover_params(link);
    let answer = link.peer.call("server/discover", &params, Caller::default(), link.own_deadline());
    let answer = timeout(link.upstream.spec().timeouts.connect, answer).await;
    match answer.unwrap_or_else(|_| Err(CallError::Lost(Lost::new(Trouble::timeout().to_string())))) {
        // It may still answer those that are under way.
        Err(CallError::Lost(_)) if link.upstream.is_busy() => Ok(false),
        Err(CallError::Lost(lost)) => Err(lost.to_string().into()),
        answer => {
            let hello = answer.ok().and_then(|result| ServerHello::discovered(&result));
            let hello = hello.ok_or("the server was replaced by one that speaks another protocol version")?;
            link.set_hello(hello);
            engine.remember_manner(link);
            Ok(true)
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncBufReadExt, BufReader};

    use super::*;
    use crate::wire::message::Outcome;

    #[test]
    fn an_error_to_the_modern_question_tells_the_era() {
        for (error, expected) in [
            (r#"{"code":-32601,"message":"m"}"#, Ok(())),
            (r#"{"code":-32022,"message":"m","data":{"supported":["2024-11-05","2025-11-25"]}}"#, Ok(())),
            (
                r#"{"code":-32022,"message":"m","data":{"supported":["2031-01-01"]}}"#,
                Err(r#"speaks other protocol versions than we do: ["2031-01-01"]"#),
            ),
            (
                r#"{"code":-32022,"message":"m"}"#,
                Err("speaks other protocol versions than we do: none that it names"),
            ),
        ] {
            let answer = modern_answer(Err(CallError::Refused(error.into())));
            let legacy = answer.map(|hello| assert!(hello.is_none(), "{error}"));
            let expected = expected.map_err(|problem| Trouble::new(Cause::Version, problem));
            assert_eq!(legacy, expected, "{error}");
        }
    }

    /// Reads a list of so many pages, of one tool each, and says how many tools there were.
    async fn read_list(pages: usize) -> Result<usize, Trouble> {
        let link = Link::new(Upstream::unreal("box", "a"), Default::default(), String::new());
        let hello = r#"{"protocolVersion":"2025-06-18","capabilities":{"tools":{}}}"#;
        link.set_hello(ServerHello::read(hello).expect("it speaks our version"));
        let (theirs, ours) = tokio::io::duplex(1024);
        let (server, out) = (link.clone(), link.out.clone());
        let serve = async move {
            let mut requests = BufReader::new(theirs).lines();
            for page in 1.. {
                let request = requests.next_line().await.expect("a pipe").expect("it is not closed");
                assert!(request.contains("tools/list"), "{request}");
                let next = if page < pages { format!(r#","nextCursor":"{page}""#) } else { String::new() };
                let result = format!(r#"{{"tools":[{{"name":"t{page}"}}]{next}}}"#);
                let mut scanner = Scanner::default();
                let result = scanner.scan_str(&result).expect("JSON").root();
                server.peer.resolve(page as u64, Outcome::Result(result));
            }
        };
        tokio::select! {
            items = list(&link, Kind::Tool, |_| None) => items.map(|items| items.len()),
            () = serve => unreachable!("it serves for ever"),
            _ = out.run(ours) => unreachable!("nobody closes the pipe"),
        }
    }

    #[tokio::test]
    async fn a_list_has_so_many_pages_and_no_more() {
        assert_eq!(read_list(MOST_PAGES).await, Ok(MOST_PAGES));
        let problem = format!("has more than {MOST_PAGES} pages of `tools/list`");
        assert_eq!(read_list(MOST_PAGES + 1).await, Err(problem.into()));
    }
}

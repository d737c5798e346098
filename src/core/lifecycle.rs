//! One life of an upstream, from its start to the end of everything that it started. [`Upstream::start`] runs
//! it.
//!
//! ```text
//! begin carrier ─▶ greet: era, handshake, lists ─▶ up: calls; lists again when they change ─▶ stop carrier
//!       │                 │ it ended over the probe: once more, as legacy                      ▲
//!       └── failed ───────┴── failed ───── stopped, unused, crashed, or replaced by another ───┘
//! ```
//!
//! Invariant: a life reports under its generation; reports of an older life change nothing.
//! Invariant: calls in flight fail before anybody hears that the upstream is down.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use tokio::time::{sleep, timeout, timeout_at};

use super::LIFE;
use super::carrier::Carrier;
use super::connection::{Changes, Connection};
use super::engine::Engine;
use super::idle;
use super::modern::Cache;
use super::observed;
use super::start_error::{Cause, StartError};
use super::upstream::{End, Upstream};
use crate::catalog::{Item, Kind, Sent, is_withheld, read_page};
use crate::config::Transport;
use crate::events::Moment;
use crate::json::{Node, Scanner};
use crate::protocol::era::{Era, ServerHello, Version, initialize_params, modern_meta};
use crate::protocol::message::code;
use crate::text::one_line;
use crate::transport::peer::{CallError, Deadline, Lost};

/// How long an upstream may be silent before it is asked in the other era as well.
const SILENCE: Duration = Duration::from_millis(500);
/// A change of lists this soon after they were last read belongs to a burst.
const BURST: Duration = Duration::from_secs(1);
/// A burst is over when nothing has changed for this long.
const QUIET: Duration = Duration::from_millis(100);
/// A burst counts as over when it has lasted this long.
const LONGEST_BURST: Duration = Duration::from_secs(5);
/// How often reading lists again is retried after a failure. The first pause is below; each further one is
/// twice as long.
const MOST_RETRIES: u32 = 5;
const FIRST_RETRY: Duration = Duration::from_secs(1);
/// The most pages of one list that are read; more are taken for a mistake of the upstream.
const MOST_PAGES: usize = 10_000;

/// Runs one life of the upstream, from its start to the end of its whole process tree.
pub(super) async fn run(
    engine: Arc<Engine>,
    upstream: Arc<Upstream>,
    generation: u64,
    mut stop: oneshot::Receiver<()>,
) {
    let (begun_at, deadline) = (Moment::now(), tokio::time::Instant::now() + upstream.spec().timeouts.start);
    if let Some(error) = live(&engine, &upstream, generation, &mut stop, deadline, true).await {
        // The process may have ended because of the probe: it is started once more without one.
        if !upstream.may_start_again() {
            let end = End::Failed(error);
            observed::has_ended(&engine, &upstream, begun_at, &end, None);
            return upstream.ended(generation, end);
        }
        live(&engine, &upstream, generation, &mut stop, deadline, false).await;
    }
}

/// One start of the process. What it awaits only at its start, its end and now and then is boxed, so that an upstream
/// that is up does not hold memory for it.
///
/// The first of two attempts returns a reason if the process ended before it had
/// answered anything: it may then be started again without the probe.
///
/// It is long because a start has one order, which is read best in one place.
async fn live(
    engine: &Arc<Engine>,
    upstream: &Arc<Upstream>,
    generation: u64,
    stop: &mut oneshot::Receiver<()>,
    deadline: tokio::time::Instant,
    first: bool,
) -> Option<StartError> {
    let begun_at = Moment::now();
    let connection = Connection::new(upstream.clone(), engine.secrets_of(upstream));
    let late = || StartError::never_ready(&upstream.spec().timeouts);
    let begun = tokio::select! {
        biased;
        _ = &mut *stop => {
            upstream.ended(generation, End::Stopped);
            return None;
        }
        begun = timeout_at(deadline, Box::pin(Carrier::begin(engine, &connection))) => {
            begun.unwrap_or_else(|_| Err(late()))
        }
    };
    let mut carrier = match begun {
        Ok(carrier) => carrier,
        Err(error) => {
            let end = End::Failed(error.redacted(&connection.redactor));
            observed::has_ended(engine, upstream, begun_at, &end, None);
            upstream.ended(generation, end);
            return None;
        }
    };
    let greeting = tokio::select! {
        biased;
        _ = &mut *stop => None,
        greeted = Box::pin(greet_in_time(engine, &connection, deadline)) => Some(greeted),
        error = carrier.over() => Some(Err(error)),
    };
    let end = match greeting {
        None => End::Stopped,
        Some(Err(error)) => {
            let error = carrier.explain(connection.noise.explain(error)).redacted(&connection.redactor);
            connection.stop(&error.to_string());
            if first && connection.profile.is_mute() && carrier.is_over() {
                // Other upstreams that wait for the result of this probe need not make the same mistake.
                engine.known.guess_legacy(upstream);
                carrier.stop(false).await;
                return Some(error);
            }
            // A process that ends without a word tells nothing about its era, so what is known of that stays.
            if !connection.profile.is_greeted() && !carrier.is_over() {
                engine.spawn(engine.known.forget_era(upstream));
            }
            End::Failed(error)
        }
        Some(Ok(sent)) => {
            let up_since = Instant::now();
            log_ready(&connection, &sent, up_since - begun_at.instant);
            observed::is_ready(engine, upstream, begun_at, sent.definitions(Kind::Tool).count());
            upstream.came_up(generation, connection.clone(), sent.clone());
            engine.remember(&connection, sent);
            let ended = tokio::select! {
                biased;
                _ = &mut *stop => Err(End::Stopped),
                error = carrier.over() => Ok(error),
                // Whoever wanted the server has it now.
                error = observed::on_behalf_of(None, refresh(engine, &connection, generation)) => Ok(error),
                () = idle::unused(engine, &connection) => Err(End::Unused),
            };
            match ended {
                Err(end) => end,
                Ok(error) => {
                    let error = carrier.explain(error).redacted(&connection.redactor);
                    // The calls first: their callers wait, the lists can be a moment late.
                    connection.stop(&error.to_string());
                    End::Down(error, up_since.elapsed())
                }
            }
        }
    };
    Box::pin(finish(engine, &connection, generation, begun_at, (carrier, end))).await;
    None
}

/// Ends a life: reports it, stops everything that belongs to it, and tells how it went.
async fn finish(
    engine: &Arc<Engine>,
    connection: &Arc<Connection>,
    generation: u64,
    begun_at: Moment,
    (carrier, end): (Carrier, End),
) {
    let (upstream, farewell, told) = (&connection.upstream, farewell(&end), end.clone());
    // A crash is told at once; whoever we end has ended only when its process has.
    if farewell.is_none() {
        observed::has_ended(engine, upstream, begun_at, &told, carrier.exit());
    }
    upstream.ended(generation, end);
    connection.stop("it was closed");
    connection.noise.report(upstream);
    let exit = carrier.stop(farewell.is_some()).await;
    if farewell.is_some() {
        observed::has_ended(engine, upstream, begun_at, &told, exit);
    }
    log_end(upstream, farewell);
}

/// Why an upstream is ended by us; `None` if it ended by itself.
fn farewell(end: &End) -> Option<&'static str> {
    match end {
        End::Stopped => Some("it was closed"),
        End::Unused => Some("nobody has used it for a while"),
        End::Failed(_) | End::Down(..) => None,
    }
}

/// Logs the end of an upstream that we ended; that of any other is logged with its failure.
fn log_end(upstream: &Upstream, farewell: Option<&str>) {
    if let Some(why) = farewell {
        tracing::info!("[{upstream}] has ended: {why}");
    }
}

/// Logs what there is to know about an upstream that has just come up.
fn log_ready(connection: &Connection, sent: &Sent, took: Duration) {
    let (version, tools) = (connection.version(), sent.definitions(Kind::Tool).count());
    let era = if version.is_modern() { "modern" } else { "legacy" };
    let (version, ms) = (version.as_str(), took.as_millis());
    let tools = format!("{tools} tool{}", if tools == 1 { "" } else { "s" });
    tracing::info!(target: LIFE, "[{}] is ready: {era} {version}, {tools}, {ms} ms", connection.upstream);
}

/// Greets the upstream once we know what to tell it about the client. That wait does not count against the
/// upstream's time.
async fn greet_in_time(
    engine: &Arc<Engine>,
    connection: &Arc<Connection>,
    deadline: tokio::time::Instant,
) -> Result<Sent, StartError> {
    let begun = Instant::now();
    engine.audience.introduced(engine.only_client(&connection.upstream)).await;
    connection.tell_capabilities(engine.client_for(&connection.upstream).1);
    let greeted = timeout_at(deadline + begun.elapsed(), greet(engine, connection)).await;
    greeted.unwrap_or_else(|_| Err(StartError::never_ready(&connection.upstream.spec().timeouts)))
}

/// The handshake of the upstream's era and the first reading of all lists.
async fn greet(engine: &Arc<Engine>, connection: &Arc<Connection>) -> Result<Sent, StartError> {
    // A server may have been replaced since it was last asked, and may speak another era now.
    let (era, probing) = engine.known.era(&connection.upstream).await;
    let hello = match era {
        Some(Era::Legacy) => match initialize(engine, connection).await {
            Ok(hello) => hello,
            Err(error) => probe(engine, connection).await.map_err(|_| error)?,
        },
        Some(Era::Modern) => {
            let answer = discover(connection, &discover_params(connection), None).await;
            match answer.ok().and_then(|result| ServerHello::discovered(&result)) {
                Some(hello) => hello,
                None => initialize(engine, connection).await?,
            }
        }
        None => probe(engine, connection).await?,
    };
    let modern = hello.version.is_modern();
    connection.profile.greeted(hello);
    // The era is remembered at once: whatever becomes of the lists, it need not be probed again.
    engine.remember_manner(connection);
    drop(probing);
    match modern {
        true => connection.listen(),
        false => connection.peer.notify("notifications/initialized", |_| ()),
    }
    engine.greeted(connection);
    let mut sent = Sent::new(connection.version().era());
    let (tools, resources, templates, prompts) = tokio::join!(
        list(connection, Kind::Tool, |_| None),
        list(connection, Kind::Resource, |_| None),
        list(connection, Kind::Template, |_| None),
        list(connection, Kind::Prompt, |_| None),
    );
    let (tools, nameless) = tools?;
    sent = sent.with(Kind::Tool, tools, nameless);
    for (kind, list) in [(Kind::Resource, resources), (Kind::Template, templates), (Kind::Prompt, prompts)] {
        match list {
            Ok((list, nameless)) => sent = sent.with(kind, list, nameless),
            Err(error) => {
                let reason = error.redacted(&connection.redactor);
                tracing::warn!("[{}] {reason}; taken as an empty list", connection.upstream);
            }
        }
    }
    Ok(sent)
}

/// Finds the era of an upstream where it is not known yet. The modern question is asked first; any answer but
/// a modern one means legacy. An upstream that stays silent is asked in both eras, and the first answer
/// counts.
async fn probe(engine: &Arc<Engine>, connection: &Arc<Connection>) -> Result<ServerHello, StartError> {
    connection.profile.set_mute(true);
    let params = discover_params(connection);
    let asked = discover(connection, &params, None);
    tokio::pin!(asked);
    // Over HTTP every server answers at once, even if only to refuse.
    let spec = connection.upstream.spec();
    let silence = match spec.transport {
        Transport::Stdio(_) => SILENCE,
        Transport::Http(_) | Transport::Unset(_) => spec.timeouts.connect,
    };
    let answer = match timeout(silence, &mut asked).await {
        // The server refuses our version and yet names it as supported. The reason may have passed, so it is
        // asked once more.
        Ok(answer)
            if supported(&answer)
                .is_some_and(|named| named.iter().any(|version| version == Version::MODERN.as_str())) =>
        {
            discover(connection, &params, None).await
        }
        Ok(answer) => answer,
        Err(_) => {
            let legacy = initialize(engine, connection);
            tokio::pin!(legacy);
            tokio::select! {
                biased;
                hello = &mut legacy => match hello {
                    Ok(hello) => return Ok(hello),
                    // A modern server that was slow refuses `initialize` and answers `server/discover`.
                    Err(error) => match timeout(SILENCE, &mut asked).await.map(modern_answer) {
                        Ok(Ok(Some(hello))) => return Ok(hello),
                        _ => return Err(error),
                    },
                },
                answer = &mut asked => match modern_answer(answer)? {
                    Some(hello) => return Ok(hello),
                    None => return legacy.await,
                },
            }
        }
    };
    connection.profile.set_mute(false);
    match modern_answer(answer)? {
        Some(hello) => Ok(hello),
        None => initialize(engine, connection).await,
    }
}

/// What an answer to `server/discover` says. `None` means a server of the legacy era, which may know the
/// modern era well enough to refuse it by name.
fn modern_answer(answer: Result<String, CallError>) -> Result<Option<ServerHello>, StartError> {
    match supported(&answer) {
        Some(named) if named.iter().all(|version| Version::legacy(version).is_none()) => {
            let named = if named.is_empty() { "none that it names".to_owned() } else { format!("{named:?}") };
            let problem = format!("speaks none of the gateway's protocol versions: {named}");
            return Err(StartError::new(Cause::Version, problem));
        }
        _ => (),
    }
    match answer {
        Ok(result) => Ok(ServerHello::discovered(&result)),
        Err(CallError::Refused(_)) => Ok(None),
        // A server that cannot even refuse the request properly does not know the modern era.
        Err(CallError::Lost(lost)) if lost.is_malformed() => Ok(None),
        Err(CallError::Lost(lost)) => Err(lost.into()),
    }
}

/// The versions that an upstream names when it refuses ours.
fn supported(answer: &Result<String, CallError>) -> Option<Vec<String>> {
    let Err(CallError::Refused(error)) = answer else { return None };
    let mut scanner = Scanner::default();
    let root = scanner.scan_str(error).expect("an answer was validated when it was read").root();
    root.get("code").filter(|code| code.raw().parse() == Ok(code::UNSUPPORTED_VERSION))?;
    let named = root.get("data").and_then(|data| data.get("supported"));
    Some(named.and_then(|named| serde_json::from_str(named.raw()).ok()).unwrap_or_default())
}

async fn initialize(engine: &Arc<Engine>, connection: &Arc<Connection>) -> Result<ServerHello, StartError> {
    let (version, _) = engine.client_for(&connection.upstream);
    let params = initialize_params(version, connection.capabilities());
    let result = connection.ask("initialize", &params).await?;
    connection.profile.set_mute(false);
    ServerHello::read(&result).map_err(|problem| StartError::new(Cause::Version, problem))
}

async fn discover(
    connection: &Arc<Connection>,
    params: &str,
    deadline: Option<Deadline>,
) -> Result<String, CallError> {
    connection.request("server/discover", params.to_owned(), deadline, |result| result.raw().to_owned()).await
}

fn discover_params(connection: &Connection) -> String {
    format!("{{\"_meta\":{{{}}}}}", modern_meta(connection.capabilities()))
}

/// Reads every page of one list, each with its own deadline, and counts the things that have no name.
/// The list is empty where the upstream has no such things.
async fn list(
    connection: &Arc<Connection>,
    kind: Kind,
    deadline: fn(&Connection) -> Option<Deadline>,
) -> Result<(Vec<Item>, usize), StartError> {
    let (mut items, mut mended, mut nameless) = (Vec::new(), Vec::new(), 0);
    if !connection.can(kind.capability()) {
        return Ok((items, nameless));
    }
    let mut params = "{}".to_owned();
    let era = connection.version().era();
    let mut hint: Option<Cache> = None;
    for _ in 0..MOST_PAGES {
        let read =
            move |result: Node<'_>| read_page(kind, era, result).map(|page| (page, Cache::read(result)));
        let (page, of_page) =
            connection.ask_for(kind.list_method(), &params, deadline(connection), read).await??;
        if connection.version().is_modern() {
            let whole = hint.map_or(of_page, |hint| hint.and(of_page));
            connection.profile.set_hint(kind, whole);
            hint = Some(whole);
        }
        nameless += page.nameless;
        mended.extend(page.mended.iter().map(|at| items.len() + at));
        match items.is_empty() {
            true => items = page.items,
            false => items.extend(page.items),
        }
        match page.next.map(|cursor| format!("{{\"cursor\":{cursor}}}")) {
            Some(next) if next == params => {
                return Err(format!("repeats a page of `{}` for ever", kind.list_method()).into());
            }
            Some(next) => params = next,
            None => {
                log_oddities(&connection.upstream, kind, mended.iter().map(|at| &items[*at]), nameless);
                if kind == Kind::Tool {
                    items = connection.profile.note_mirrored(&connection.upstream, items);
                }
                return Ok((items, nameless));
            }
        }
    }
    Err(format!("has more than {MOST_PAGES} pages of `{}`", kind.list_method()).into())
}

/// Logs which things clients see in another form than they came, and how many have no name: once, and not
/// again whenever the same list is read again.
fn log_oddities<'a>(
    upstream: &Upstream,
    kind: Kind,
    mended: impl ExactSizeIterator<Item = &'a Item>,
    nameless: usize,
) {
    let (known, what) = (upstream.sent(), kind.noun());
    if mended.len() > 0 {
        let told: HashSet<&str> = known.definitions(kind).map(|(_, sent)| sent).collect();
        let spec = upstream.spec();
        let is_seen =
            |item: &&Item| !told.contains(item.sent()) && !is_withheld(spec.guard.as_ref(), kind, item);
        for item in mended.filter(is_seen) {
            let (key, members) = (one_line(&item.key), one_line(&item.mended().join(", ")));
            tracing::warn!(
                "[{upstream}] the {what} {key} is shown corrected, since MCP does not allow its {members}"
            );
        }
    }
    if nameless > 0 && nameless != known.nameless(kind) {
        let few = if nameless == 1 { "has" } else { "have" };
        tracing::warn!(
            "[{upstream}] {nameless} of its {} {few} no name and cannot be shown",
            kind.list_key()
        );
    }
}

/// Reads lists again when the upstream says that they changed: at once, and once more after a burst. Ends,
/// with a reason, when the upstream turns out to be another server than the one that we greeted.
async fn refresh(engine: &Arc<Engine>, connection: &Arc<Connection>, generation: u64) -> StartError {
    let mut last: Option<Instant> = None;
    let mut failures = 0;
    loop {
        connection.changes.noted().await;
        if last.is_some_and(|last| last.elapsed() < BURST) {
            let quiet = async { while timeout(QUIET, connection.changes.noted()).await.is_ok() {} };
            let _ = timeout(LONGEST_BURST, quiet).await;
        }
        let kinds = connection.changes.take();
        let mut unread = 0;
        if kinds & Changes::HELLO != 0 {
            match Box::pin(discover_again(engine, connection)).await {
                Ok(true) => {}
                Ok(false) => unread |= Changes::HELLO,
                Err(error) => return error,
            }
        }
        let mut sent = connection.upstream.sent();
        for kind in Kind::ALL.into_iter().filter(|kind| kinds & Changes::list(*kind) != 0) {
            // The limit is that of the first reading; a list that never ends would hold up all later changes.
            let patience = connection.upstream.spec().timeouts.connect;
            let list = Box::pin(list(connection, kind, Connection::own_deadline));
            let list = timeout(patience, list).await;
            match list.unwrap_or_else(|_| Err(StartError::timeout())) {
                Ok((list, nameless)) => sent = sent.with(kind, list, nameless),
                Err(error) => {
                    let reason = error.redacted(&connection.redactor);
                    tracing::warn!("[{}] {reason}; its list stays as it was", connection.upstream);
                    unread |= Changes::list(kind);
                }
            }
        }
        engine.remember(connection, sent.clone());
        connection.upstream.offers(generation, sent);
        last = Some(Instant::now());
        failures = if unread == 0 { 0 } else { failures + 1 };
        if (1..=MOST_RETRIES).contains(&failures) {
            // A server that is being redeployed may have an answer a little later.
            let (connection, pause) = (Arc::downgrade(connection), FIRST_RETRY * (1 << (failures - 1)));
            tokio::spawn(async move {
                sleep(pause).await;
                if let Some(connection) = connection.upgrade() {
                    connection.changes.note(unread);
                }
            });
        }
    }
}

/// Asks a modern upstream again what it can do; `false` if it does not answer now. The error is the reason
/// why the connection must begin anew.
async fn discover_again(engine: &Arc<Engine>, connection: &Arc<Connection>) -> Result<bool, StartError> {
    let params = discover_params(connection);
    let answer = discover(connection, &params, connection.own_deadline());
    let answer = timeout(connection.upstream.spec().timeouts.connect, answer).await;
    match answer.unwrap_or_else(|_| Err(CallError::Lost(Lost::new(StartError::timeout().to_string())))) {
        // The upstream may still answer the calls in flight.
        Err(CallError::Lost(_)) if connection.upstream.is_busy() => Ok(false),
        Err(CallError::Lost(lost)) => Err(lost.into()),
        answer => {
            let hello = answer.ok().and_then(|result| ServerHello::discovered(&result));
            let hello = hello.ok_or("the server was replaced by one that speaks another protocol version")?;
            connection.profile.greeted(hello);
            engine.remember_manner(connection);
            Ok(true)
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncBufReadExt, BufReader};

    use super::*;
    use crate::protocol::message::Outcome;

    #[test]
    fn an_error_to_the_modern_question_tells_the_era() {
        for (error, expected) in [
            (r#"{"code":-32601,"message":"m"}"#, Ok(())),
            (r#"{"code":-32022,"message":"m","data":{"supported":["2024-11-05","2025-11-25"]}}"#, Ok(())),
            (
                r#"{"code":-32022,"message":"m","data":{"supported":["2031-01-01"]}}"#,
                Err(r#"speaks none of the gateway's protocol versions: ["2031-01-01"]"#),
            ),
            (
                r#"{"code":-32022,"message":"m"}"#,
                Err("speaks none of the gateway's protocol versions: none that it names"),
            ),
        ] {
            let answer = modern_answer(Err(CallError::Refused(error.into())));
            let legacy = answer.map(|hello| assert!(hello.is_none(), "{error}"));
            let expected = expected.map_err(|problem| StartError::new(Cause::Version, problem));
            assert_eq!(legacy, expected, "{error}");
        }
    }

    #[test]
    fn an_upstream_that_is_up_holds_no_memory_for_its_start_and_its_end() {
        fn size<A, B, C, D, F: Future>(_: impl Fn(A, B, C, D) -> F) -> usize {
            size_of::<F>()
        }
        assert!(size(run) < 3000, "{} bytes", size(run));
    }

    /// Reads a list of this many pages with one tool each, and returns the number of tools.
    async fn read_list(pages: usize) -> Result<usize, StartError> {
        let connection = Connection::new(Upstream::unreal("box", "a"), Default::default());
        let hello = r#"{"protocolVersion":"2025-06-18","capabilities":{"tools":{}}}"#;
        connection.profile.greeted(ServerHello::read(hello).expect("it speaks our version"));
        let (theirs, ours) = tokio::io::duplex(1024);
        let (server, out) = (connection.clone(), connection.out.clone());
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
            items = list(&connection, Kind::Tool, |_| None) => items.map(|(items, _)| items.len()),
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

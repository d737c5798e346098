//! What a tab is told as it happens. A stream begins with the present state; from then on it tells what has
//! changed, part by part.
//!
//! Invariant: a stream keeps what it told last and nothing that it is about to tell, so that a tab which does not
//! read needs no buffer. One that has missed more calls than are kept gets them anew.
//! Invariant: what a tab is told is put together on another thread than that which serves calls.

use std::collections::HashMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use hyper::body::{Body, Bytes, Frame};
use hyper::header::HeaderMap;
use serde_json::{Value, json};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::chronicle::write_calls;
use super::door::Pass;
use super::premises::House;
use super::{Console, millis, now};
use crate::core::session::introduced;

/// The time between two looks at what has changed.
const TICK: Duration = Duration::from_millis(250);
/// How often plots are drawn, and the tab's right to look is checked again.
const SLOW_TICK: Duration = Duration::from_secs(1);
/// The longest silence.
const SILENCE: Duration = Duration::from_secs(5);

/// The stream of one tab.
pub(super) struct TabStream {
    /// The tab, unless somebody looks for its news.
    tab: Option<Tab>,
    /// Somebody who looks for the tab's news.
    look: Option<JoinHandle<(Tab, Option<String>)>>,
    tick: Interval,
    last_word: Instant,
}

/// What a tab may see, and what it was told.
struct Tab {
    console: Arc<Console>,
    pass: Pass,
    /// The headers with which the tab came, by which its pass is checked again.
    headers: HeaderMap,
    last_slow: Option<Instant>,
    /// The number of the next call to tell of; `None` before the first.
    next_call: Option<u64>,
    /// The parts as they were told last.
    told: HashMap<&'static str, String>,
}

impl TabStream {
    pub(super) fn new(console: Arc<Console>, pass: Pass, headers: HeaderMap) -> Self {
        let mut tick = interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let tab = Tab { console, pass, headers, last_slow: None, next_call: None, told: HashMap::new() };
        Self { tab: Some(tab), look: None, tick, last_word: Instant::now() }
    }

    /// The news of the next look; `None` if the tab may not look any more.
    fn poll_news(&mut self, context: &mut Context<'_>) -> Poll<Option<String>> {
        if let Some(mut tab) = self.tab.take_if(|_| self.tick.poll_tick(context).is_ready()) {
            self.look = Some(spawn_blocking(move || {
                let news = tab.news();
                (tab, news)
            }));
        }
        let Some(look) = &mut self.look else { return Poll::Pending };
        // A look that panics ends its stream, and the tab comes again.
        let Ok((tab, news)) = ready!(Pin::new(look).poll(context)) else { return Poll::Ready(None) };
        (self.tab, self.look) = (Some(tab), None);
        Poll::Ready(news)
    }
}

impl Tab {
    /// What is to be told now; `None` if the tab may not look any more.
    fn news(&mut self) -> Option<String> {
        let slow = self.last_slow.is_none_or(|last| last.elapsed() >= SLOW_TICK);
        if self.console.ended.load(Ordering::Relaxed)
            || (slow && self.console.door.pass(&self.headers).as_ref() != Some(&self.pass))
        {
            return None;
        }
        let (console, mut out) = (self.console.clone(), String::new());
        let houses = console.houses();
        let pass = self.pass.clone();
        self.tell(&mut out, "about", || about(&console, &pass));
        let entries = console.servers(&houses, &pass);
        let (servers, problems) = console.with_surroundings(&houses, &pass, |around| {
            let servers: Vec<_> = entries.iter().map(|entry| entry.row(around)).collect();
            let failed = entries.iter().filter_map(|entry| {
                let (state, _, why) = entry.state(around);
                (state == "failed").then(|| {
                    json!({"title": format!("{} failed", entry.upstream), "text": why.unwrap_or_default()})
                })
            });
            (servers, failed.collect::<Vec<_>>())
        });
        let refused = houses.iter().flat_map(|house| &house.refused).filter(|_| pass.groups.is_none());
        let refused = refused.map(|problem| json!({"title": problem.title, "text": problem.text}));
        let problems: Vec<_> = refused.chain(problems).collect();
        self.tell(&mut out, "servers", || servers.into());
        self.tell(&mut out, "problems", || problems.into());
        if let (_, Some(outlooks)) = console.look(&houses, &pass) {
            let sum = |of: fn(&super::Outlook) -> usize| outlooks.iter().map(of).sum::<usize>();
            let (all, seen) = (sum(|outlook| outlook.all), sum(|outlook| outlook.seen));
            self.tell(&mut out, "context", || json!({"all": all, "seen": seen}));
            let version: u64 = outlooks.iter().map(|outlook| outlook.version).sum();
            self.tell(&mut out, "catalog", || version.into());
        }
        self.tell(&mut out, "totals", || console.record.lock().totals(&pass));
        self.tell(&mut out, "clients", || clients(&console, &houses, &pass));
        if slow {
            self.last_slow = Some(Instant::now());
            self.tell(&mut out, "plot", || console.record.lock().plot(&pass, now()));
        }
        self.tell_calls(&mut out, slow);
        Some(out)
    }

    /// Tells a part, if it is not what was told last.
    fn tell(&mut self, out: &mut String, part: &'static str, make: impl FnOnce() -> Value) {
        let text = make().to_string();
        if self.told.get(part) != Some(&text) {
            out.push_str(&format!("event: {part}\ndata: {text}\n\n"));
            self.told.insert(part, text);
        }
    }

    /// Tells of the calls since the last time; of all that are kept if some of those are not. Nobody can read that
    /// many at a time, so then the next `slow` tick is soon enough.
    fn tell_calls(&mut self, out: &mut String, slow: bool) {
        let (anew, calls) = {
            let record = self.console.record.lock();
            let news = self.next_call.and_then(|next| record.calls_from(next, &self.pass));
            let anew = news.is_none();
            if anew && !slow {
                return;
            }
            self.next_call = Some(record.next());
            (anew, news.unwrap_or_else(|| record.calls_seen(0, &self.pass)))
        };
        if anew || !calls.is_empty() {
            let mut written = Vec::new();
            write_calls(&mut written, &calls);
            let written = String::from_utf8(written).expect("written from UTF-8 texts");
            out.push_str(&format!("event: calls\ndata: {{\"anew\":{anew},\"calls\":{written}}}\n\n"));
        }
    }
}

/// What the pages need to know first.
fn about(console: &Console, pass: &Pass) -> Value {
    json!({
        "face": if console.is_toolman() { "toolman" } else { "workbench" },
        "live": console.live,
        "orders": console.live && pass.groups.is_none(),
    })
}

/// The clients that are there. Somebody who may see some groups sees who has called something in them.
fn clients(console: &Console, houses: &[House], pass: &Pass) -> Value {
    let record = console.record.lock();
    if !console.live || pass.groups.is_some() {
        return record.visitors(pass).into();
    }
    let mut rows: Vec<(u64, Value)> = Vec::new();
    let workspaces = houses.iter().flat_map(|house| {
        house.engine.audience.workspaces().into_iter().map(move |workspace| (house, workspace))
    });
    for (house, workspace) in workspaces {
        if console.is_own(&workspace) {
            continue;
        }
        for client in introduced(&workspace) {
            let secrets = &house.engine.settings().secrets;
            let (name, version) = (secrets.redact(&client.name), secrets.redact(&client.client_version));
            let (calls, since) = (record.calls_of(&client.session, &name), millis(client.since));
            let row = json!({
                "key": format!("{} {name}", client.session), "name": name, "version": version,
                "era": client.era, "since": since, "calls": calls,
            });
            rows.push((since, row));
        }
    }
    rows.sort_by_key(|(since, _)| *since);
    rows.into_iter().map(|(_, row)| row).collect::<Vec<_>>().into()
}

impl Body for TabStream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let stream = self.get_mut();
        loop {
            let Some(mut news) = ready!(stream.poll_news(context)) else { return Poll::Ready(None) };
            if news.is_empty() && stream.last_word.elapsed() >= SILENCE {
                news.push_str(":\n\n");
            }
            if !news.is_empty() {
                stream.last_word = Instant::now();
                return Poll::Ready(Some(Ok(Frame::data(news.into()))));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::path::PathBuf;
    use std::task::Waker;

    use super::super::chronicle::tests::call;
    use super::super::door::tests::{door, headers};
    use super::*;
    use crate::config::locate::FaceKind;
    use crate::events::CallOutcome;

    /// The calls that a piece of the stream tells of, and whether it tells all of them anew; `None` if it tells of none.
    fn calls(piece: &str) -> Option<(bool, usize)> {
        let (_, rest) = piece.split_once("event: calls\ndata: ")?;
        let told: Value = serde_json::from_str(rest.lines().next()?).expect("JSON");
        Some((told["anew"] == true, told["calls"].as_array()?.len()))
    }

    /// A console, a tab that looks at it, and where its key lies.
    fn opened(name: &str) -> (Arc<Console>, TabStream, PathBuf) {
        let (door, state) = door(name, Vec::new());
        let key = door.key().expect("it was made");
        let console = Console::new(door, FaceKind::Workbench, true, super::super::UNUSED, Box::new(Vec::new));
        let headers = headers(&[("authorization", &format!("Bearer {key}"))]);
        let pass = console.door.pass(&headers).expect("the key is right");
        (console.clone(), TabStream::new(console, pass, headers), state)
    }

    #[tokio::test]
    async fn whoever_serves_calls_does_not_wait_for_what_a_tab_is_told() {
        let (console, mut stream, state) = opened("aside");
        let busy = console.record.lock();
        let mut context = Context::from_waker(Waker::noop());
        assert!(Pin::new(&mut stream).poll_frame(&mut context).is_pending());
        drop(busy);
        let frame = poll_fn(|context| Pin::new(&mut stream).poll_frame(context)).await;
        let told = frame.expect("it may look").expect("it cannot fail").into_data().expect("it has data");
        assert_eq!(calls(std::str::from_utf8(&told).expect("UTF-8")), Some((true, 0)));
        let _ = std::fs::remove_dir_all(state);
    }

    #[tokio::test]
    async fn a_tab_that_reads_nothing_keeps_nothing_and_gets_the_state_anew() {
        let (console, stream, state) = opened("tab");
        let mut tab = stream.tab.expect("nobody looks yet");
        let happen = |count: u64| {
            (0..count).for_each(|n| console.record.lock().add(call(n, "dev", 1.0, CallOutcome::Ok)));
        };
        let read = |tab: &mut Tab| tab.news().expect("it may look");
        assert_eq!(calls(&read(&mut tab)), Some((true, 0)));
        happen(3);
        assert_eq!(calls(&read(&mut tab)), Some((false, 3)));
        let kept = |tab: &Tab| tab.told.values().map(String::len).sum::<usize>();
        let before = kept(&tab);
        happen(20_000);
        assert_eq!(kept(&tab), before, "nobody keeps anything for a tab");
        // More than is kept is told once a second at most.
        assert_eq!(calls(&read(&mut tab)), None);
        tab.last_slow = None;
        assert_eq!(calls(&read(&mut tab)), Some((true, 500)));
        assert_eq!(calls(&read(&mut tab)), None);
        happen(1);
        assert_eq!(calls(&read(&mut tab)), Some((false, 1)));
        assert!(kept(&tab) < before + 10_000, "{} B", kept(&tab));
        let _ = std::fs::remove_dir_all(state);
        tab.last_slow = None;
        assert_eq!(tab.news(), None, "the key was deleted");
    }
}

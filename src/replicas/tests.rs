//! What holds of both stores, and of replicas over either of them. The store in a server is a real one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep, timeout};

use super::in_process::InProcess;
use super::members::GONE;
use super::post::{Arrival, Subject};
use super::store::{Addition, Away, Store};
use super::valkey::Valkey;
use super::{Handed, Replicas};
use crate::config::{Secret, StoreAddress};

#[path = "../../testing/store/mod.rs"]
#[allow(unreachable_pub, missing_docs)]
mod server;

const LONG: Duration = Duration::from_secs(60);
const PATIENCE: Duration = Duration::from_secs(30);

fn run<T>(test: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(test)
}

fn address(url: &str) -> StoreAddress {
    StoreAddress { url: Secret::new(url), shown: String::new(), prefix: "test".to_owned() }
}

/// Runs a test against each store that there is: in this process, the current server, and the oldest.
fn with_each<F: Future<Output = ()>>(test: impl Fn(Arc<dyn Store>) -> F) {
    run(test(Arc::new(InProcess::default())));
    for server in [server::Store::start(), server::Store::oldest()].into_iter().flatten() {
        run(async {
            let store = Valkey::connect(&address(&server.url())).await.expect("it is there");
            test(Arc::new(store)).await;
        });
        let lasting: Vec<_> = server.entries().into_iter().filter(|entry| entry.expires < 0).collect();
        assert!(lasting.is_empty(), "every key has a time to live: {lasting:?}");
        let longest = server.entries().into_iter().map(|entry| entry.expires).max().unwrap_or_default();
        assert!(longest <= 30 * 24 * 60 * 60 * 1000, "none stays longer than 30 days: {longest}");
        let named = |key: &str| key.starts_with("mcpwb:{test}:");
        assert!(server.entries().iter().all(|entry| named(&entry.key)), "{:?}", server.entries());
    }
}

#[test]
fn an_entry_is_swapped_once_and_written_only_in_its_epoch() {
    with_each(|store| async move {
        assert_eq!(store.read("e").await, Ok(None));
        assert_eq!(store.write("e", 0, b"x", LONG).await, Ok(false), "there is none");
        assert_eq!(store.swap("e", 1, "a", b"x", LONG).await, Ok(None));
        assert_eq!(store.swap("e", 0, "a", b"one\0", LONG).await, Ok(Some(1)));
        assert_eq!(store.swap("e", 0, "b", b"two", LONG).await, Ok(None), "only one is the first");
        let entry = store.read("e").await.unwrap().unwrap();
        assert_eq!((&*entry.owner, entry.epoch, &*entry.value), ("a", 1, &b"one\0"[..]));
        assert_eq!(store.write("e", 1, b"more", LONG).await, Ok(true));
        assert_eq!(store.swap("e", 1, "b", b"two", LONG).await, Ok(Some(2)));
        assert_eq!(store.write("e", 1, b"late", LONG).await, Ok(false));
        let entry = store.read("e").await.unwrap().unwrap();
        assert_eq!((&*entry.owner, entry.epoch, &*entry.value), ("b", 2, &b"two"[..]));
        let keys = ["none", "e"].map(str::to_owned);
        assert_eq!(store.epochs(&keys).await, Ok(vec![0, 2]));
        store.remove(&keys).await.unwrap();
        assert_eq!(store.read("e").await, Ok(None));
    });
}

#[test]
fn what_another_key_has_sealed_is_absent_and_can_be_replaced() {
    with_each(|store| async move {
        let [one, two] = ["one key", "two keys"].map(|key| Replicas::new(store.clone(), &[Secret::new(key)]));
        assert_eq!(one.swap("e", 0, "a", b"text", LONG).await, Ok(Some(1)));
        assert_eq!(one.look("e").await.map(|(seen, entry)| (seen, entry.is_some())), Ok((1, true)));
        assert_eq!((two.read("e").await, two.look("e").await), (Ok(None), Ok((1, None))));
        assert_eq!(two.swap("e", 0, "", b"", LONG).await, Ok(None), "what is used once stays used");
        assert_eq!(two.swap("e", 1, "b", b"other", LONG).await, Ok(Some(2)));
        assert_eq!(one.read("e").await, Ok(None));
        two.set_keys(&[Secret::new("three"), Secret::new("two keys")]);
        assert_eq!((two.key_changes(), two.read("e").await.unwrap().unwrap().value), (1, b"other".to_vec()));
        two.set_keys(&[Secret::new("three"), Secret::new("two keys")]);
        assert_eq!(two.key_changes(), 1, "they are the same");
    });
}

#[test]
fn a_server_that_is_full_is_away_and_no_log_is_taken_for_anothers() {
    for server in [server::Store::start(), server::Store::oldest()].into_iter().flatten() {
        run(async {
            let store = Valkey::connect(&address(&server.url())).await.expect("it is there");
            let add = |position| {
                let events = vec![(position, vec![1])];
                store.append(Addition { log: "l", fence: None, first_kept: 1, events, life: LONG })
            };
            assert_eq!(add(1).await, Ok(true));
            server.ask(&["CONFIG", "SET", "maxmemory", "1"]);
            assert!(add(2).await.is_err());
            assert!(store.swap("e", 0, "", b"", LONG).await.is_err() && store.beat("a").await.is_err());
            assert!(store.send("a", b"", LONG).await.is_err());
            server.ask(&["CONFIG", "SET", "maxmemory", "0"]);
            assert_eq!((add(2).await, add(1).await), (Ok(true), Ok(true)));
            server.ask(&["REPLICAOF", "127.0.0.1", "1"]);
            assert!(add(3).await.is_err());
        });
    }
}

#[test]
fn whoever_waits_for_a_replica_in_doubt_is_told() {
    with_each(|store| async move {
        let [one, two] = [(); 2].map(|()| Replicas::new(store.clone(), &[Secret::new("key")]));
        for replica in [&two, &one] {
            replica.beat().await.unwrap();
        }
        let receiving = [&one, &two].map(|replica| {
            let replica = replica.clone();
            tokio::spawn(async move { replica.keep_receiving(Arc::default()).await })
        });
        let held = Arc::new(Mutex::new(Vec::new()));
        let holding = held.clone();
        let hold = move |handed| {
            holding.lock().push(handed);
            None
        };
        two.serve(Subject::Session, Arc::new(hold));
        let mut asking = one.ask(&two.id, Subject::Session, b"").await.unwrap();
        let end = Instant::now() + PATIENCE;
        while held.lock().is_empty() {
            assert!(Instant::now() < end);
            sleep(Duration::from_millis(5)).await;
        }
        // The store forgets the one that serves, and the one that waits has not noticed anything.
        store.leave(&two.id).await.unwrap();
        two.beat().await.unwrap();
        assert_eq!(timeout(PATIENCE, asking.next()).await, Ok(Arrival::Lost));
        held.lock().clear();
        receiving.iter().for_each(|task| task.abort());
    });
}

#[test]
fn what_nobody_cares_for_expires() {
    with_each(|store| async move {
        let short = Duration::from_millis(30);
        for key in ["a", "b", "c"] {
            store.swap(key, 0, "", b"", short).await.unwrap();
        }
        let log = Addition { log: "l", fence: None, first_kept: 1, events: vec![(1, vec![1])], life: short };
        assert_eq!(store.append(log).await, Ok(true));
        store.touch(&["b".to_owned(), "none".to_owned()], LONG).await.unwrap();
        store.write("c", 1, b"", LONG).await.unwrap();
        let end = Instant::now() + PATIENCE;
        while store.read("a").await.unwrap().is_some() || !store.events("l", 0).await.unwrap().is_empty() {
            assert!(Instant::now() < end);
            sleep(Duration::from_millis(5)).await;
        }
        assert!(store.read("b").await.unwrap().is_some() && store.read("c").await.unwrap().is_some());
        // Whatever somebody wants, 30 days are the most.
        let ever = Duration::from_secs(400 * 24 * 60 * 60);
        assert_eq!(store.swap("d", 0, "", b"", ever).await, Ok(Some(1)));
        assert_eq!(store.write("d", 1, b"", ever).await, Ok(true));
        store.touch(&["b".to_owned()], ever).await.unwrap();
        let log = Addition { log: "m", fence: None, first_kept: 1, events: vec![(1, vec![1])], life: ever };
        assert_eq!(store.append(log).await, Ok(true));
        store.send("a", b"", ever).await.unwrap();
        assert_eq!(store.swap("a", 0, "", b"", LONG).await, Ok(Some(1)), "it is as if it had never been");
    });
}

#[test]
fn a_log_only_grows_and_a_fence_keeps_others_out() {
    with_each(|store| async move {
        let add = |first_kept, events: &[(u64, &str)], fence| {
            let events = events.iter().map(|(at, text)| (*at, text.as_bytes().to_vec())).collect();
            let store = store.clone();
            async move { store.append(Addition { log: "l", fence, first_kept, events, life: LONG }).await }
        };
        let read = |after| {
            let store = store.clone();
            async move {
                let events = store.events("l", after).await.unwrap();
                let text = |(at, text)| (at, String::from_utf8(text).unwrap());
                events.into_iter().map(text).collect::<Vec<(u64, String)>>()
            }
        };
        let event = |at: u64, text: &str| (at, text.to_owned());
        assert_eq!(read(0).await, []);
        assert_eq!(add(1, &[(1, "a"), (2, "b")], None).await, Ok(true));
        assert_eq!(add(1, &[(2, "other")], None).await, Ok(false), "the log has gone further");
        assert_eq!(add(2, &[(3, "c")], None).await, Ok(true));
        assert_eq!(read(0).await, [event(2, "b"), event(3, "c")], "the first is not kept");
        assert_eq!(read(2).await, [event(3, "c")]);
        assert_eq!(store.swap("e", 0, "me", b"", LONG).await, Ok(Some(1)));
        assert_eq!(add(2, &[(4, "d")], Some(("e", 1))).await, Ok(true));
        assert_eq!(store.swap("e", 1, "other", b"", LONG).await, Ok(Some(2)));
        assert_eq!(add(2, &[(5, "late")], Some(("e", 1))).await, Ok(false));
        assert_eq!(add(2, &[(5, "late")], Some(("none", 1))).await, Ok(false));
        // The greatest position ends it.
        assert_eq!(add(2, &[(u64::MAX, "")], None).await, Ok(true));
        assert_eq!(add(2, &[(5, "late")], None).await, Ok(false));
        assert_eq!(read(3).await, [event(4, "d"), event(u64::MAX, "")]);
        assert_eq!(read(u64::MAX).await, []);
    });
}

#[test]
fn a_letter_is_received_once_or_taken_back() {
    with_each(|store| async move {
        for letter in ["one", "two"] {
            store.send("me", letter.as_bytes(), LONG).await.unwrap();
        }
        assert_eq!(store.receive("me").await, Ok(vec![b"one".to_vec(), b"two".to_vec()]));
        assert_eq!(store.take_back("me").await, Ok(vec![]), "they were received");
        let (waited, ()) = tokio::join!(store.receive("me"), async {
            sleep(Duration::from_millis(20)).await;
            store.send("other", b"not mine", LONG).await.unwrap();
            store.send("me", b"three", LONG).await.unwrap();
        });
        assert_eq!(waited, Ok(vec![b"three".to_vec()]), "whoever waits is told");
        for _ in 0..2 {
            let returned = store.take_back("other").await;
            assert_eq!(returned, Ok(vec![b"not mine".to_vec()]), "whoever asks is told");
        }
        assert_eq!(store.receive("other").await, Ok(vec![]));
    });
}

#[test]
fn the_roll_tells_who_is_there() {
    with_each(|store| async move {
        assert_eq!(store.beat("a").await.unwrap().own_silence, None);
        let roll = store.beat("b").await.unwrap();
        assert_eq!(roll.others.iter().map(|(id, _)| &**id).collect::<Vec<_>>(), ["a"]);
        assert!(roll.others[0].1 < PATIENCE);
        let seen = store.roll("c").await.unwrap();
        assert_eq!((seen.own_silence, seen.others.len()), (None, 2));
        assert_eq!(store.roll("a").await.unwrap().others.len(), 1, "to look is not to be there");
        let roll = store.beat("a").await.unwrap();
        assert!(roll.own_silence.is_some_and(|silence| silence < PATIENCE));
        store.leave("b").await.unwrap();
        assert_eq!(store.beat("a").await.unwrap().others, []);
        assert_eq!(store.beat("b").await.unwrap().own_silence, None);
    });
}

/// Waits until something holds.
async fn until(what: &str, holds: impl AsyncFn() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !holds().await {
        assert!(Instant::now() < end, "it never came true: {what}");
        sleep(Duration::from_millis(5)).await;
    }
}

/// A replica that answers what it is asked with the words backwards, and bounces what is empty.
async fn backwards(store: &Arc<dyn Store>, keys: &[Secret]) -> Arc<Replicas> {
    let replicas = Replicas::new(store.clone(), keys);
    let serve = |handed: Handed| {
        tokio::spawn(async move {
            let mut body = handed.body.clone();
            if body.is_empty() {
                return handed.bounce().await;
            }
            body.reverse();
            assert!(handed.part(b"backwards:", false).await);
            assert!(handed.part(&body, true).await);
        });
        None
    };
    replicas.serve(Subject::Session, Arc::new(serve));
    replicas.begin().await.expect("the store is there");
    replicas
}

#[test]
fn a_request_is_handed_on_and_its_answer_comes_back() {
    with_each(|store| async move {
        let keys = [Secret::new("a key of thirty-two bytes, at least")];
        for keys in [&keys[..], &[]] {
            let [one, two] = [backwards(&store, keys).await, backwards(&store, keys).await];
            assert!(one.is_there(&two.id).await.unwrap() && two.is_there(&one.id).await.unwrap());
            for (from, to) in [(&one, &two), (&two, &one)] {
                let mut asking = from.ask(&to.id, Subject::Session, b"abc").await.unwrap();
                assert_eq!(asking.next().await, Arrival::Answer(b"backwards:".to_vec(), false));
                assert_eq!(asking.next().await, Arrival::Answer(b"cba".to_vec(), true));
                let mut asking = from.ask(&to.id, Subject::Session, b"").await.unwrap();
                assert_eq!(asking.next().await, Arrival::Bounced);
            }
            assert_eq!(one.keys(), two.keys(), "they agree on a key");
            assert!(!one.keys().is_empty());
            for replica in [one, two] {
                replica.leave().await;
            }
        }
    });
}

#[test]
fn a_replica_that_leaves_answers_the_letters_that_it_has_received() {
    run(async {
        let (store, keys) = (Arc::new(InProcess::default()), [Secret::new("key")]);
        let [stays, leaves] = [(); 2].map(|()| Replicas::new(store.clone(), &keys));
        for replica in [&stays, &leaves] {
            replica.begin().await.unwrap();
        }
        assert_eq!(stays.is_there(&leaves.id).await, Ok(true));
        let decided = Arc::new(Notify::new());
        let waits = decided.clone();
        let bounce_later = move |handed: Handed| {
            let decided = waits.clone();
            tokio::spawn(async move {
                decided.notified().await;
                handed.bounce().await;
            });
            None
        };
        leaves.serve(Subject::Session, Arc::new(bounce_later));
        let held_up = store.gate.write().await;
        let mut asking = stays.ask(&leaves.id, Subject::Session, b"").await.unwrap();
        while store.has_mail(&leaves.id) {
            yield_now().await;
        }
        let mut leaving = tokio::spawn(async move { leaves.leave().await });
        yield_now().await;
        drop(held_up);
        timeout(Duration::from_millis(50), &mut leaving).await.expect_err("a letter is not answered");
        decided.notify_one();
        leaving.await.unwrap();
        assert_eq!(timeout(PATIENCE, asking.next()).await, Ok(Arrival::Bounced));
        stays.leave().await;
    });
}

#[test]
fn what_stands_in_the_store_is_sealed_and_not_believed_if_changed() {
    with_each(|store| async move {
        let keys = [Secret::new("a key of thirty-two bytes, at least")];
        let replicas = Replicas::new(store.clone(), &keys);
        let said = b"what a client said";
        assert_eq!(replicas.swap("e", 0, "me", said, LONG).await, Ok(Some(1)));
        let events = vec![(1, said.to_vec()), (2, said.to_vec())];
        let addition = Addition { log: "l", fence: None, first_kept: 1, events: events.clone(), life: LONG };
        assert_eq!(replicas.append(addition).await, Ok(true));
        assert_eq!(replicas.read("e").await.unwrap().unwrap().value, said);
        assert_eq!(replicas.events("l", 0).await, Ok(events.clone()));
        let raw = store.read("e").await.unwrap().unwrap().value;
        let all = [raw.clone(), store.events("l", 0).await.unwrap().remove(0).1].concat();
        assert!(!all.windows(6).any(|part| part == b"client"));
        // Somebody puts a value into another place.
        store.swap("forged", 0, "me", &raw, LONG).await.unwrap();
        assert_eq!(replicas.read("forged").await, Ok(None));
        let swapped = store.events("l", 0).await.unwrap();
        let events = vec![(1, swapped[1].1.clone()), (2, swapped[0].1.clone())];
        let addition = Addition { log: "m", fence: None, first_kept: 1, events, life: LONG };
        assert_eq!(store.append(addition).await, Ok(true));
        assert_eq!(replicas.events("m", 0).await, Ok(vec![]));
        // Another key does not open it.
        let other = Replicas::new(store.clone(), &[Secret::new("another key of thirty-two bytes...")]);
        assert_eq!(other.read("e").await, Ok(None));
    });
}

#[test]
fn a_replica_that_is_silent_is_gone_and_what_it_did_not_receive_comes_back() {
    with_each(|store| async move {
        let keys = [Secret::new("a key of thirty-two bytes, at least")];
        let one = backwards(&store, &keys).await;
        // It beats once, and never receives anything.
        let silent = Replicas::new(store.clone(), &keys);
        store.beat(&silent.id).await.unwrap();
        let unreceived = async {
            let mut asking = one.ask(&silent.id, Subject::Session, b"abc").await.unwrap();
            asking.next().await
        };
        let received = async {
            let mut asking = one.ask(&silent.id, Subject::Session, b"def").await.unwrap();
            // It takes the letters and dies.
            let letters = store.receive(&silent.id).await.unwrap();
            assert_eq!(letters.len(), 1);
            asking.next().await
        };
        let begun = Instant::now();
        assert_eq!(received.await, Arrival::Lost);
        assert!(begun.elapsed() >= Duration::from_secs(2));
        assert!(!one.is_there(&silent.id).await.unwrap());
        assert_eq!(timeout(PATIENCE, unreceived).await, Ok(Arrival::Bounced), "it never got there");
    });
}

#[test]
fn a_doubt_is_settled_before_anything_is_answered() {
    with_each(|store| async move {
        let keys = [Secret::new("a key of thirty-two bytes, at least")];
        let replicas = Replicas::new(store.clone(), &keys);
        let asked = Arc::new(Mutex::new(0));
        let counted = asked.clone();
        replicas.on_doubt(Arc::new(move || {
            *counted.lock() += 1;
            Box::pin(std::future::ready(Ok(())))
        }));
        assert!(!replicas.is_settled());
        replicas.begin().await.unwrap();
        assert!(replicas.is_settled());
        assert_eq!(*asked.lock(), 1, "a new replica knows nothing of what it had");
        // The store forgets it.
        store.leave(&replicas.id).await.unwrap();
        until("it has asked again", async || *asked.lock() > 1).await;
        replicas.settled().await;
    });
}

#[test]
fn a_replica_whose_thread_is_busy_beats_until_nobody_hears_it() {
    with_each(|store| async move {
        let (began, beginning) = std::sync::mpsc::channel();
        let (free, freed) = std::sync::mpsc::channel::<()>();
        let shared = store.clone();
        let busy = std::thread::spawn(move || {
            run(async move {
                let replicas = Replicas::new(shared.apart().unwrap(), &[Secret::new("key")]);
                let asked = Arc::new(Mutex::new(0));
                let counted = asked.clone();
                replicas.on_doubt(Arc::new(move || {
                    *counted.lock() += 1;
                    Box::pin(std::future::ready(Ok(())))
                }));
                replicas.begin().await.unwrap();
                began.send(replicas.id.clone()).unwrap();
                // Nothing else runs on this thread meanwhile.
                freed.recv().unwrap();
                until("it has asked again", async || *asked.lock() > 1).await;
                replicas.settled().await;
                replicas.leave().await;
            });
        });
        let id = beginning.recv().unwrap();
        let silence = async || {
            let roll = store.roll("me").await.unwrap();
            roll.others.iter().find(|(other, _)| **other == *id).map(|(_, silence)| *silence)
        };
        let (mut last, mut beats) = (Duration::ZERO, 0);
        let end = Instant::now() + PATIENCE;
        while beats < 5 {
            assert!(Instant::now() < end, "{beats} beats");
            let now = silence().await.expect("it has begun");
            beats += usize::from(now < last);
            last = now;
            sleep(Duration::from_millis(5)).await;
        }
        // As long as it serves nobody, it cannot be said to live.
        until("it is gone", async || silence().await.is_some_and(|silence| silence >= GONE)).await;
        free.send(()).unwrap();
        until("it has left", async || silence().await.is_none()).await;
        busy.join().unwrap();
    });
}

#[test]
fn a_store_is_back_only_when_its_key_is_known() {
    with_each(|store| async move {
        let replicas = Replicas::new(store.clone(), &[]);
        replicas.beat().await.unwrap();
        let before = replicas.keys();
        let _ = replicas.noted::<()>(Err(Away("for the test".to_owned())));
        // It was started anew meanwhile.
        store.remove(&[super::KEY.to_owned()]).await.unwrap();
        let mut away = replicas.away.subscribe();
        let (heard, ()) = tokio::join!(replicas.beat(), async {
            away.wait_for(Option::is_none).await.unwrap();
            assert_ne!(replicas.keys(), before);
        });
        heard.unwrap();
    });
}

#[test]
fn a_doubt_that_could_not_be_settled_is_settled_at_the_next_beat() {
    with_each(|store| async move {
        let [one, two] = [(); 2].map(|()| Replicas::new(store.clone(), &[Secret::new("key")]));
        for replica in [&two, &one] {
            replica.beat().await.unwrap();
        }
        let fails = AtomicBool::new(true);
        one.on_doubt(Arc::new(move || {
            let outcome = match fails.swap(false, Ordering::Relaxed) {
                true => Err(Away("for the test".to_owned())),
                false => Ok(()),
            };
            Box::pin(std::future::ready(outcome))
        }));
        let mut asking = one.ask(&two.id, Subject::Session, b"").await.unwrap();
        // The store forgets the one that waits.
        store.leave(&one.id).await.unwrap();
        assert!(one.beat().await.is_err());
        one.beat().await.unwrap();
        assert_eq!(timeout(PATIENCE, asking.next()).await, Ok(Arrival::Lost));
    });
}

#[test]
fn a_key_that_the_store_forgot_is_a_changed_key() {
    with_each(|store| async move {
        let replicas = Replicas::new(store.clone(), &[]);
        replicas.beat().await.unwrap();
        let before = replicas.key_changes();
        // Nobody noticed that it was away.
        store.remove(&[super::KEY.to_owned()]).await.unwrap();
        store.leave(&replicas.id).await.unwrap();
        replicas.beat().await.unwrap();
        assert_eq!(replicas.key_changes(), before + 1);
        replicas.beat().await.unwrap();
        assert_eq!(replicas.key_changes(), before + 1);
    });
}

/// The server is killed, paused and started again; nobody waits for it meanwhile.
#[test]
fn a_letter_under_a_key_that_was_just_agreed_on_is_read() {
    with_each(|store| async move {
        let [asks, serves] = [(); 2].map(|()| Replicas::new(store.clone(), &[]));
        for replica in [&serves, &asks] {
            replica.agree().await.unwrap();
            replica.beat().await.unwrap();
        }
        let receiving =
            [&asks, &serves].map(|replica| tokio::spawn(replica.clone().keep_receiving(Arc::default())));
        serves.serve(
            Subject::Session,
            Arc::new(|handed| {
                tokio::spawn(async move { handed.part(b"served", true).await });
                None
            }),
        );
        // The store forgets the key, and only the one that asks has noticed.
        store.remove(&[super::KEY.to_owned()]).await.unwrap();
        asks.agree().await.unwrap();
        let mut asking = asks.ask(&serves.id, Subject::Session, b"").await.unwrap();
        assert_eq!(timeout(PATIENCE, asking.next()).await, Ok(Arrival::Answer(b"served".to_vec(), true)));
        assert_eq!((serves.key_changes(), serves.keys()), (2, asks.keys()));
        receiving.iter().for_each(|task| task.abort());
    });
}

#[test]
fn a_store_that_is_away_is_noticed_and_taken_up_again() {
    let Some(mut server) = server::Store::start() else { return };
    run(async {
        let store: Arc<dyn Store> =
            Arc::new(Valkey::connect(&address(&server.url())).await.expect("it is there"));
        let replicas = backwards(&store, &[]).await;
        replicas.swap("e", 0, "", b"x", LONG).await.unwrap();
        // A connection that merely drops is made anew, and nobody notices.
        for _ in 0..5 {
            server.drop_connections();
            assert!(replicas.read("e").await.unwrap().is_some());
            // The second beat from now began after the drop; one that is dropped twice would count as away.
            let heard = *replicas.beats.borrow();
            replicas.beats.subscribe().wait_for(|count| *count >= heard + 2).await.unwrap();
            assert!(!replicas.is_away());
        }
        for pauses in [true, false] {
            match pauses {
                true => server.pause(),
                false => server.kill(),
            }
            until("it is noticed", async || replicas.is_away()).await;
            assert!(replicas.is_settled(), "a home goes on");
            let begun = Instant::now();
            assert!(matches!(replicas.swap("f", 0, "", b"", LONG).await, Err(Away(_))));
            assert!(matches!(replicas.ask("0123456789abcdef", Subject::Session, b"").await, Err(Away(_))));
            assert!(begun.elapsed() < Duration::from_millis(500), "nobody waits for it");
            match pauses {
                true => server.resume(),
                false => server.restart(),
            }
            until("it is back", async || !replicas.is_away()).await;
        }
        assert_eq!(replicas.read("e").await, Ok(None), "it has forgotten");
        assert!(replicas.swap("e", 0, "", b"x", LONG).await.unwrap().is_some());
        assert!(replicas.read("e").await.unwrap().is_some(), "a key was agreed on again");
    });
}

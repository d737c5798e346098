//! `lock`: asks the servers what they offer, shows how that differs from what was approved, and writes it into the
//! lock file.

use super::World;
use super::change::{Config, Console, open};
use super::check::errors;
use super::failure::{Failure, FailureKind};
use super::load::{Loader, Overrides, form, runtime, signal};
use super::login;
use super::screen::Screen;
use crate::catalog::nearest;
use crate::config::locate::FaceKind;
use crate::config::{LockRule, Redactor, approved, lock_file};
use crate::edit::Value as ConfigValue;
use crate::edit::file::{Audience, Snapshot};
use crate::gateway::Gateway;
use crate::gateway::lock::{Asked, ask};
use crate::lock::{
    DefinitionChange, Difference, HowChanged, Lock, LockPlace, LockedKind, Offered, Renewal, Servers,
    Unwritable, WordChange, escaped, renew, words, write,
};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

/// The most candidates that are named for an item that may mean several things.
const CANDIDATES: usize = 10;

/// What the items of the command line are in toolman, which has no toolboxes.
pub(super) const ITEMS_OF_TOOLMAN: &str =
    "NAMESPACE, NAMESPACE/TOOL or anything shorter that is unique (default: everything)";

/// What the command line asks for.
pub(super) struct LockOrder<'a> {
    pub(super) face: FaceKind,
    /// The servers and tools that are meant; all if there are none.
    pub(super) items: &'a [String],
    /// Whether differences are only shown.
    pub(super) check: bool,
    pub(super) screen: Screen,
    pub(super) world: &'a World,
}

/// Renews the lock of a configuration file, or compares it, and returns the exit status.
pub(super) fn lock(order: &LockOrder<'_>, config: &Path, console: &mut Console<'_>) -> Result<u8, Failure> {
    let file = lock_file(config);
    if file == config {
        let hint = "rename the configuration: its lock file has the same name with the extension .lock";
        return Err(Failure::usage(format!("{} is the configuration itself", file.display()), hint));
    }
    // Nobody should wait for servers only to hear that the file cannot be read.
    let (_, known) = read(order.face, &file)?;
    let configured = configured(order.face, &open(order.face, config, order.world, None)?);
    let places = configured.keys().chain(known.keys());
    let narrow =
        order.items.iter().all(|item| places.clone().any(|place| may_be_of(order.face, place, item)));
    let wanted = |place: &LockPlace| {
        !narrow || order.items.is_empty() || order.items.iter().any(|item| may_be_of(order.face, place, item))
    };
    let (asked, secrets) = ask_servers(order, config, &wanted, console)?;
    let failed: Vec<_> = asked.iter().filter_map(|one| Some((one, one.outcome.as_ref().err()?))).collect();
    for (one, error) in &failed {
        console.warn(&format!("{}: {}; its part of the lock stays as it is", one.label, error.problem))?;
    }
    let secrets = asked.iter().fold(secrets, |all, one| all.and(&one.secrets));
    let mut survey = Survey { order, offered: offered(&asked, &configured), configured, secrets };
    for one in &asked {
        survey.configured.entry(one.place.clone()).or_insert(1);
    }
    let outcome = console.in_turn(&file, |console| survey.settle(&file, console))?;
    if console.output.json {
        let mut told: Vec<_> = failed
            .iter()
            .map(|(one, error)| survey.row(&one.place, json!({ "error": *error.problem })))
            .collect();
        told.extend(outcome.refused.iter().map(|one| {
            let error = format!("the {} {} {}", one.kind.noun(), escaped(&one.name), why(&one.why));
            survey.row(&one.place, json!({ "error": error }))
        }));
        let changes: Vec<_> = outcome.changes.iter().map(|change| survey.as_json(change)).collect();
        writeln!(console.out, "{}", json!({"ok": changes.is_empty(), "changes": changes, "failed": told}))?;
    }
    let differs = (order.check && !outcome.changes.is_empty()) || !outcome.refused.is_empty();
    Ok(match (differs, failed.is_empty()) {
        (true, _) => FailureKind::Failure.status(),
        (false, false) => FailureKind::Unreachable.status(),
        (false, true) => 0,
    })
}

/// The reminder after servers were added to a configuration that has a lock.
pub(super) fn remind(face: FaceKind, config: &Config, console: &mut Console<'_>) -> io::Result<()> {
    let file = lock_file(&config.snapshot.path);
    let rule = config.value.get("lock").and_then(ConfigValue::text);
    if rule == Some("off") || !(rule == Some("enforce") || file.exists()) {
        return Ok(());
    }
    let (file, command) = (file.display(), form(face).command());
    console.say(&format!("{file} needs renewing: `{command}` shows what is new and approves it"))
}

/// The lock file as it is, and what it approves.
fn read(face: FaceKind, file: &Path) -> Result<(Snapshot, Servers), Failure> {
    let snapshot = Snapshot::read(file).map_err(|error| Failure::unreadable(file, &error))?;
    let Some(bytes) = &snapshot.bytes else { return Ok((snapshot, Servers::new())) };
    let lock = approved(LockRule::Enforce, form(face), file, Ok(bytes)).map_err(|problems| {
        let count = errors(&problems);
        Failure::invalid(file, problems, format!("{count}; nothing was written"))
    })?;
    let servers = lock.as_deref().map(Lock::servers).cloned().unwrap_or_default();
    Ok((snapshot, servers))
}

/// Every server of a configuration, disabled or not, and how many share a namespace.
fn configured(face: FaceKind, config: &Config) -> BTreeMap<LockPlace, usize> {
    let places: Vec<_> = match face {
        FaceKind::Workbench => {
            let toolboxes = config.value.get("toolboxes").map(ConfigValue::entries).unwrap_or_default();
            let servers = |(toolbox, value): &(String, ConfigValue)| -> Vec<LockPlace> {
                let servers = value.get("mcpServers").map(ConfigValue::entries).unwrap_or_default();
                servers.iter().map(|(server, _)| LockPlace::new(toolbox, server)).collect()
            };
            toolboxes.iter().flat_map(servers).collect()
        }
        FaceKind::Toolman => {
            let servers = config.value.get("servers").map(ConfigValue::items).unwrap_or_default();
            let namespaces = servers.iter().filter_map(|server| server.get("namespace")?.text());
            namespaces.map(|namespace| LockPlace::new(namespace, "")).collect()
        }
    };
    let mut counted = BTreeMap::new();
    places.into_iter().for_each(|place| *counted.entry(place).or_insert(0) += 1);
    counted
}

/// What the servers that could be asked offer. The first server of a namespace has a name that several want.
fn offered(asked: &[Asked], configured: &BTreeMap<LockPlace, usize>) -> BTreeMap<LockPlace, Offered> {
    let mut offered: BTreeMap<LockPlace, (Offered, usize)> = BTreeMap::new();
    for (place, definitions) in asked.iter().filter_map(|one| Some((&one.place, one.outcome.as_ref().ok()?)))
    {
        let (offer, count) = offered.entry(place.clone()).or_default();
        *count += 1;
        for (all, more) in offer.definitions.iter_mut().zip(definitions) {
            for (name, text) in more {
                all.entry(name.clone()).or_insert_with(|| text.clone());
            }
        }
    }
    let whole = |place: &LockPlace, count: usize| configured.get(place).is_none_or(|there| *there <= count);
    let offered = offered.into_iter().map(|(place, (offer, count))| {
        let is_partial = !whole(&place, count);
        (place, Offered { is_partial, ..offer })
    });
    offered.collect()
}

/// Asks the wanted servers. Returns what they said, and what must not be shown.
fn ask_servers(
    order: &LockOrder<'_>,
    config: &Path,
    wanted: &dyn Fn(&LockPlace) -> bool,
    console: &Console<'_>,
) -> Result<(Vec<Asked>, Redactor), Failure> {
    let (world, screen) = (order.world, order.screen);
    let loader = Loader::for_asking(order.face, Ok(config.to_owned()), &Overrides::default(), world)?;
    let (loaded, _) = Loader { obeys_lock: false, ..loader }.load(console.output)?;
    let secrets = loaded.face.common().secrets.clone();
    let runtime = runtime()?;
    let asked = runtime.block_on(async {
        let interrupted = signal()?;
        let gateway = Gateway::new(loaded, world.engine_surroundings(world.attendance()));
        let asking =
            || screen.while_waiting("asking the servers", || gateway.starting(), ask(&gateway, wanted));
        let all = async {
            let asked = asking().await;
            match login::go_through(screen, asked.iter().filter_map(|one| one.login.clone())).await {
                true => asking().await,
                false => asked,
            }
        };
        let asked = tokio::select! {
            asked = all => Some(asked),
            () = interrupted => None,
        };
        gateway.end().await;
        Ok::<_, io::Error>(asked)
    });
    runtime.shutdown_background();
    let interrupted = || {
        screen.clear();
        Failure::failed("interrupted", "all servers that were started have been ended; nothing was written")
    };
    Ok((asked?.ok_or_else(interrupted)?, secrets))
}

/// A server's name in full, as people write it.
fn full_name(face: FaceKind, place: &LockPlace) -> String {
    match face {
        FaceKind::Workbench => format!("{}/{}", place.group, place.server),
        FaceKind::Toolman => place.group.clone(),
    }
}

/// All names of a server that people may write, the full one first.
fn names(face: FaceKind, place: &LockPlace) -> Vec<String> {
    match face {
        FaceKind::Workbench => vec![full_name(face, place), place.server.clone()],
        FaceKind::Toolman => vec![full_name(face, place)],
    }
}

/// Whether an item may mean a server or something of it, as far as its spelling tells.
fn may_be_of(face: FaceKind, place: &LockPlace, item: &str) -> bool {
    let rest = |name: &String| item.strip_prefix(name.as_str()).filter(|_| !name.is_empty());
    names(face, place).iter().filter_map(rest).any(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// What an item of the command line means: a server, or something of it by name.
type Meant = (LockPlace, Option<String>);

/// What was found out about the servers.
struct Survey<'a> {
    order: &'a LockOrder<'a>,
    offered: BTreeMap<LockPlace, Offered>,
    configured: BTreeMap<LockPlace, usize>,
    /// Values that must not be shown or written.
    secrets: Redactor,
}

impl Survey<'_> {
    /// Shows what differs from the file, asks, and writes it.
    fn settle(&self, file: &Path, console: &mut Console<'_>) -> Result<Renewal, Failure> {
        let (snapshot, approved) = read(self.order.face, file)?;
        let meant = self.meant(&approved)?;
        let wanted = |place: &LockPlace, name: &str| {
            let is_meant =
                |(other, only): &Meant| other == place && only.as_ref().is_none_or(|only| only == name);
            meant.is_empty() || meant.iter().any(is_meant)
        };
        let is_secret = |text: &str| self.secrets.redact(text) != text;
        let configured = self.configured.keys().cloned().collect();
        let renewal = renew(&approved, &self.offered, &configured, &wanted, &is_secret);
        let text =
            self.text(&renewal, if console.output.json { console.output.colour } else { console.colour });
        let changes = renewal.changes.len() - renewal.refused.len();
        let is_decided = self.order.check || (changes == 0 && snapshot.bytes.is_some());
        let is_asked = !is_decided && !console.yes && !console.dry_run;
        // A dry run shows the change by itself, and so does a question that nobody can answer.
        let shows = is_decided || console.yes || (is_asked && console.ask.is_some());
        if shows && (is_asked || !console.output.json) {
            console.show(&text)?;
        }
        for warning in self.warnings(&renewal).into_iter().filter(|_| is_asked || !console.output.json) {
            writeln!(console.err, "{}", console.output.message(&console.output.warning(&warning)))?;
        }
        let shown = file.display();
        if is_decided {
            let differ = match renewal.changes.len() {
                0 => format!("Nothing differs from {shown}"),
                _ if snapshot.bytes.is_none() => {
                    format!("{shown} does not exist, so nothing is approved yet")
                }
                1 => format!("1 definition differs from {shown}"),
                count => format!("{count} definitions differ from {shown}"),
            };
            let hint = match changes {
                0 => String::new(),
                _ => format!("; run `{}` to approve what the servers offer", form(self.order.face).command()),
            };
            console.say(&format!("{differ}{hint}"))?;
            return Ok(renewal);
        }
        let verb = if snapshot.bytes.is_some() { "Change" } else { "Create" };
        if console.is_agreed(&format!("{verb} {shown}?"), &text)? {
            console.hold(&snapshot)?;
            let text = write(form(self.order.face), &renewal.servers);
            snapshot.replace(text.as_bytes(), Audience::Usual).map_err(|error| {
                let hint = "the file is unchanged; check its permissions and the free space on the disk";
                Failure::failed(format!("cannot write {shown}: {error}"), hint)
            })?;
            console.say(&format!("Wrote {shown}; commit it, so that others can review it"))?;
        }
        Ok(renewal)
    }

    /// What the items of the command line mean.
    fn meant(&self, approved: &Servers) -> Result<Vec<Meant>, Failure> {
        let face = self.order.face;
        let mut all: BTreeSet<Meant> = BTreeSet::new();
        for place in self.configured.keys().chain(approved.keys()) {
            all.insert((place.clone(), None));
            let offer = self.offered.get(place);
            let now = offer.iter().flat_map(|offer| &offer.definitions).flat_map(BTreeMap::keys);
            let before = approved.get(place);
            let before =
                before.iter().flat_map(|known| LockedKind::ALL.map(|kind| known.of(kind).keys())).flatten();
            all.extend(now.chain(before).map(|name| (place.clone(), Some(name.clone()))));
        }
        let spelled = |(place, name): &Meant, full: bool| -> Vec<String> {
            let servers = names(face, place);
            let servers = if full { &servers[..1] } else { &servers[..] };
            let mut names: Vec<String> = match name {
                None => servers.to_vec(),
                Some(name) => servers.iter().map(|server| format!("{server}/{name}")).collect(),
            };
            names.extend(name.clone().filter(|_| !full || place.group.is_empty()));
            names
        };
        let mut meant = Vec::new();
        for item in self.order.items {
            let found = |full| -> Vec<&Meant> {
                all.iter().filter(|one| spelled(one, full).contains(item)).collect()
            };
            let found = Some(found(true)).filter(|found| !found.is_empty()).unwrap_or_else(|| found(false));
            match &found[..] {
                [one] => meant.push((*one).clone()),
                [] => {
                    return Err(unknown(
                        item,
                        &all.iter().flat_map(|one| spelled(one, false)).collect::<BTreeSet<_>>(),
                    ));
                }
                several => {
                    let several: Vec<_> = several.iter().flat_map(|one| spelled(one, true)).collect();
                    let named: Vec<_> =
                        several.iter().take(CANDIDATES).map(|name| format!("  {name}")).collect();
                    let message = format!("`{item}` may be any of {}", several.len());
                    return Err(Failure::usage(message, format!("say which one:\n{}", named.join("\n"))));
                }
            }
        }
        Ok(meant)
    }

    /// What differs, for a person.
    fn text(&self, renewal: &Renewal, colour: bool) -> String {
        let text: String = renewal.changes.iter().map(|change| self.as_text(change, colour)).collect();
        self.secrets.redact(&text).into_owned()
    }

    /// What a person should know before anything is approved.
    fn warnings(&self, renewal: &Renewal) -> Vec<String> {
        let refused = renewal.refused.iter().map(|one| {
            let name = self.address(&one.place, &one.name);
            format!("{name} {}; it is not written and stays withheld", why(&one.why))
        });
        let hiding = renewal.changes.iter().filter(|change| !change.characters.is_empty()).map(|change| {
            let name = self.address(&change.place, &change.name);
            format!("{name} has invisible characters: {}", points(change).join(", "))
        });
        refused.chain(hiding).collect()
    }

    fn address(&self, place: &LockPlace, name: &str) -> String {
        let server = full_name(self.order.face, place);
        escaped(&if server.is_empty() { name.to_owned() } else { format!("{server}/{name}") })
    }

    fn as_text(&self, change: &DefinitionChange, colour: bool) -> String {
        let paint = |code: &str, text: &str| match colour {
            true => format!("\x1b[{code}m{text}\x1b[0m"),
            false => text.to_owned(),
        };
        let what = match change.what {
            HowChanged::Text => "texts changed",
            HowChanged::Other => "changed",
            HowChanged::New => "new",
            HowChanged::Gone => "gone",
        };
        let kind = if change.kind == LockedKind::Prompt { " (prompt)" } else { "" };
        let mut text = format!("{}{kind}: {what}\n", paint("1", &self.address(&change.place, &change.name)));
        let old = |part: &str| if colour { paint("31", part) } else { format!("[-{part}-]") };
        let new = |part: &str| if colour { paint("32", part) } else { format!("{{+{part}+}}") };
        for Difference { path, is_text, old: before, new: now } in &change.differences {
            let (before, now) = (before.as_deref(), now.as_deref());
            let shown: String = match (before, now) {
                (Some(before), Some(now)) if *is_text => words(before, now)
                    .iter()
                    .map(|word| match word {
                        WordChange::Same(part) => part.clone(),
                        WordChange::Old(part) => old(part),
                        WordChange::New(part) => new(part),
                    })
                    .collect(),
                _ => [before.map(old), now.map(new)].into_iter().flatten().collect(),
            };
            text.push_str(&indented(&format!("{path}: {shown}")));
        }
        text.extend(change.added.as_deref().map(indented));
        text
    }

    fn as_json(&self, change: &DefinitionChange) -> Value {
        let what = match change.what {
            HowChanged::Text => "text",
            HowChanged::Other => "other",
            HowChanged::New => "new",
            HowChanged::Gone => "gone",
        };
        let mut row = json!({
            "kind": change.kind.noun(),
            "name": change.name,
            "change": what,
            "characters": points(change),
        });
        if let HowChanged::Text | HowChanged::Other = change.what {
            row["paths"] = change.differences.iter().map(|one| one.path.as_str()).collect();
        }
        self.row(&change.place, row)
    }

    /// A row of JSON about a server.
    fn row(&self, place: &LockPlace, mut row: Value) -> Value {
        match self.order.face {
            FaceKind::Workbench => {
                row["toolbox"] = place.group.as_str().into();
                row["server"] = place.server.as_str().into();
            }
            FaceKind::Toolman => row["namespace"] = place.group.as_str().into(),
        }
        row
    }
}

/// The characters of a change that nobody sees, by code point.
fn points(change: &DefinitionChange) -> Vec<String> {
    change.characters.iter().map(|point| format!("U+{point:04X}")).collect()
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("    {line}\n")).collect()
}

fn why(refusal: &Unwritable) -> String {
    match refusal {
        Unwritable::Secret => "holds a secret of the configuration".to_owned(),
        Unwritable::Twice(member) => format!("has the member \"{member}\" twice"),
        Unwritable::Deep => "is nested too deeply".to_owned(),
    }
}

fn unknown(item: &str, known: &BTreeSet<String>) -> Failure {
    let near = nearest(item, known.iter().map(String::as_str), 3);
    let hint = match near.is_empty() {
        true => "name a server or one of its tools; a server that could not be asked has none".to_owned(),
        false => format!("did you mean {}?", near.join(", ")),
    };
    Failure::usage(format!("there is no server or tool `{item}`"), hint)
}

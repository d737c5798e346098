//! `connect` and `disconnect`: ourselves in a client's own file.

use super::World;
use super::change::{Answer, Config, Console, Proposal, Settled, open, refused};
use super::failure::Failure;
use super::import::{home_variable, is_gateway, literals, unknown_client};
use super::variables::{Wanted, held_by_clients, known, unset};
use crate::catalog::Kind;
use crate::client_files::{
    self, FileScope, FoundValue, ImportedServer, Ourselves, Past, held, places, read, read_config,
};
use crate::config::locate::Face;
use crate::config::{Redactor, Server, ToolMode};
use crate::edit::backup::{Backup, Record};
use crate::edit::file::{Audience, Snapshot};
use crate::edit::{self, Value};
use crate::known_clients::KnownClient;
use crate::memory::definitions::Definitions;
use serde_json::{Map, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How a client is connected.
pub(super) struct Order<'a> {
    /// What the client is called.
    pub(super) client: &'a str,
    pub(super) face: Face,
    /// The face that the program has without `--face`.
    pub(super) own_face: Face,
    pub(super) tool_mode: Option<ToolMode>,
    /// Whether the client's servers stay.
    pub(super) keep: bool,
    /// What the client is to start, absolute.
    pub(super) program: &'a Path,
    pub(super) world: &'a World,
}

/// Puts us into a client's user-wide file and takes out what our configuration holds.
pub(super) fn connect(
    order: &Order<'_>,
    config: &Path,
    console: &mut Console<'_>,
) -> Result<Answer, Failure> {
    let client = named(order.client)?;
    let path = user_place(client, order.world)?;
    console.in_turn(&path, |console| connect_now(order, client, &path, config, console))
}

fn connect_now(
    order: &Order<'_>,
    client: &'static KnownClient,
    path: &Path,
    config: &Path,
    console: &mut Console<'_>,
) -> Result<Answer, Failure> {
    let world = order.world;
    let ours = open(order.face, config, world, None)?;
    let snapshot = read_file(path)?;
    let name = entry_name(order.face);
    let backup = backup(client, name, path, world)?;
    let base = match backup.read() {
        Some(_) => disconnected(client, name, &snapshot, &backup)?,
        None => Base::of(&snapshot)?,
    };
    let start = gateway_start(order, client, config, &ours);
    let change = Registration::plan(order, client, path, &base.text, start)?;

    let mut answer = change.answer(client);
    let proposal = Proposal {
        snapshot: &snapshot,
        format: client.files.dialect.format,
        after: Some(&change.after),
        audience: if change.start.handed_on.is_empty() { Audience::Usual } else { Audience::Owner },
        secrets: change.secrets(),
    };
    let record = Record {
        file: path.to_owned(),
        created: base.created,
        directories: if snapshot.bytes.is_none() { snapshot.missing_directories() } else { base.directories },
        taken: change.taken.iter().map(|server| server.origin.path.clone()).collect(),
    };
    if change.replaces && snapshot.text() != Some(&change.after) {
        console.warn(&format!("another server is called {name}; we take its place until you disconnect"))?;
    }
    let outcome = console.settle(&proposal, &mut answer, || {
        backup.write(&record, base.text.as_bytes(), change.after.as_bytes()).map_err(|error| {
            let message = format!("cannot make a backup in {}: {error}", backup.directory().display());
            Failure::failed(message, "check that you may write there; nothing was changed")
        })
    })?;
    match outcome {
        Settled::Same => console.say(&format!("{} is connected already", client.title))?,
        Settled::Shown => {}
        Settled::Written => {
            answer.insert("backup".to_owned(), json!(backup.directory()));
            change.tell(client, order.face, console)?;
            let hidden = hidden_apps(order, client, config, &ours);
            if !hidden.is_empty() {
                console.say(&format!(
                    "apps of {} are not shown, since {} gets proxy mode; `connect {} --tool-mode flat` shows them",
                    hidden.join(", "),
                    client.title,
                    client.id
                ))?;
            }
        }
    }
    let mut missing = unset(&ours.text, world);
    missing.retain(|name| !change.start.handed_on.iter().any(|one| one.variable == *name));
    if !missing.is_empty() && outcome != Settled::Same {
        console.say(&format!("not set here, and needed where it starts: {}", missing.join(", ")))?;
    }
    answer.insert("unset".to_owned(), json!(missing));
    Ok(answer)
}

/// The servers that are known to have apps which the client would render, if it were shown the tools that name them.
fn hidden_apps(order: &Order<'_>, client: &KnownClient, config: &Path, ours: &Config) -> Vec<String> {
    let world = order.world;
    // What is not set here makes no other server of one.
    let variable = |name: &str| Some(world.variable(name).unwrap_or_default());
    let loaded = match order.face {
        Face::Workbench => crate::config::load(config, ours.text.as_bytes(), &variable).ok(),
        Face::Toolman => None,
    };
    let (Some((file, _)), Some(cache)) = (loaded, world.cache_directory()) else { return Vec::new() };
    let is_proxied = match written_mode(order, ours).unwrap_or(file.tool_mode) {
        ToolMode::Proxy => true,
        ToolMode::Auto => !client.behaviour.takes_up_changes(),
        ToolMode::Dynamic => false,
    };
    if !is_proxied || !client.behaviour.renders_apps {
        return Vec::new();
    }
    let definitions = Definitions::new(&cache, &world.directory);
    let has_apps = |server: &&Arc<Server>| {
        let items = definitions.load(&server.transport);
        items.is_some_and(|items| items.of(Kind::Tool).iter().any(|tool| tool.pages().next().is_some()))
    };
    let servers = file.toolboxes.iter().flat_map(|toolbox| &toolbox.servers);
    servers.filter(has_apps).map(|server| server.name.to_string()).collect()
}

/// The mode that the client's file is to name; `None` where ours decides.
fn written_mode(order: &Order<'_>, ours: &Config) -> Option<ToolMode> {
    order.tool_mode.or(ours.value.get("toolMode").is_none().then_some(ToolMode::Auto))
}

/// What a client will start, and what was known when that was decided.
struct GatewayStart {
    ourselves: Ourselves,
    /// The servers of our configuration.
    present: Vec<ImportedServer>,
    /// Values of variables that we are started with.
    handed_on: Vec<FoundValue>,
    /// Values that the client would take for variables of its own.
    held_back: Vec<FoundValue>,
}

fn gateway_start(
    order: &Order<'_>,
    client: &'static KnownClient,
    config: &Path,
    ours: &Config,
) -> GatewayStart {
    let groups = read_config(order.face, &ours.value);
    let wanted =
        Wanted { face: order.face, file: config, text: &ours.text, groups: &groups, client: Some(client) };
    let found = held_by_clients(&wanted, order.world).values;
    let (handed_on, held_back): (Vec<_>, Vec<_>) =
        found.into_iter().partition(|one| client.takes_literally(&one.text));
    GatewayStart {
        ourselves: ourselves(order, config, written_mode(order, ours), &handed_on),
        present: groups.into_iter().flat_map(|group| group.servers).collect(),
        handed_on,
        held_back,
    }
}

/// A client's file with us in it, before anybody has agreed to that.
struct Registration {
    start: GatewayStart,
    /// The text of the file.
    after: String,
    /// All servers that the file has without us.
    there: Vec<ImportedServer>,
    /// Those that our configuration holds, so that the file need not.
    taken: Vec<ImportedServer>,
    /// Names of those that stay.
    kept: Vec<String>,
    /// Whether another server has the name of our entry.
    replaces: bool,
}

impl Registration {
    /// `before` is the text of the client's file without us.
    fn plan(
        order: &Order<'_>,
        client: &'static KnownClient,
        path: &Path,
        before: &str,
        start: GatewayStart,
    ) -> Result<Self, Failure> {
        let refused = |refusal| refused(path, &refusal);
        let world = order.world;
        let value = edit::parse(client.files.dialect.format, before).map_err(refused)?.value;
        let there = read(client, path, FileScope::User, &value, &world.directory, home_variable()).servers;
        let (gateways, others): (Vec<_>, Vec<_>) = there.iter().partition(|server| is_gateway(server));
        let found: Vec<_> = start.handed_on.iter().chain(&start.held_back).cloned().collect();
        let mut taken = held(&there, &start.present, &|name| known(name, &found, world));
        taken.retain(|server| !order.keep && !is_gateway(server));
        let paths: Vec<_> = taken.iter().map(|server| server.origin.path.clone()).collect();
        let after = client_files::connect(client, before, &start.ourselves, &paths).map_err(refused)?;
        let own = client_files::entry_path(client, &value, &start.ourselves.name);
        let replaces = value.at(&own).is_some() && gateways.iter().all(|server| server.origin.path != own);
        let stays = |server: &&&ImportedServer| server.origin.path != own && !taken.contains(server);
        let kept = others.iter().filter(stays).map(|server| server.name.clone()).collect();
        let taken = taken.into_iter().cloned().collect();
        Ok(Self { start, after, taken, kept, replaces, there })
    }

    fn answer(&self, client: &KnownClient) -> Answer {
        let ourselves = &self.start.ourselves;
        let members = [
            ("client", json!(client.id)),
            ("entry", json!(ourselves.name)),
            ("command", json!(ourselves.program)),
            ("args", json!(ourselves.args)),
            ("env", self.start.handed_on.iter().map(|one| json!(one.variable)).collect()),
            ("removed", self.taken.iter().map(|server| json!(server.name)).collect()),
            ("replaced", if self.replaces { json!([ourselves.name]) } else { json!([]) }),
            ("kept", json!(self.kept)),
        ];
        members.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
    }

    /// What no diff may show.
    fn secrets(&self) -> Redactor {
        let values = self.start.handed_on.iter().chain(&self.start.held_back);
        let values = values.map(|one| (one.text.clone(), one.variable.clone()));
        Redactor::new(values.chain(literals(&self.there)))
    }

    /// Says what was written.
    fn tell(&self, client: &KnownClient, face: Face, console: &mut Console<'_>) -> Result<(), Failure> {
        console.say(&format!("{} starts {} now; restart it", client.title, face.program()))?;
        if !self.taken.is_empty() {
            let names: Vec<_> = self.taken.iter().map(|server| server.name.as_str()).collect();
            console.say(&format!("behind us, and no longer in its own file: {}", names.join(", ")))?;
        }
        if !self.start.handed_on.is_empty() {
            let names: Vec<_> = self.start.handed_on.iter().map(|one| one.variable.as_str()).collect();
            console.say(&format!("started with the secrets that init took out: {}", names.join(", ")))?;
        }
        console.say(&format!("to undo it: {} disconnect {}", face.program(), client.id))?;
        Ok(())
    }
}

/// Takes us out again and gives back what connecting took.
pub(super) fn disconnect(
    client: &str,
    face: Face,
    world: &World,
    console: &mut Console<'_>,
) -> Result<Answer, Failure> {
    let (client, name) = (named(client)?, entry_name(face));
    let mut answer = Map::new();
    answer.insert("client".to_owned(), json!(client.id));
    answer.insert("entry".to_owned(), json!(name));
    let environment = |name: &str| world.variable(name);
    let around = world.surroundings(&environment);
    let user = places(client, &around).into_iter().filter(|place| place.own);
    let mut outcome = None;
    for place in user {
        let path = &place.path;
        outcome = console
            .in_turn(path, |console| disconnect_now(client, face, path, world, &mut answer, console))?;
        if outcome.is_some() {
            break;
        }
    }
    if outcome.is_none_or(|outcome| outcome == Settled::Same) {
        answer.entry("changed").or_insert(json!(false));
        answer.entry("written").or_insert(json!(false));
        console.say(&format!("{} is not connected; there is nothing to do", client.title))?;
    }
    Ok(answer)
}

/// Takes us out of one file; `None` if we do not stand in it.
fn disconnect_now(
    client: &KnownClient,
    face: Face,
    path: &Path,
    world: &World,
    answer: &mut Answer,
    console: &mut Console<'_>,
) -> Result<Option<Settled>, Failure> {
    let name = entry_name(face);
    let backup = backup(client, name, path, world)?;
    let snapshot = read_file(path)?;
    let record = backup.read().map(|(record, ..)| record);
    let connected = match (&record, &snapshot.bytes) {
        (Some(_), Some(_)) => true,
        // What was taken out of a file that is gone comes back.
        (Some(record), None) => !record.created,
        (None, _) => starts_us(client, name, &snapshot, world)?,
    };
    if !connected {
        return Ok(None);
    }
    let base = disconnected(client, name, &snapshot, &backup)?;
    let after = (!base.created).then_some(base.text.as_str());
    let value = edit::parse(client.files.dialect.format, text(&snapshot)?).map(|parsed| parsed.value);
    let before = edit::parse(client.files.dialect.format, &base.text).map(|parsed| parsed.value);
    let mut hidden = Vec::new();
    for value in [value, before].into_iter().flatten() {
        let imported = read(client, path, FileScope::User, &value, &world.directory, home_variable());
        hidden.extend(literals(&imported.servers));
    }
    let proposal = Proposal {
        snapshot: &snapshot,
        format: client.files.dialect.format,
        after,
        audience: if snapshot.bytes.is_none() { Audience::Owner } else { Audience::Usual },
        secrets: Redactor::new(hidden),
    };
    let outcome = console.settle(&proposal, answer, || Ok(()))?;
    if outcome == Settled::Written {
        for directory in base.directories.iter().rev() {
            // Somebody else may have put something there.
            let _ = std::fs::remove_dir(directory);
        }
        backup.discard();
        if let Some(record) = record.filter(|record| record.created && !base.created) {
            bequeath(&record, client, world);
        }
        console.say(&format!("{} no longer starts {}; restart it", client.title, face.program()))?;
    } else if outcome == Settled::Same && !console.dry_run {
        // Nobody may be connecting just now: the backup would be theirs.
        console.hold(&snapshot)?;
        backup.discard();
    }
    Ok(Some(outcome))
}

/// A client's file as it is, or would be, without us.
struct Base {
    text: String,
    /// Whether there was no file before us.
    created: bool,
    directories: Vec<PathBuf>,
}

impl Base {
    /// The file as it is.
    fn of(snapshot: &Snapshot) -> Result<Self, Failure> {
        let text = text(snapshot)?.to_owned();
        Ok(Self { text, created: snapshot.bytes.is_none(), directories: Vec::new() })
    }
}

fn disconnected(
    client: &KnownClient,
    name: &str,
    snapshot: &Snapshot,
    backup: &Backup,
) -> Result<Base, Failure> {
    let (current, path) = (Base::of(snapshot)?, &snapshot.path);
    let Some((record, before, after)) = backup.read() else {
        let text = client_files::disconnect(client, &current.text, name, &Past::default());
        return Ok(Base { text: text.map_err(|refusal| refused(path, &refusal))?, ..current });
    };
    let old = String::from_utf8(before).map_err(|_| {
        Failure::failed(format!("the backup in {} is damaged", backup.directory().display()), "remove it")
    })?;
    let text = match &snapshot.bytes {
        None => old,
        Some(bytes) if *bytes == after => old,
        Some(_) => {
            let after = String::from_utf8_lossy(&after);
            let past = Past { before: &old, after: &after, taken: &record.taken };
            client_files::disconnect(client, &current.text, name, &past)
                .map_err(|refusal| refused(path, &refusal))?
        }
    };
    let empty = edit::parse(client.files.dialect.format, &text).is_ok_and(|parsed| is_hollow(&parsed.value));
    Ok(Base { text, created: record.created && empty, directories: record.directories })
}

/// Whether the entry with our name is ours: another server may have it too.
fn starts_us(client: &KnownClient, name: &str, snapshot: &Snapshot, world: &World) -> Result<bool, Failure> {
    let value = edit::parse(client.files.dialect.format, text(snapshot)?)
        .map_err(|refusal| refused(&snapshot.path, &refusal))?
        .value;
    let entry = client_files::entry_path(client, &value, name);
    let read = read(client, &snapshot.path, FileScope::User, &value, &world.directory, home_variable());
    Ok(read.servers.iter().any(|server| server.origin.path == entry && is_gateway(server)))
}

/// Whether nothing is left but empty objects.
fn is_hollow(value: &Value) -> bool {
    matches!(value, Value::Object(_)) && value.entries().iter().all(|(_, value)| is_hollow(value))
}

fn named(client: &str) -> Result<&'static KnownClient, Failure> {
    KnownClient::named(client).ok_or_else(|| unknown_client(client, ""))
}

/// The user-wide file that is there, or else the one that the client would look for first.
fn user_place(client: &KnownClient, world: &World) -> Result<PathBuf, Failure> {
    let environment = |name: &str| world.variable(name);
    let around = world.surroundings(&environment);
    let places: Vec<_> = places(client, &around).into_iter().filter(|place| place.own).collect();
    let there = places.iter().find(|place| (around.exists)(&place.path));
    let place = there.or(places.first()).map(|place| place.path.clone());
    place.ok_or_else(|| Failure::usage("you have no home directory", "set HOME"))
}

fn read_file(path: &Path) -> Result<Snapshot, Failure> {
    Snapshot::read(path).map_err(|error| Failure::unreadable(path, &error))
}

fn text(snapshot: &Snapshot) -> Result<&str, Failure> {
    snapshot.text().ok_or_else(|| {
        let message = format!("{} is not UTF-8; it was left as it is", snapshot.path.display());
        Failure::configuration(message, "save it as UTF-8")
    })
}

fn entry_name(face: Face) -> &'static str {
    match face {
        Face::Workbench => "workbench",
        Face::Toolman => "toolman",
    }
}

fn backup(client: &KnownClient, name: &str, path: &Path, world: &World) -> Result<Backup, Failure> {
    let state =
        world.state_directory().ok_or_else(|| Failure::usage("you have no home directory", "set HOME"))?;
    Ok(Backup::new(&state, &format!("{}-{name}", client.id), path))
}

/// The backups of a client's file, one for each face.
pub(super) fn backups(client: &KnownClient, path: &Path, world: &World) -> Vec<Backup> {
    let faces = [Face::Workbench, Face::Toolman].into_iter();
    faces.filter_map(|face| backup(client, entry_name(face), path, world).ok()).collect()
}

/// A file that connecting made goes with the last face that stands in it.
fn bequeath(record: &Record, client: &KnownClient, world: &World) {
    for other in backups(client, &record.file, world) {
        if let Some((own, before, after)) = other.read() {
            let heir = Record { created: true, directories: record.directories.clone(), ..own };
            // Without it an empty file stays, which harms nobody.
            let _ = other.write(&heir, &before, &after);
        }
    }
}

/// Without a mode the file decides.
fn ourselves(
    order: &Order<'_>,
    config: &Path,
    mode: Option<ToolMode>,
    handed_on: &[FoundValue],
) -> Ourselves {
    let mut args = Vec::new();
    if order.face != order.own_face {
        args.extend(["--face".to_owned(), entry_name(order.face).to_owned()]);
    }
    args.extend(["--config".to_owned(), config.to_string_lossy().into_owned()]);
    if let (Face::Workbench, Some(mode)) = (order.face, mode) {
        let mode = match mode {
            ToolMode::Dynamic => "dynamic",
            ToolMode::Proxy => "proxy",
            ToolMode::Auto => "auto",
        };
        args.extend(["--tool-mode".to_owned(), mode.to_owned()]);
    }
    let program = order.program.to_string_lossy().into_owned();
    let env = handed_on.iter().map(|one| (one.variable.clone(), one.text.clone())).collect();
    Ourselves { name: entry_name(order.face).to_owned(), program, args, env }
}

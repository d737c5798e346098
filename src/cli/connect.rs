//! `connect` and `disconnect`: our own entry in a client's file.

use super::World;
use super::change::{Config, Console, JsonAnswer, Proposal, Settled, format, open, refused};
use super::check::errors;
use super::failure::Failure;
use super::import::{home_variable, is_gateway, literals, unknown_client, variables};
use super::load::{Loader, Overrides, env_file};
use super::secrets::Secrets;
use crate::catalog::Kind;
use crate::client_files::{
    self, FileScope, ImportedServer, Ourselves, Past, held, inputs, places, read, read_config,
};
use crate::config::locate::FaceKind;
use crate::config::read::listed;
use crate::config::{Inputs, Redactor, Server, ToolMode, Transport};
use crate::edit::backup::{Backup, Record};
use crate::edit::file::{Audience, Snapshot};
use crate::edit::{self, Value};
use crate::face::Declared;
use crate::known_clients::{CLIENTS, KnownClient, VariableSyntax};
use crate::memory::definitions::Definitions;
use serde_json::{Map, json};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How a client is connected.
pub(super) struct Order<'a> {
    /// The client's name.
    pub(super) client: &'a str,
    pub(super) face: FaceKind,
    /// The face of the program without `--face`.
    pub(super) own_face: FaceKind,
    pub(super) tool_mode: Option<ToolMode>,
    /// Whether our entry is for the user everywhere, or for the project in the current directory.
    pub(super) scope: FileScope,
    /// Whether the client's own servers stay.
    pub(super) keep: bool,
    /// Whether our own file is to say that sessions share the daemon.
    pub(super) daemon: bool,
    /// The absolute path of the program that the client is to start.
    pub(super) program: &'a Path,
    pub(super) world: &'a World,
}

/// Puts us into a client's file and removes the servers that our configuration holds. `file` is the
/// configuration that the command line names.
pub(super) fn connect(
    order: &Order<'_>,
    file: Option<&Path>,
    console: &mut Console<'_>,
) -> Result<JsonAnswer, Failure> {
    let client = named(order.client)?;
    let path = place(client, order.scope, order.world)?;
    let config = config_to_register(order, file)?;
    let (settled, mut answer) =
        console.in_turn(&path, |console| connect_now(order, client, &path, &config, console))?;
    // Whoever does not want the client connected is not asked about the rest.
    if order.daemon && (settled != Settled::Shown || console.dry_run) {
        let own = console.in_turn(&config, |console| switch_daemon_on(order, &config, console))?;
        answer.insert("config".to_owned(), own.into());
    }
    Ok(answer)
}

/// Writes into our own file that all sessions share the daemon.
fn switch_daemon_on(
    order: &Order<'_>,
    config: &Path,
    console: &mut Console<'_>,
) -> Result<JsonAnswer, Failure> {
    let ours = open(order.face, config, order.world, None)?;
    let edit = edit::Edit::Set { path: vec!["daemon".to_owned()], value: Value::Boolean(true) };
    let after = edit::apply(format(order.face), &ours.text, &[edit]).map_err(|refusal| {
        let hint = "write the key `daemon` by hand; nothing was changed";
        Failure::configuration(format!("{}: {refusal}", config.display()), hint)
    })?;
    let proposal = Proposal {
        snapshot: &ours.snapshot,
        format: format(order.face),
        after: Some(&after),
        audience: Audience::Usual,
        secrets: Redactor::default(),
    };
    console.plan(
        "all sessions of this file will share one process, the daemon, and the servers that can be shared",
    );
    let mut answer = JsonAnswer::new();
    console.settle(&proposal, &mut answer, |_| Ok(()))?;
    Ok(answer)
}

/// The configuration that the client's entry names. Outside a project that is never the one of the current
/// directory: whoever clones a repository has not agreed to what lies there.
fn config_to_register(order: &Order<'_>, named: Option<&Path>) -> Result<PathBuf, Failure> {
    let (face, world) = (order.face, order.world);
    let (program, name) = (face.program(), face.file_name());
    let here = world.directory.join(name);
    if order.scope == FileScope::Project {
        return match (named, here.exists()) {
            (Some(_), _) => Err(Failure::usage(
                format!("--project registers the {name} of this directory"),
                "leave out --config or --project",
            )),
            (None, true) => Ok(here),
            (None, false) => Err(Failure::configuration(
                format!("there is no {}", here.display()),
                format!("`{program} init --project` makes one"),
            )),
        };
    }
    let variable = world.variable("WORKBENCH_CONFIG").filter(|value| !value.is_empty());
    if named.is_some() || (face == FaceKind::Workbench && variable.is_some()) {
        return Ok(world.locate(face, named)?);
    }
    let own = world.user_file(face);
    if let Some(own) = own.as_ref().filter(|own| own.exists()) {
        return Ok(own.clone());
    }
    let looked = own.map(|own| format!("; looked for {}", own.display())).unwrap_or_default();
    let project = match here.exists() {
        true => {
            format!("; `{program} connect {} --project` registers the one in this directory", order.client)
        }
        false => String::new(),
    };
    Err(Failure::configuration(
        format!("you have no {name} of your own{looked}"),
        format!("`{program} init` makes one from your clients' servers{project}"),
    ))
}

fn connect_now(
    order: &Order<'_>,
    client: &'static KnownClient,
    path: &Path,
    config: &Path,
    console: &mut Console<'_>,
) -> Result<(Settled, JsonAnswer), Failure> {
    let world = order.world;
    let ours = open(order.face, config, world, None)?;
    let snapshot = read_file(path)?;
    let name = entry_name(order.face, order.scope);
    let backup = backup(client, name, path, world)?;
    let base = match backup.read() {
        Some(_) => disconnected(client, name, &snapshot, &backup)?,
        None => Base::of(&snapshot)?,
    };
    if let Some((place, install)) = fleeting(order.program) {
        console.warn(&format!(
            "this program is in {place} and may be deleted from there; install it (`{install}`) and connect again"
        ))?;
    }
    let start = GatewayStart::plan(order, client, config, &ours, &base.text)?;
    let change = Registration::plan(order, client, path, &base.text, start)?;

    let mut answer = change.answer(client);
    let proposal = Proposal {
        snapshot: &snapshot,
        format: client.files.dialect.format,
        after: Some(&change.after),
        audience: Audience::Usual,
        secrets: Redactor::new(literals(&change.there)),
    };
    let record = Record {
        file: path.to_owned(),
        created: base.created,
        directories: if snapshot.bytes.is_none() { snapshot.missing_directories() } else { base.directories },
        taken: change.taken.iter().map(|server| server.origin.path.clone()).collect(),
    };
    if change.replaces && snapshot.text() != Some(&change.after) {
        console.warn(&format!(
            "the client already has a server called {name}; the gateway takes its place until you disconnect"
        ))?;
    }
    change.sum_up(client, order.face, console);
    if order.scope == FileScope::Project && !knows_workspace(client) {
        console.plan("The entry has absolute paths, so it works on this machine only");
    }
    let hidden = hidden_apps(order, client, config, &ours);
    hidden.iter().for_each(|hidden| console.plan(hidden));
    let outcome = console.settle(&proposal, &mut answer, |_| {
        backup.write(&record, base.text.as_bytes(), change.after.as_bytes()).map_err(|error| {
            let message = format!("cannot make a backup in {}: {error}", backup.directory().display());
            Failure::failed(message, "check that you may write there; nothing was changed")
        })
    })?;
    match outcome {
        Settled::Same => {
            console.say(&format!("{} is already connected", client.title))?;
            hidden.iter().try_for_each(|hidden| console.say(hidden))?;
        }
        Settled::Shown => {}
        Settled::Written => {
            answer.insert("backup".to_owned(), json!(backup.directory()));
            console.say(&format!(
                "Restart {}; `{} disconnect {}{}` undoes it",
                client.title,
                order.face.program(),
                client.id,
                if order.scope == FileScope::Project { " --project" } else { "" },
            ))?;
        }
    }
    Ok((outcome, answer))
}

/// Says which servers are known to have apps that the client would render, if it were shown the tools that
/// name them.
fn hidden_apps(order: &Order<'_>, client: &KnownClient, config: &Path, ours: &Config) -> Option<String> {
    let world = order.world;
    let variable = |name: &str| world.variable(name);
    let inputs = Inputs { environment: &variable, read: &env_file, skip_missing: true };
    let loaded = match order.face {
        FaceKind::Workbench => crate::config::load(config, ours.text.as_bytes(), &inputs).ok(),
        FaceKind::Toolman => None,
    };
    let ((file, _), cache) = (loaded?, world.cache_directory()?);
    let is_proxied = match written_mode(order, ours).unwrap_or(file.tool_mode) {
        ToolMode::Proxy => true,
        ToolMode::Auto => !client.behaviour.takes_up_changes(),
        ToolMode::Dynamic | ToolMode::Flat => false,
    };
    if !is_proxied || !client.behaviour.renders_apps {
        return None;
    }
    let definitions = Definitions::new(&cache, &world.directory);
    let has_apps = |server: &&Arc<Server>| {
        let items = definitions.load(&server.transport);
        items.is_some_and(|sent| {
            sent.shown(None).0.of(Kind::Tool).iter().any(|tool| tool.pages().next().is_some())
        })
    };
    let servers = file.toolboxes.iter().flat_map(|toolbox| &toolbox.servers);
    let hidden: Vec<_> = servers.filter(has_apps).map(|server| server.name.as_str()).collect();
    (!hidden.is_empty()).then(|| {
        format!(
            "apps of {} are not shown, since {} gets proxy mode; `connect {} --tool-mode flat` shows them",
            hidden.join(", "),
            client.title,
            client.id
        )
    })
}

/// The mode that the client's file is to name; `None` if our own file decides.
fn written_mode(order: &Order<'_>, ours: &Config) -> Option<ToolMode> {
    order.tool_mode.or(ours.value.get("toolMode").is_none().then_some(ToolMode::Auto))
}

/// What a client will start, and what was known when that was decided.
struct GatewayStart<'a> {
    ourselves: Ourselves,
    /// The servers of our configuration that will start; `lacking` are those with unset variables, each with
    /// the names of these.
    startable: Vec<ImportedServer>,
    lacking: Vec<(ImportedServer, Vec<String>)>,
    secrets: Secrets<'a>,
}

impl<'a> GatewayStart<'a> {
    /// Reads the configuration as the client's process will. `before` is the text of the client's file
    /// without us.
    fn plan(
        order: &Order<'a>,
        client: &'static KnownClient,
        config: &Path,
        ours: &Config,
        before: &str,
    ) -> Result<Self, Failure> {
        let (face, world) = (order.face, order.world);
        let secrets = Secrets::of(ours, face, world)?;
        let used = variables(&ours.text);
        let file = edit::parse(client.files.dialect.format, before).map(|parsed| parsed.value);
        let mut asked = file.map(|file| inputs(client, &file)).unwrap_or_default();
        asked.retain(|(name, _)| used.contains(name) && secrets.filed(name).is_none());
        let mode = written_mode(order, ours);
        let mut process = world.clone();
        let questions = asked.iter().map(|(name, question)| (name.into(), question.into()));
        process.vars = world.vars.iter().cloned().chain(questions).collect();
        let loader = Loader {
            face,
            file: config.to_owned(),
            overrides: Overrides { tool_mode: mode, entry: None },
            state: None,
            skip_missing: false,
            reader: env_file,
            obeys_lock: true,
            in_daemon: false,
            world: process,
        };
        let (configured, _) = loader.read(ours.text.clone().into_bytes(), None).0.map_err(|problems| {
            let count = errors(&problems);
            let hint = format!("{count}; {} would not start, so nothing was written", face.program());
            Failure::invalid(config, problems, hint)
        })?;
        let lacks = |group: &str, server: &str| {
            let declared = configured.face.servers();
            let own = |one: &Declared<'_>| match face {
                FaceKind::Workbench => one.group == group && one.name == server,
                FaceKind::Toolman => one.group == server,
            };
            declared.into_iter().find(own).and_then(|one| match one.spec.transport {
                Transport::Unset(unset) => Some(unset.variables),
                _ => None,
            })
        };
        let (mut startable, mut lacking) = (Vec::new(), Vec::new());
        for group in read_config(face, &ours.value) {
            for server in group.servers {
                match lacks(&group.name, &server.name).filter(|_| !server.disabled) {
                    Some(variables) => lacking.push((server, variables)),
                    None => startable.push(server),
                }
            }
        }
        let ourselves = ourselves(order, client, config, mode, asked);
        Ok(Self { ourselves, startable, lacking, secrets })
    }
}

/// A client's file with us in it, before anybody has agreed to that.
struct Registration<'a> {
    start: GatewayStart<'a>,
    /// The text of the file.
    after: String,
    /// All servers that the file has besides us.
    there: Vec<ImportedServer>,
    /// The servers that our configuration holds, so that the file need not.
    taken: Vec<ImportedServer>,
    /// The names of the servers that stay.
    kept: Vec<String>,
    /// The staying servers that would lack variables behind us, and those variables.
    left: Vec<(String, Vec<String>)>,
    /// Whether another server has the name of our entry.
    replaces: bool,
}

impl<'a> Registration<'a> {
    /// Plans the registration. `before` is the text of the client's file without us.
    fn plan(
        order: &Order<'_>,
        client: &'static KnownClient,
        path: &Path,
        before: &str,
        start: GatewayStart<'a>,
    ) -> Result<Self, Failure> {
        let refused = |refusal| refused(path, &refusal);
        let world = order.world;
        let value = edit::parse(client.files.dialect.format, before).map_err(refused)?.value;
        let there = read(client, path, order.scope, &value, &world.directory, home_variable()).servers;
        let (gateways, others): (Vec<_>, Vec<_>) = there.iter().partition(|server| is_gateway(server));
        let environment = |name: &str| start.secrets.value(name);
        let mut taken = held(&there, &start.startable, &environment);
        taken.retain(|server| !order.keep && !is_gateway(server));
        let mut left = Vec::new();
        for (own, variables) in start.lacking.iter().filter(|_| !order.keep) {
            let own = held(&there, std::slice::from_ref(own), &environment).into_iter();
            let own = own.filter(|server| !taken.contains(server));
            left.extend(own.map(|server| (server.name.clone(), variables.clone())));
        }
        let paths: Vec<_> = taken.iter().map(|server| server.origin.path.clone()).collect();
        let after = client_files::connect(client, before, &start.ourselves, &paths).map_err(refused)?;
        let own = client_files::entry_path(client, &value, &start.ourselves.name);
        let replaces = value.at(&own).is_some() && gateways.iter().all(|server| server.origin.path != own);
        let stays = |server: &&&ImportedServer| server.origin.path != own && !taken.contains(server);
        let kept = others.iter().filter(stays).map(|server| server.name.clone()).collect();
        let taken = taken.into_iter().cloned().collect();
        Ok(Self { start, after, taken, kept, left, replaces, there })
    }

    fn answer(&self, client: &KnownClient) -> JsonAnswer {
        let ourselves = &self.start.ourselves;
        let members = [
            ("client", json!(client.id)),
            ("entry", json!(ourselves.name)),
            ("command", json!(ourselves.program)),
            ("args", json!(ourselves.args)),
            ("env", ourselves.env.iter().map(|(name, _)| json!(name)).collect()),
            ("removed", self.taken.iter().map(|server| json!(server.name)).collect()),
            ("replaced", if self.replaces { json!([ourselves.name]) } else { json!([]) }),
            ("kept", json!(self.kept)),
            ("unset", self.unset()),
        ];
        members.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
    }

    /// The variables that servers lack, each once.
    fn unset(&self) -> serde_json::Value {
        let all: BTreeSet<_> = self.start.lacking.iter().flat_map(|(_, variables)| variables).collect();
        json!(all)
    }

    /// Sums up what moves behind us, what stays, and which servers lack variables.
    fn sum_up(&self, client: &KnownClient, face: FaceKind, console: &mut Console<'_>) {
        console.plan(format!(
            "{} starts {} as `{}`",
            client.title,
            face.program(),
            self.start.ourselves.name
        ));
        if !self.taken.is_empty() {
            let names: Vec<_> = self.taken.iter().map(|server| server.name.as_str()).collect();
            console.plan(format!("Moved behind the gateway: {}", names.join(", ")));
        }
        let is_left = |name: &&String| self.left.iter().any(|(left, _)| left == *name);
        let kept: Vec<_> = self.kept.iter().filter(|name| !is_left(name)).map(String::as_str).collect();
        if !kept.is_empty() {
            console.plan(format!("Left in {}: {}", client.title, kept.join(", ")));
        }
        for (server, variables) in &self.left {
            console.plan(format!("Left in {}: {server} ({})", client.title, not_set(variables)));
        }
        let stays = |name: &str| self.left.iter().any(|(server, _)| server == name);
        for (server, variables) in self.start.lacking.iter().filter(|(server, _)| !stays(&server.name)) {
            let (lack, name) = (not_set(variables), &server.name);
            console.plan(format!("{lack}; the server '{name}' will not start without it"));
        }
    }
}

/// Removes us again and restores what connecting removed.
pub(super) fn disconnect(
    client: &str,
    (face, scope): (FaceKind, FileScope),
    world: &World,
    console: &mut Console<'_>,
) -> Result<JsonAnswer, Failure> {
    let (client, name) = (named(client)?, entry_name(face, scope));
    let mut answer = Map::new();
    answer.insert("client".to_owned(), json!(client.id));
    answer.insert("entry".to_owned(), json!(name));
    let files = match scope {
        FileScope::User => user_places(client, world),
        FileScope::Project => vec![place(client, scope, world)?],
    };
    let mut outcome = None;
    for path in &files {
        outcome = console.in_turn(path, |console| {
            disconnect_now(client, (face, scope), path, world, &mut answer, console)
        })?;
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

/// Removes us from one file; `None` if the file does not name us.
fn disconnect_now(
    client: &KnownClient,
    (face, scope): (FaceKind, FileScope),
    path: &Path,
    world: &World,
    answer: &mut JsonAnswer,
    console: &mut Console<'_>,
) -> Result<Option<Settled>, Failure> {
    let name = entry_name(face, scope);
    let backup = backup(client, name, path, world)?;
    let snapshot = read_file(path)?;
    let record = backup.read().map(|(record, ..)| record);
    let connected = match (&record, &snapshot.bytes) {
        (Some(_), Some(_)) => true,
        // What was taken out of a file that no longer exists is restored.
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
        let imported = read(client, path, scope, &value, &world.directory, home_variable());
        hidden.extend(literals(&imported.servers));
    }
    let proposal = Proposal {
        snapshot: &snapshot,
        format: client.files.dialect.format,
        after,
        audience: if snapshot.bytes.is_none() { Audience::Owner } else { Audience::Usual },
        secrets: Redactor::new(hidden),
    };
    console.plan(format!("{} no longer starts {}", client.title, face.program()));
    let outcome = console.settle(&proposal, answer, |_| Ok(()))?;
    if outcome == Settled::Written {
        for directory in base.directories.iter().rev() {
            // The directory stays if somebody else has put something there.
            let _ = std::fs::remove_dir(directory);
        }
        backup.discard();
        if let Some(record) = record.filter(|record| record.created && !base.created) {
            bequeath(&record, client, world);
        }
        console.say(&format!("Restart {}", client.title))?;
    } else if outcome == Settled::Same && !console.dry_run {
        // The file is held, so that no other process that is just connecting loses its backup.
        console.hold(&snapshot)?;
        backup.discard();
    }
    Ok(Some(outcome))
}

/// A client's file as it is, or would be, without us.
struct Base {
    text: String,
    /// Whether the file did not exist before us.
    created: bool,
    directories: Vec<PathBuf>,
}

impl Base {
    /// The file as it stands.
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

/// Whether the entry with our name is ours. Another server may have the same name.
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

/// The client's file for our entry: of the user-wide ones the first that exists, otherwise the one that the
/// client would look for first; in a project the client's own.
fn place(client: &KnownClient, scope: FileScope, world: &World) -> Result<PathBuf, Failure> {
    match scope {
        FileScope::User => {
            let places = user_places(client, world);
            let place = places.iter().find(|place| place.exists()).or(places.first()).cloned();
            place.ok_or_else(|| Failure::usage("you have no home directory", "set HOME"))
        }
        FileScope::Project => {
            let place = client.files.project.first().map(|place| world.directory.join(place));
            place.ok_or_else(|| {
                let able = CLIENTS.iter().filter(|client| !client.files.project.is_empty());
                let able: Vec<_> = able.map(|client| client.id).collect();
                let message = format!("{} has no project file", client.title);
                Failure::usage(message, format!("leave out --project; {} have one", listed(&able, "and")))
            })
        }
    }
}

/// The user-wide files of a client.
fn user_places(client: &KnownClient, world: &World) -> Vec<PathBuf> {
    let environment = |name: &str| world.variable(name);
    let places = places(client, &world.surroundings(&environment)).into_iter();
    places.filter(|place| place.own).map(|place| place.path).collect()
}

/// Whether the client puts the directory of the project in the place of `${workspaceFolder}`.
fn knows_workspace(client: &KnownClient) -> bool {
    client.files.dialect.variables == VariableSyntax::Editor
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

/// The name of our entry. A user's and a project's stand side by side.
fn entry_name(face: FaceKind, scope: FileScope) -> &'static str {
    match (face, scope) {
        (FaceKind::Workbench, FileScope::User) => "workbench",
        (FaceKind::Workbench, FileScope::Project) => "workbench-project",
        (FaceKind::Toolman, FileScope::User) => "toolman",
        (FaceKind::Toolman, FileScope::Project) => "toolman-project",
    }
}

fn backup(client: &KnownClient, name: &str, path: &Path, world: &World) -> Result<Backup, Failure> {
    let state =
        world.state_directory().ok_or_else(|| Failure::usage("you have no home directory", "set HOME"))?;
    Ok(Backup::new(&state, &format!("{}-{name}", client.id), path))
}

/// The backups of a client's file, one for each entry that may be there.
fn backups(client: &KnownClient, path: &Path, world: &World) -> Vec<Backup> {
    let entries = [FaceKind::Workbench, FaceKind::Toolman]
        .into_iter()
        .flat_map(|face| [FileScope::User, FileScope::Project].map(|scope| entry_name(face, scope)));
    entries.filter_map(|entry| backup(client, entry, path, world).ok()).collect()
}

/// Passes the record of a file that connecting created to another face that is still in it: the file goes
/// with the last face.
fn bequeath(record: &Record, client: &KnownClient, world: &World) {
    for other in backups(client, &record.file, world) {
        if let Some((own, before, after)) = other.read() {
            let heir = Record { created: true, directories: record.directories.clone(), ..own };
            // If the record is lost, an empty file stays, which does no harm.
            let _ = other.write(&heir, &before, &after);
        }
    }
}

/// The place of a program that will not stay, and the command that installs it for good.
fn fleeting(program: &Path) -> Option<(&'static str, &'static str)> {
    const NPM: &str = concat!("npm install --global ", env!("BUILD_NPM"));
    const UV: &str = concat!("uv tool install ", env!("BUILD_PYPI"));
    const BUN: &str = concat!("bun add --global ", env!("BUILD_NPM"));
    let parts: Vec<_> = program.components().map(|part| part.as_os_str().to_string_lossy()).collect();
    let parts: Vec<&str> = parts.iter().map(|part| &**part).collect();
    let has = |wanted: &[&str]| parts.windows(wanted.len()).any(|window| window == wanted);
    if has(&["target", "debug"]) || has(&["target", "release"]) {
        Some(("a build directory", "cargo install --path ."))
    } else if has(&["_npx"]) {
        Some(("the cache of npx", NPM))
    } else if has(&["uv", "archive-v0"]) || has(&[".cache", "uv"]) || has(&["uv", "cache"]) {
        Some(("the cache of uv", UV))
    } else if has(&["install", "cache"]) || parts.iter().any(|part| part.starts_with("bunx-")) {
        Some(("the cache of bun", BUN))
    } else {
        None
    }
}

/// The unset variables in words.
fn not_set(variables: &[String]) -> String {
    match variables {
        [one] => format!("{one} is not set"),
        many => format!("{} are not set", many.join(", ")),
    }
}

/// Our own entry. Without a mode our file decides.
fn ourselves(
    order: &Order<'_>,
    client: &KnownClient,
    config: &Path,
    mode: Option<ToolMode>,
    env: Vec<(String, String)>,
) -> Ourselves {
    let mut args = Vec::new();
    if order.face != order.own_face {
        args.extend(["--face".to_owned(), entry_name(order.face, FileScope::User).to_owned()]);
    }
    let (name, project) = (entry_name(order.face, order.scope), order.scope == FileScope::Project);
    let config = match project && knows_workspace(client) {
        true => format!("${{workspaceFolder}}/{}", order.face.file_name()),
        false => config.to_string_lossy().into_owned(),
    };
    args.extend(["--config".to_owned(), config]);
    if project {
        // The names of tools have to fit with the name of the entry before them.
        args.extend(["--entry".to_owned(), name.to_owned()]);
    }
    if let (FaceKind::Workbench, Some(mode)) = (order.face, mode) {
        let mode = match mode {
            ToolMode::Dynamic => "dynamic",
            ToolMode::Proxy => "proxy",
            ToolMode::Auto => "auto",
            ToolMode::Flat => "flat",
        };
        args.extend(["--tool-mode".to_owned(), mode.to_owned()]);
    }
    let program = order.program.to_string_lossy().into_owned();
    Ourselves { name: name.to_owned(), program, args, env }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_in_caches_and_build_directories_may_vanish() {
        for (program, expected) in [
            ("/home/u/src/mcp-workbench/target/debug/mcp-workbench", Some("a build directory")),
            ("/home/u/src/mcp-workbench/target/release/toolman", Some("a build directory")),
            ("/home/u/.npm/_npx/0f/node_modules/.bin/toolman", Some("the cache of npx")),
            ("/home/u/.cache/uv/archive-v0/x/bin/toolman", Some("the cache of uv")),
            ("/Users/u/Library/Caches/uv/archive-v0/x/bin/toolman", Some("the cache of uv")),
            ("/home/u/.bun/install/cache/x/toolman", Some("the cache of bun")),
            ("/tmp/bunx-1000-mcp/node_modules/x/toolman", Some("the cache of bun")),
            ("/home/u/.cargo/bin/toolman", None),
            ("/usr/lib/node_modules/x/toolman", None),
            ("/home/u/.local/share/uv/tools/x/bin/toolman", None),
            ("/srv/release/toolman", None),
        ] {
            assert_eq!(fleeting(Path::new(program)).map(|(place, _)| place), expected, "{program}");
        }
    }
}

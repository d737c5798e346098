//! `init` and `import`: bring clients' servers into our own file.

use super::World;
use super::change::{Config, Console, JsonAnswer, Proposal, Settled, format, open, refused, validate};
use super::failure::Failure;
use super::first_start;
use super::fresh::{fresh, text_to_extend};
use super::lock;
use super::screen::Screen;
use super::secrets::Secrets;
use crate::client_files::{
    Addition, FileScope, Group, Imported, ImportedServer, Launch, Note, Plan, Replaced, Template, Vault,
    places, plan, read, read_config, toolbox_for, toolman_value, workbench_value,
};
use crate::config::locate::{FaceKind, Platform};
use crate::config::read::{listed, nearest};
use crate::config::{Redactor, ToolboxName};
use crate::edit::file::{Audience, Snapshot};
use crate::edit::{self, Edit, Value};
use crate::known_clients::{CLIENTS, KnownClient};
use serde_json::json;
use std::path::{Path, PathBuf};

/// Where servers come from and go to.
pub(super) struct Order<'a> {
    pub(super) face: FaceKind,
    pub(super) toolbox: Option<&'a str>,
    pub(super) world: &'a World,
}

/// Brings the servers of all clients into a file, which is created if necessary, and starts them if that is
/// wanted. The scope says whose servers, and whose file unless one is named.
pub(super) fn init(
    order: &Order<'_>,
    named: Option<&Path>,
    scope: FileScope,
    (start, screen): (first_start::Choice, Screen),
    console: &mut Console<'_>,
) -> Result<JsonAnswer, Failure> {
    let file = match named {
        Some(file) => order.world.directory.join(file),
        None => file_of(order, scope)
            .ok_or_else(|| Failure::usage("you have no home directory", "name a file with --config"))?,
    };
    let (mut answer, outcome, next) =
        console.in_turn(&file, |console| init_now(order, named, scope, &file, console))?;
    if let Some(servers) = first_start::offer(start, order, &file, outcome, screen, console)? {
        answer.insert("servers".to_owned(), servers);
    }
    if outcome == Settled::Written {
        console.say(&format!("next: {next}"))?;
    }
    Ok(answer)
}

/// The file that `init` writes.
fn file_of(order: &Order<'_>, scope: FileScope) -> Option<PathBuf> {
    match scope {
        FileScope::User => order.world.user_file(order.face),
        FileScope::Project => Some(order.world.directory.join(order.face.file_name())),
    }
}

fn init_now(
    order: &Order<'_>,
    named: Option<&Path>,
    scope: FileScope,
    file: &Path,
    console: &mut Console<'_>,
) -> Result<(JsonAnswer, Settled, String), Failure> {
    let world = order.world;
    let environment = |name: &str| world.variable(name);
    let around = world.surroundings(&environment);
    let mut sources = Sources { scope: Some(scope), ..Sources::default() };
    for client in &CLIENTS {
        for place in places(client, &around) {
            let known = sources.files.contains(&place.path);
            if !known && (around.exists)(&place.path) && place.path != file {
                let added = sources.add(client, &place.path, place.scope, &world.directory);
                // A file of the other scope is read only to say what is in it, unless it is Claude Code's.
                let matters = place.scope == scope || client.id == "claude-code";
                if let Some(failure) = added.err().filter(|_| matters) {
                    console.warn(&format!("{}\n{}", failure.message, failure.hint))?;
                    sources.warnings.push(failure.message);
                }
            }
        }
    }
    for source in &sources.found {
        console.plan(format!(
            "{}: {} in {}",
            source.client,
            counted(source.servers, "server"),
            source.file.display()
        ));
    }
    if sources.found.is_empty() {
        console.plan(match scope {
            FileScope::User => "No client with MCP servers was found on this machine",
            FileScope::Project => "No client has MCP servers for this project",
        });
    }
    let variable = world.variable("WORKBENCH_CONFIG").filter(|value| !value.is_empty());
    if let (FaceKind::Workbench, Some(variable), None) = (order.face, variable, named) {
        console.warn(&format!("$WORKBENCH_CONFIG is set: {variable} is used, not {}", file.display()))?;
    }
    let elsewhere = elsewhere(order, scope, std::mem::take(&mut sources.elsewhere));
    let next = next(order.face, scope, &sources);
    let config = open(order.face, file, world, Some(&fresh(order.face, false)))?;
    let (mut answer, outcome) = bring(order, sources, config, console)?;
    answer.insert("elsewhere".to_owned(), json!(elsewhere));
    match (scope, elsewhere) {
        (_, 0) => {}
        (FileScope::User, 1) => console.say("1 server belongs to this project; run init --project")?,
        (FileScope::User, many) => {
            console.say(&format!("{many} servers belong to this project; run init --project"))?;
        }
        (FileScope::Project, 1) => console.say("1 server belongs to you in every project; run init")?,
        (FileScope::Project, many) => {
            console.say(&format!("{many} servers belong to you in every project; run init"))?;
        }
    }
    Ok((answer, outcome, next))
}

/// The command that registers the file with a client: one whose servers were found, or else any.
fn next(face: FaceKind, scope: FileScope, sources: &Sources) -> String {
    let program = face.program();
    let (project, able): (_, fn(&&KnownClient) -> bool) = match scope {
        FileScope::User => ("", |_| true),
        FileScope::Project => (" --project", |client| !client.files.project.is_empty()),
    };
    let able: Vec<_> = CLIENTS.iter().filter(able).collect();
    let has_servers = |client: &KnownClient| sources.found.iter().any(|source| source.client == client.title);
    let found: Vec<_> = able.iter().filter(|client| has_servers(client)).map(|client| client.id).collect();
    match &found[..] {
        [only] => format!("`{program} connect {only}{project}`"),
        [] => {
            let all: Vec<_> = able.iter().map(|client| client.id).collect();
            format!("`{program} connect CLIENT{project}`, with one of {}", listed(&all, "or"))
        }
        several => format!("`{program} connect CLIENT{project}`, with one of {}", listed(several, "or")),
    }
}

/// How many of the servers of the other scope are not in its file yet.
fn elsewhere(order: &Order<'_>, scope: FileScope, servers: Vec<ImportedServer>) -> usize {
    let other = match scope {
        FileScope::User => FileScope::Project,
        FileScope::Project => FileScope::User,
    };
    let all = servers.len();
    let taken = || {
        let file = file_of(order, other)?;
        let config = open(order.face, &file, order.world, Some(&fresh(order.face, false))).ok()?;
        let secrets = Secrets::of(&config, order.face, order.world).ok()?;
        let environment = |name: &str| secrets.value(name);
        let present: Vec<_> =
            read_config(order.face, &config.value).into_iter().flat_map(|group| group.servers).collect();
        let mut vault = Vault::new(&environment, variables(&config.text), secrets.own.clone());
        Some(plan(servers, &present, &[], &environment, &mut vault).additions.len())
    };
    taken().unwrap_or(all)
}

/// Brings the servers of one client or file into an existing file.
pub(super) fn import(
    order: &Order<'_>,
    source: &str,
    config: &Path,
    console: &mut Console<'_>,
) -> Result<JsonAnswer, Failure> {
    console.in_turn(config, |console| import_now(order, source, config, console))
}

fn import_now(
    order: &Order<'_>,
    source: &str,
    config: &Path,
    console: &mut Console<'_>,
) -> Result<JsonAnswer, Failure> {
    let world = order.world;
    let mut sources = Sources::default();
    let path = world.directory.join(source);
    match KnownClient::named(source) {
        Some(client) => {
            let environment = |name: &str| world.variable(name);
            let around = world.surroundings(&environment);
            let places = places(client, &around);
            for place in places.iter().filter(|place| (around.exists)(&place.path)) {
                sources.add(client, &place.path, place.scope, &world.directory)?;
            }
            if sources.files.is_empty() {
                let looked: Vec<_> = places.iter().map(|place| place.path.display().to_string()).collect();
                return Err(Failure::configuration(
                    format!("{} has no file here; looked for {}", client.title, looked.join(" and ")),
                    "name the file itself: `import FILE`",
                ));
            }
        }
        None if path.exists() => {
            let (text, name) = text_of(&path)?;
            let value =
                edit::parse(format_of(&path), &text).map_err(|refusal| refused(&path, &refusal))?.value;
            let client = KnownClient::of_file(&path, &value).ok_or_else(|| {
                Failure::configuration(
                    format!("{name} is not a file of a client that we know"),
                    format!("known clients are {}", clients()),
                )
            })?;
            let environment = |name: &str| world.variable(name);
            let known = places(client, &world.surroundings(&environment));
            let scope =
                known.iter().find(|place| place.path == path).map_or(FileScope::Project, |place| place.scope);
            sources.add(client, &path, scope, project_of(&path))?;
        }
        None if source.contains(['.', '/', '\\']) => {
            return Err(Failure::usage(
                format!("there is no file {}", path.display()),
                format!("name a client ({}), or the path of a file", clients()),
            ));
        }
        None => return Err(unknown_client(source, "or the path of a file")),
    }
    let config = open(order.face, config, world, Some(&fresh(order.face, false)))?;
    bring(order, sources, config, console).map(|(answer, _)| answer)
}

/// The project that a file belongs to. Clients keep their project files in a directory of their own there.
fn project_of(path: &Path) -> &Path {
    let parent = path.parent().unwrap_or(Path::new(""));
    let hidden = parent.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
    if hidden { parent.parent().unwrap_or(parent) } else { parent }
}

/// The names of all clients.
pub(super) fn clients() -> String {
    listed(&CLIENTS.iter().map(|client| client.id).collect::<Vec<_>>(), "or")
}

/// The failure for a name that no client has.
pub(super) fn unknown_client(name: &str, or: &str) -> Failure {
    let ids: Vec<_> = CLIENTS.iter().map(|client| client.id).collect();
    let hint = match nearest(name, &ids) {
        Some(id) => format!("did you mean `{id}`?"),
        None => format!("use {} {or}", clients()).trim_end().to_owned(),
    };
    Failure::usage(format!("there is no client `{name}`"), hint)
}

/// The text of a file, and the name for it in messages.
fn text_of(path: &Path) -> Result<(String, String), Failure> {
    let snapshot = Snapshot::read(path).map_err(|error| Failure::unreadable(path, &error))?;
    let name = path.display().to_string();
    match snapshot.text() {
        Some(text) => Ok((text.to_owned(), name)),
        None => Err(Failure::configuration(format!("{name} is not UTF-8"), "save it as UTF-8")),
    }
}

fn format_of(path: &Path) -> edit::Format {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("toml") => edit::Format::Toml,
        Some("yaml" | "yml") => edit::Format::Yaml,
        _ => edit::Format::Json,
    }
}

#[derive(Default)]
struct Sources {
    /// Whose servers are wanted; `None` for all.
    scope: Option<FileScope>,
    /// Servers of the other scope.
    elsewhere: Vec<ImportedServer>,
    servers: Vec<ImportedServer>,
    notes: Vec<Note>,
    warnings: Vec<String>,
    found: Vec<ImportSource>,
    /// All files that were read.
    files: Vec<PathBuf>,
}

struct ImportSource {
    client: &'static str,
    file: PathBuf,
    servers: usize,
}

impl Sources {
    fn add(
        &mut self,
        client: &'static KnownClient,
        path: &Path,
        scope: FileScope,
        project: &Path,
    ) -> Result<(), Failure> {
        let client = writer(client, path);
        let (text, _) = text_of(path)?;
        let imported = servers_in(client, path, &text, scope, project)?;
        let is_wanted = |scope: FileScope| self.scope.is_none_or(|wanted| wanted == scope);
        let (servers, elsewhere): (Vec<_>, Vec<_>) =
            imported.servers.into_iter().partition(|server| is_wanted(scope_of(server, scope)));
        let mut notes = imported.notes;
        notes.retain(|note| {
            let about = |servers: &[ImportedServer]| servers.iter().any(|server| server.name == note.server);
            about(&servers) || is_wanted(scope) && !about(&elsewhere)
        });
        self.elsewhere.extend(elsewhere.into_iter().filter(|server| !is_gateway(server)));
        let (servers, ourselves): (Vec<_>, Vec<_>) =
            servers.into_iter().partition(|server| !is_gateway(server));
        self.files.push(path.to_owned());
        if !servers.is_empty() {
            self.found.push(ImportSource {
                client: client.title,
                file: path.to_owned(),
                servers: servers.len(),
            });
        }
        self.servers.extend(servers);
        self.notes.extend(notes);
        self.notes.extend(ourselves.into_iter().map(|server| Note {
            client: client.title,
            file: path.to_owned(),
            server: server.name,
            key: String::new(),
            message: "is this gateway itself; left out".to_owned(),
        }));
        Ok(())
    }
}

/// Whom a server of a file concerns: Claude Code keeps those of projects in the user's own file.
fn scope_of(server: &ImportedServer, file: FileScope) -> FileScope {
    match server.origin.path.first() {
        Some(key) if key == "projects" => FileScope::Project,
        _ => file,
    }
}

/// The servers in a client's file with this text.
pub(super) fn servers_in(
    client: &'static KnownClient,
    path: &Path,
    text: &str,
    scope: FileScope,
    project: &Path,
) -> Result<Imported, Failure> {
    let client = writer(client, path);
    let format = if client.files.dialect.format == edit::Format::Json {
        format_of(path)
    } else {
        client.files.dialect.format
    };
    let value = edit::parse(format, text).map_err(|refusal| refused(path, &refusal))?.value;
    Ok(read(client, path, scope, &value, project, home_variable()))
}

/// The client whose format a file uses. A file that several clients share uses that of the first.
fn writer(client: &'static KnownClient, path: &Path) -> &'static KnownClient {
    let portable = path.file_name().is_some_and(|name| name == ".mcp.json");
    KnownClient::named("claude-code").filter(|_| portable).unwrap_or(client)
}

/// Whether a client's entry starts us, directly or through a package runner.
pub(super) fn is_gateway(server: &ImportedServer) -> bool {
    let Launch::Command { program, args } = &server.launch else { return false };
    let name = |template: &Template| {
        let name = template.text().and_then(|text| text.rsplit(['/', '\\']).next()).unwrap_or_default();
        name.trim_end_matches(".exe").to_owned()
    };
    let ours = |name: &str| matches!(name, "mcp-workbench" | "toolman");
    let runner = matches!(name(program).trim_end_matches(".cmd"), "npx" | "bunx" | "uvx" | "pnpm" | "pipx");
    let package = |arg: &Template| ours(name(arg).split('@').next().unwrap_or_default());
    ours(&name(program)) || runner && args.iter().take(3).any(package)
}

/// Adds servers to a configuration and prints everything there is to say about it.
fn bring(
    order: &Order<'_>,
    sources: Sources,
    config: Config,
    console: &mut Console<'_>,
) -> Result<(JsonAnswer, Settled), Failure> {
    let import = Import::plan(order, sources, &config)?;
    let file = &config.snapshot.path;
    let mut answer = import.answer();
    import.sum_up(console);
    let proposal = Proposal {
        snapshot: &config.snapshot,
        format: format(order.face),
        after: Some(&import.after),
        audience: Audience::Usual,
        secrets: Redactor::new(import.hidden.iter().cloned()),
    };
    let outcome = console.settle(&proposal, &mut answer, |console| match &import.filed {
        Some(text) => import.secrets.write(text, console),
        None => Ok(()),
    })?;
    match outcome {
        Settled::Same => {
            for line in std::mem::take(&mut console.summary) {
                console.say(&line)?;
            }
            console.say(&format!("{} already has all of it", file.display()))?;
        }
        Settled::Written => lock::remind(order.face, &config, console)?,
        Settled::Shown => {}
    }
    Ok((answer, outcome))
}

/// A configuration with clients' servers added, before anybody has agreed to it.
struct Import<'a> {
    face: FaceKind,
    /// The toolbox for all new servers; `None` if each gets one of its own.
    toolbox: Option<String>,
    plan: Plan,
    /// The secrets that have become variables.
    replaced: Vec<Replaced>,
    /// Notes on what got lost.
    notes: Vec<Note>,
    /// The files that could not be read.
    warnings: Vec<String>,
    /// The new text of the configuration.
    after: String,
    /// Values that no diff may show, with their names.
    hidden: Vec<(String, String)>,
    /// The file of secrets.
    secrets: Secrets<'a>,
    /// The new text of the file of secrets, if it is to hold more than it does.
    filed: Option<String>,
}

impl<'a> Import<'a> {
    fn plan(order: &Order<'a>, sources: Sources, config: &Config) -> Result<Self, Failure> {
        let (face, world) = (order.face, order.world);
        let Sources { servers, mut notes, warnings, .. } = sources;
        let groups = read_config(face, &config.value);
        let toolbox = named_toolbox(order)?;
        let file = &config.snapshot.path;
        let secrets = Secrets::of(config, face, world)?;
        let environment = |name: &str| secrets.value(name);
        let mut vault = Vault::new(&environment, variables(&config.text), secrets.own.clone());
        let mut hidden = literals(&servers);
        let present: Vec<_> = groups.iter().flat_map(|group| group.servers.clone()).collect();
        let taken = taken_names(&groups, toolbox.as_deref());
        let plan = plan(servers, &present, &taken, &environment, &mut vault);
        let mut edits = edits(face, toolbox.as_deref(), &plan.additions, &mut notes);
        let (replaced, mut values) = (vault.replaced, vault.values);
        let before = text_to_extend(config, face, !values.is_empty());
        if config.snapshot.bytes.is_some() && !values.is_empty() {
            edits.extend(Secrets::naming(face, &config.value));
        }
        let filed = secrets.with(&values);
        let after = edit::apply(format(face), &before, &edits).map_err(|refusal| refused(file, &refusal))?;
        validate(face, file, after.as_bytes(), filed.as_deref(), world)?;
        hidden.append(&mut values);
        Ok(Self { face, toolbox, plan, replaced, notes, warnings, after, hidden, secrets, filed })
    }

    fn answer(&self) -> JsonAnswer {
        let added = self.plan.additions.iter().map(|addition| {
            let server = &addition.server;
            let mut added = json!({"client": server.origin.client, "disabled": server.disabled,
                                   "renamedFrom": addition.renamed_from});
            match self.face {
                FaceKind::Workbench => {
                    let own = || toolbox_for(&server.name);
                    added["toolbox"] = json!(self.toolbox.clone().unwrap_or_else(own));
                    added["server"] = json!(server.name);
                }
                FaceKind::Toolman => added["namespace"] = json!(server.name),
            }
            added
        });
        let merged = self.plan.merged.iter().map(|one| {
            json!({"server": one.name, "client": one.client, "sameAs": one.same_as, "notTaken": one.differs})
        });
        let word = if self.face == FaceKind::Workbench { "server" } else { "namespace" };
        let secrets = self.replaced.iter();
        let secrets = secrets.map(|one| json!({"variable": one.variable, word: one.server, "key": one.key}));
        let notes = self.notes.iter().map(|note| {
            json!({"client": note.client, "file": note.file, "server": note.server, "key": note.key,
                   "message": note.message})
        });
        let members = [
            ("added", added.collect()),
            ("merged", merged.collect()),
            ("secrets", secrets.collect()),
            ("notes", notes.collect()),
            ("warnings", json!(self.warnings)),
        ];
        members.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
    }

    /// Sums up what is to be added, what is there already and what got lost.
    fn sum_up(&self, console: &mut Console<'_>) {
        for Addition { server, renamed_from } in &self.plan.additions {
            let off = if server.disabled { ", off" } else { "" };
            let renamed =
                renamed_from.as_ref().map(|name| format!(", called {name} there")).unwrap_or_default();
            console.plan(format!("+ {} ({}{renamed}{off})", server.name, server.origin.client));
        }
        for one in &self.plan.merged {
            let differs: String =
                one.differs.iter().map(|what| format!("; {what} was not taken over")).collect();
            let same = if one.name == one.same_as {
                "is there already".to_owned()
            } else {
                format!("is the same as {}", one.same_as)
            };
            console.plan(format!("= {} ({}) {same}{differs}", one.name, one.client));
        }
        for note in &self.notes {
            let place = [&note.server, &note.key].into_iter().filter(|part| !part.is_empty());
            let place: Vec<_> = place.map(String::as_str).collect();
            let note = format!("{}: {} {}", note.client, place.join(": "), note.message);
            console.plan(console.output.warning(&note));
        }
        if !self.replaced.is_empty() {
            let file = self.secrets.snapshot.path.display();
            console.plan(format!("Secrets in clear text become variables, kept in {file}:"));
            for one in &self.replaced {
                console.plan(format!("  {} ({}: {})", one.variable, one.server, one.key));
            }
        }
    }
}

/// The toolbox that the command line names for all servers.
fn named_toolbox(order: &Order<'_>) -> Result<Option<String>, Failure> {
    let Some(name) = order.toolbox else { return Ok(None) };
    if order.face == FaceKind::Toolman {
        return Err(Failure::usage("tools.toml has no toolboxes", "leave --toolbox out"));
    }
    match ToolboxName::new(name) {
        Ok(_) => Ok(Some(name.to_owned())),
        Err(wrong) => Err(Failure::usage(wrong, "give the toolbox another name, such as `dev`")),
    }
}

/// The names that no new server may have: those where it goes and, if it gets a toolbox of its own, all others,
/// so that a name alone says which server is meant.
fn taken_names(groups: &[Group], toolbox: Option<&str>) -> Vec<String> {
    let there = groups.iter().filter(|group| toolbox.is_none_or(|toolbox| group.name == toolbox));
    let servers = there.flat_map(|group| &group.servers).map(|server| server.name.clone());
    let toolboxes = groups.iter().filter(|_| toolbox.is_none()).map(|group| group.name.clone());
    servers.chain(toolboxes).collect()
}

fn edits(
    face: FaceKind,
    toolbox: Option<&str>,
    additions: &[Addition],
    notes: &mut Vec<Note>,
) -> Vec<Edit<'static>> {
    let mut edits = Vec::new();
    for Addition { server, .. } in additions {
        match face {
            FaceKind::Workbench => edits.extend(match toolbox {
                Some(toolbox) => put_into_toolbox(server, toolbox, ""),
                None => put_into_toolbox(server, &toolbox_for(&server.name), &server.description),
            }),
            FaceKind::Toolman => {
                if server.tools.is_some() {
                    notes.push(Note {
                        client: server.origin.client,
                        file: server.origin.file.clone(),
                        server: server.name.clone(),
                        key: server.tools_key.clone(),
                        message: "limits which tools are offered; toolman has `active_toolsets` for that"
                            .to_owned(),
                    });
                }
                let path = vec!["servers".to_owned()];
                edits.push(Edit::Push { path, value: toolman_value(server), index: usize::MAX });
            }
        }
    }
    edits
}

/// Puts a server into a toolbox, and describes the toolbox unless the description is empty.
pub(super) fn put_into_toolbox(
    server: &ImportedServer,
    toolbox: &str,
    description: &str,
) -> Vec<Edit<'static>> {
    let path =
        |keys: &[&str]| ["toolboxes", toolbox].iter().chain(keys).map(|key| (*key).to_owned()).collect();
    let description = (!description.is_empty()).then(|| {
        let value = Value::String(Template::literal(description).spelled());
        Edit::Set { path: path(&["description"]), value }
    });
    let value = workbench_value(server);
    let server = Edit::Set { path: path(&["mcpServers", &server.name]), value };
    description.into_iter().chain([server]).collect()
}

/// All variables that a text names.
pub(super) fn variables(text: &str) -> Vec<String> {
    Template::ours(text).variables().map(str::to_owned).collect()
}

/// The values of `env`, `headers` and `oauth`, with their names.
pub(super) fn literals(servers: &[ImportedServer]) -> Vec<(String, String)> {
    let mut values = Vec::new();
    for server in servers {
        let (headers, oauth) = match &server.launch {
            Launch::Url { headers, oauth, .. } => (headers.as_slice(), oauth.as_slice()),
            Launch::Command { .. } => (&[][..], &[][..]),
        };
        let oauth = oauth.iter().filter(|(key, _)| key == "clientSecret");
        for (name, template) in server.env.iter().chain(headers).chain(oauth) {
            values.extend(template.text().map(|text| (text.to_owned(), name.clone())));
        }
    }
    values
}

/// The variable that holds the user's home.
pub(super) fn home_variable() -> &'static str {
    if Platform::current() == Platform::Windows { "USERPROFILE" } else { "HOME" }
}

/// A number and the noun that it counts, with a plural `s` if needed.
fn counted(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

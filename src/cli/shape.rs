//! The verbs for the shape of our own file: `move`, `describe`, `rename`, `enable`, `disable` and `remove`.
//!
//! Each plans edits that keep all other text, which are then shown and written together.
//!
//! Invariant: nothing is written that `check` would refuse.

use super::World;
use super::change::{Console, JsonAnswer, Proposal, Settled, format, open, problems, refused, validate};
use super::failure::Failure;
use super::files::ChangeFlags;
use crate::client_files::Template;
use crate::config::locate::FaceKind;
use crate::config::read::{listed, nearest};
use crate::config::{Redactor, ToolboxName};
use crate::edit::file::Audience;
use crate::edit::{self, Edit, Format, Value};
use clap::Subcommand;
use serde_json::json;
use std::path::Path;

#[derive(Subcommand)]
pub(super) enum ShapeVerb {
    /// Remove a server from the configuration
    #[command(display_order = 31)]
    Remove {
        /// The server, as a name or TOOLBOX/SERVER
        server: String,
        /// The toolbox that the server is in
        #[arg(long, value_name = "NAME")]
        toolbox: Option<String>,
        #[command(flatten)]
        change: ChangeFlags,
    },
    /// Move servers into another toolbox
    #[command(display_order = 32)]
    Move {
        /// The servers, each as a name or TOOLBOX/SERVER
        #[arg(required = true, value_name = "SERVER")]
        servers: Vec<String>,
        /// The toolbox that gets them; a new one if there is none of that name
        #[arg(long, value_name = "TOOLBOX")]
        to: String,
        #[command(flatten)]
        change: ChangeFlags,
    },
    /// Describe what a toolbox is for; the model reads this text
    #[command(display_order = 33)]
    Describe {
        /// The toolbox
        toolbox: String,
        /// What it is for
        text: String,
        #[command(flatten)]
        change: ChangeFlags,
    },
    /// Rename a toolbox
    #[command(display_order = 34)]
    Rename {
        /// The toolbox
        toolbox: String,
        /// Its new name
        new: String,
        #[command(flatten)]
        change: ChangeFlags,
    },
    /// Enable a disabled server
    #[command(display_order = 35)]
    Enable {
        /// The server, as a name or TOOLBOX/SERVER
        server: String,
        #[command(flatten)]
        change: ChangeFlags,
    },
    /// Keep a server in the configuration, but do not start it
    #[command(display_order = 36)]
    Disable {
        /// The server, as a name or TOOLBOX/SERVER
        server: String,
        #[command(flatten)]
        change: ChangeFlags,
    },
}

impl ShapeVerb {
    /// The names of the verbs that need toolboxes, which `tools.toml` does not have.
    pub(super) const OF_TOOLBOXES: [&str; 3] = ["move", "describe", "rename"];

    pub(super) fn change(&self) -> ChangeFlags {
        let (Self::Remove { change, .. }
        | Self::Move { change, .. }
        | Self::Describe { change, .. }
        | Self::Rename { change, .. }
        | Self::Enable { change, .. }
        | Self::Disable { change, .. }) = self;
        *change
    }
}

/// The file that is to be changed.
pub(super) struct OwnFile<'a> {
    pub(super) face: FaceKind,
    pub(super) file: &'a Path,
    pub(super) world: &'a World,
}

/// A server of the file, whatever its entry holds.
#[derive(Clone, PartialEq)]
pub(super) struct Place {
    /// The toolbox; empty for `tools.toml`.
    pub(super) toolbox: String,
    /// The name or namespace.
    pub(super) server: String,
    /// The path of the entry in the file.
    path: Vec<String>,
}

/// What a verb is about to do.
struct Planned<'e> {
    edits: Vec<Edit<'e>>,
    summary: Vec<String>,
    answer: JsonAnswer,
}

/// Runs a verb.
pub(super) fn run(
    verb: &ShapeVerb,
    target: &OwnFile<'_>,
    console: &mut Console<'_>,
) -> Result<JsonAnswer, Failure> {
    use ShapeVerb::{Describe, Disable, Enable, Move, Remove, Rename};
    if let (FaceKind::Toolman, Move { .. } | Describe { .. } | Rename { .. }) = (target.face, verb) {
        return Err(Failure::usage(
            "tools.toml has no toolboxes",
            "give its servers another `namespace` in the file instead",
        ));
    }
    match verb {
        Remove { server, toolbox, .. } => remove(target, server, toolbox.as_deref(), console),
        Move { servers, to, .. } => move_to(target, servers, to, console),
        Describe { toolbox, text, .. } => describe(target, toolbox, text, console),
        Rename { toolbox, new, .. } => rename(target, toolbox, new, console),
        Enable { server, .. } => switch(target, server, false, console),
        Disable { server, .. } => switch(target, server, true, console),
    }
}

/// Moves servers into a toolbox, which is made if there is none of that name.
fn move_to(
    target: &OwnFile<'_>,
    names: &[String],
    toolbox: &str,
    console: &mut Console<'_>,
) -> Result<JsonAnswer, Failure> {
    check_toolbox_name(toolbox)?;
    change(target, console, |value| {
        let all = servers(target.face, value);
        let (mut moved, mut edits, mut summary) = (Vec::<Place>::new(), Vec::new(), Vec::new());
        for name in names {
            let place = find(target.face, &all, name, None)?;
            if place.toolbox == toolbox || moved.contains(place) {
                continue;
            }
            let mut others = all.iter().filter(|other| other.toolbox == toolbox).chain(&moved);
            if others.any(|other| other.server == place.server) {
                return Err(Failure::usage(
                    format!("the toolbox `{toolbox}` would have two servers called `{}`", place.server),
                    "give one of them another name in the file, or choose another toolbox",
                ));
            }
            summary.push(format!("Moves {} from toolbox `{}` to `{toolbox}`", place.server, place.toolbox));
            let to = ["toolboxes", toolbox, "mcpServers"].map(str::to_owned).to_vec();
            edits.push(Edit::Move { path: place.path.clone(), to });
            moved.push(place.clone());
        }
        let emptied = emptied(&all, &moved);
        for toolbox in &emptied {
            edits.push(Edit::Remove { path: vec!["toolboxes".to_owned(), toolbox.clone()] });
            summary.push(goes_too(toolbox));
        }
        let moves = moved.iter().map(|place| json!({"server": place.server, "from": place.toolbox}));
        let answer =
            [("toolbox", json!(toolbox)), ("moved", moves.collect()), ("removedToolboxes", json!(emptied))];
        Ok(Planned { edits, summary, answer: members(answer) })
    })
}

/// Gives a toolbox a description in place of the one that it may have.
fn describe(
    target: &OwnFile<'_>,
    toolbox: &str,
    text: &str,
    console: &mut Console<'_>,
) -> Result<JsonAnswer, Failure> {
    let spelled = Template::literal(text).spelled();
    let described = json!({"toolboxes": {toolbox: {"description": spelled}}}).to_string();
    change(target, console, |value| {
        known_toolbox(value, toolbox)?;
        let path = ["toolboxes", toolbox, "description"].map(str::to_owned).to_vec();
        let edit = match value.at(&path) {
            Some(_) => Edit::Set { path, value: Value::String(spelled.clone()) },
            // A description stands before the servers that it describes.
            None => Edit::Restore { path, from: &described, format: Format::Json, index: 0 },
        };
        let answer = members([("toolbox", json!(toolbox)), ("description", json!(text))]);
        Ok(Planned { edits: vec![edit], summary: vec![format!("Describes toolbox `{toolbox}`")], answer })
    })
}

/// Gives a toolbox another name, also where tokens name it.
fn rename(
    target: &OwnFile<'_>,
    toolbox: &str,
    new: &str,
    console: &mut Console<'_>,
) -> Result<JsonAnswer, Failure> {
    check_toolbox_name(new)?;
    change(target, console, |value| {
        let known = known_toolbox(value, toolbox)?;
        let answer = |tokens: &[&str]| {
            members([("toolbox", json!(new)), ("renamedFrom", json!(toolbox)), ("tokens", json!(tokens))])
        };
        if new == toolbox {
            return Ok(Planned { edits: Vec::new(), summary: Vec::new(), answer: answer(&[]) });
        }
        if known.contains(&new) {
            let hint = format!("`{} move … --to {new}` puts servers there", target.face.program());
            return Err(Failure::usage(format!("a toolbox `{new}` already exists"), hint));
        }
        let path = vec!["toolboxes".to_owned(), toolbox.to_owned()];
        let mut edits = vec![Edit::Rename { path, to: new.to_owned() }];
        let mut tokens = Vec::new();
        let all = value.at(&["auth", "tokens"]).map(Value::items).unwrap_or_default();
        for (at, token) in all.iter().enumerate() {
            let names = token.get("toolboxes").map(Value::items).unwrap_or_default();
            let named = names.iter().position(|name| name.text() == Some(toolbox));
            if let Some(position) = named {
                let path = ["auth", "tokens", &at.to_string(), "toolboxes", &position.to_string()];
                let path = path.map(str::to_owned).to_vec();
                edits.push(Edit::Set { path, value: Value::String(new.to_owned()) });
                tokens.extend(token.get("name").and_then(Value::text));
            }
        }
        let mut summary = vec![format!("Renames toolbox `{toolbox}` to `{new}`")];
        if !tokens.is_empty() {
            summary.push(format!("Renames it in the tokens {} as well", listed(&tokens, "and")));
        }
        Ok(Planned { edits, summary, answer: answer(&tokens) })
    })
}

/// Switches a server on or off.
fn switch(
    target: &OwnFile<'_>,
    name: &str,
    disabled: bool,
    console: &mut Console<'_>,
) -> Result<JsonAnswer, Failure> {
    change(target, console, |value| {
        let all = servers(target.face, value);
        let place = find(target.face, &all, name, None)?;
        let mut path = place.path.clone();
        path.push("disabled".to_owned());
        let edit = match (disabled, value.at(&path)) {
            (true, Some(Value::Boolean(true))) | (false, None) => None,
            (true, _) => Some(Edit::Set { path, value: Value::Boolean(true) }),
            (false, Some(_)) => Some(Edit::Remove { path }),
        };
        let verb = if disabled { "Disables" } else { "Enables" };
        let mut answer = place.answer(target.face);
        answer.insert("disabled".to_owned(), json!(disabled));
        let summary = vec![format!("{verb} {}", place.server)];
        Ok(Planned { edits: edit.into_iter().collect(), summary, answer })
    })
}

/// Removes a server; `toolbox` is where it must be, if that is said.
fn remove(
    target: &OwnFile<'_>,
    name: &str,
    toolbox: Option<&str>,
    console: &mut Console<'_>,
) -> Result<JsonAnswer, Failure> {
    change(target, console, |value| {
        if let Some(toolbox) = toolbox {
            known_toolbox(value, toolbox)?;
        }
        let all = servers(target.face, value);
        let place = find(target.face, &all, name, toolbox)?;
        let mut answer = place.answer(target.face);
        let inside = match target.face {
            FaceKind::Workbench => format!(" from toolbox `{}`", place.toolbox),
            FaceKind::Toolman => String::new(),
        };
        let mut summary = vec![format!("Removes {}{inside}", place.server)];
        let edit = match target.face {
            FaceKind::Workbench => {
                let emptied = emptied(&all, std::slice::from_ref(place));
                summary.extend(emptied.iter().map(|toolbox| goes_too(toolbox)));
                answer.insert("removedToolboxes".to_owned(), json!(emptied));
                let path = place.path.iter().take(if emptied.is_empty() { usize::MAX } else { 2 });
                Edit::Remove { path: path.cloned().collect() }
            }
            FaceKind::Toolman => {
                let path = vec!["servers".to_owned()];
                let index = all.iter().position(|other| other == place).unwrap_or_default();
                if all.len() == 1 { Edit::Remove { path } } else { Edit::Pull { path, index } }
            }
        };
        Ok(Planned { edits: vec![edit], summary, answer })
    })
}

/// Reads the file, plans a change of it, shows it and writes it.
fn change<'e>(
    target: &OwnFile<'_>,
    console: &mut Console<'_>,
    plan: impl Fn(&Value) -> Result<Planned<'e>, Failure>,
) -> Result<JsonAnswer, Failure> {
    let OwnFile { face, file, world } = *target;
    console.in_turn(file, |console| {
        let config = open(face, file, world, None)?;
        let Planned { edits, summary, mut answer } = plan(&config.value)?;
        let after =
            edit::apply(format(face), &config.text, &edits).map_err(|refusal| refused(file, &refusal))?;
        validate(face, file, after.as_bytes(), None, world)
            .and_then(|()| asks_for_no_more(target, &config.text, &after))
            .map_err(|failure| {
                let hint = "the file would not be valid after this change, so nothing was changed".to_owned();
                Failure { hint, ..failure }
            })?;
        summary.into_iter().for_each(|line| console.plan(line));
        let proposal = Proposal {
            snapshot: &config.snapshot,
            format: format(face),
            after: Some(&after),
            audience: Audience::Usual,
            secrets: Redactor::default(),
        };
        if console.settle(&proposal, &mut answer, |_| Ok(()))? == Settled::Same {
            console.say("There is nothing to change.")?;
        }
        Ok(answer)
    })
}

/// Checks that the new text needs no variable that is not set and that the old one did not need: a server that is
/// enabled may. What a file has lacked before is no reason to refuse another change of it.
fn asks_for_no_more(target: &OwnFile<'_>, before: &str, after: &str) -> Result<(), Failure> {
    let unset = |text: &str| {
        let mut problems = problems(target.face, target.file, text.as_bytes(), None, target.world);
        problems.retain(|problem| problem.unset);
        problems
    };
    let (known, mut problems) = (unset(before), unset(after));
    if problems.len() <= known.len() {
        return Ok(());
    }
    problems.retain(|problem| !known.iter().any(|known| known.path == problem.path));
    Err(Failure::invalid(target.file, problems, String::new()))
}

/// All servers of a configuration, in the order of the file.
pub(super) fn servers(face: FaceKind, value: &Value) -> Vec<Place> {
    let path = |keys: &[&str]| keys.iter().map(|key| (*key).to_owned()).collect();
    let is_entry = |(_, entry): &&(String, Value)| matches!(entry, Value::Object(_));
    match face {
        FaceKind::Workbench => {
            let toolboxes = value.get("toolboxes").map(Value::entries).unwrap_or_default();
            let places = |(toolbox, value): &(String, Value)| {
                let servers = value.get("mcpServers").map(Value::entries).unwrap_or_default();
                let place = |(server, _): &(String, Value)| Place {
                    toolbox: toolbox.clone(),
                    server: server.clone(),
                    path: path(&["toolboxes", toolbox, "mcpServers", server]),
                };
                servers.iter().filter(is_entry).map(place).collect::<Vec<_>>()
            };
            toolboxes.iter().flat_map(places).collect()
        }
        FaceKind::Toolman => {
            let servers = value.get("servers").map(Value::items).unwrap_or_default();
            let place = |(at, server): (usize, &Value)| Place {
                toolbox: String::new(),
                server: server.get("namespace").and_then(Value::text).unwrap_or_default().to_owned(),
                path: path(&["servers", &at.to_string()]),
            };
            servers.iter().enumerate().map(place).collect()
        }
    }
}

/// The one server that is called like this, by its name alone or after its toolbox and a slash.
fn find<'p>(
    face: FaceKind,
    all: &'p [Place],
    name: &str,
    toolbox: Option<&str>,
) -> Result<&'p Place, Failure> {
    let within: Vec<_> =
        all.iter().filter(|place| toolbox.is_none_or(|toolbox| place.toolbox == toolbox)).collect();
    let found: Vec<_> =
        within.iter().filter(|place| place.server == name || place.address() == name).collect();
    match found.as_slice() {
        [place] => Ok(place),
        [] => Err(unknown("server", name, &within.iter().map(|place| &*place.server).collect::<Vec<_>>())),
        _ if face == FaceKind::Toolman => {
            let message = format!("several servers have the namespace `{name}`");
            Err(Failure::usage(message, "give each a namespace of its own, or change the file by hand"))
        }
        many => {
            let addresses: Vec<_> = many.iter().map(|place| place.address()).collect();
            let message = format!("several servers are called `{name}`");
            Err(Failure::usage(message, format!("name one of them: {}", listed(&addresses, "or"))))
        }
    }
}

/// The names of all toolboxes, or the failure that this one is not among them.
fn known_toolbox<'v>(value: &'v Value, name: &str) -> Result<Vec<&'v str>, Failure> {
    let toolboxes = value.get("toolboxes").map(Value::entries).unwrap_or_default();
    let toolboxes = toolboxes.iter().filter(|(_, toolbox)| matches!(toolbox, Value::Object(_)));
    let names: Vec<_> = toolboxes.map(|(name, _)| name.as_str()).collect();
    if names.contains(&name) { Ok(names) } else { Err(unknown("toolbox", name, &names)) }
}

fn unknown(what: &str, name: &str, known: &[&str]) -> Failure {
    let mut names = known.to_vec();
    names.dedup();
    let hint = match (nearest(name, &names), names.as_slice()) {
        (Some(near), _) => format!("did you mean `{near}`?"),
        (None, []) => "there is none".to_owned(),
        (None, [only]) => format!("there is only `{only}`"),
        (None, many) => format!("there are {}", listed(many, "and")),
    };
    Failure::usage(format!("there is no {what} `{name}`"), hint)
}

fn check_toolbox_name(name: &str) -> Result<(), Failure> {
    let wrong = |wrong| Failure::usage(wrong, "give the toolbox another name, such as `dev`");
    ToolboxName::new(name).map(drop).map_err(wrong)
}

/// The toolboxes that have no server but these.
fn emptied(all: &[Place], gone: &[Place]) -> Vec<String> {
    let mut toolboxes: Vec<String> = Vec::new();
    for place in gone {
        let stays = all.iter().any(|other| other.toolbox == place.toolbox && !gone.contains(other));
        if !stays && !toolboxes.contains(&place.toolbox) {
            toolboxes.push(place.toolbox.clone());
        }
    }
    toolboxes
}

fn goes_too(toolbox: &str) -> String {
    format!("Removes toolbox `{toolbox}`, which has no other server")
}

impl Place {
    /// The name that no other server has.
    fn address(&self) -> String {
        format!("{}/{}", self.toolbox, self.server)
    }

    /// The start of an answer about this server.
    fn answer(&self, face: FaceKind) -> JsonAnswer {
        match face {
            FaceKind::Workbench => {
                members([("toolbox", json!(self.toolbox)), ("server", json!(self.server))])
            }
            FaceKind::Toolman => members([("namespace", json!(self.server))]),
        }
    }
}

fn members<const N: usize>(members: [(&str, serde_json::Value); N]) -> JsonAnswer {
    members.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

//! Variables that a configuration names, and the values that clients' files still hold for them.
//!
//! `init` puts `${NAME}` in place of a secret that stood in a client's file. Until somebody sets the variable, its
//! value is where it was: in that file, or in the backup that `connect` made of it. `connect` hands such values on to
//! the gateway that a client starts, and verbs in the shell borrow them.

use super::World;
use super::change::format;
use super::connect::backups;
use super::import::{is_gateway, servers_in};
use super::origins::remembered;
use crate::client_files::{
    FileScope, FoundValue, Group, ImportedServer, Launch, Piece, Template, places, read_config,
    values as found_in,
};
use crate::config::locate::{Face, user_file};
use crate::edit::{self, file::contents};
use crate::known_clients::{CLIENTS, KnownClient};
use std::path::Path;

/// Variables without a default that a text names and that are not set, each once.
pub(super) fn unset(text: &str, world: &World) -> Vec<String> {
    let mut names = Vec::new();
    for piece in Template::ours(text).pieces() {
        if let Piece::Variable { name, default: None } = piece
            && world.variable(name).is_none()
            && !names.contains(name)
        {
            names.push(name.clone());
        }
    }
    names
}

/// A configuration whose variables are looked for.
pub(super) struct Wanted<'a> {
    pub(super) face: Face,
    pub(super) file: &'a Path,
    pub(super) text: &'a str,
    pub(super) groups: &'a [Group],
    /// The client that is to start us, if it is about one.
    pub(super) client: Option<&'static KnownClient>,
}

/// What clients' files hold.
pub(super) struct Held {
    pub(super) servers: Vec<ImportedServer>,
    /// What variables stand for. Where the environment has another value, that one is meant.
    pub(super) values: Vec<FoundValue>,
}

/// Reads the files of all clients; those of a project only for a configuration of that project.
pub(super) fn held_by_clients(wanted: &Wanted<'_>, world: &World) -> Held {
    let environment = |name: &str| world.variable(name);
    let around = world.surroundings(&environment);
    let everywhere = !wanted.file.starts_with(&world.directory)
        || user_file(wanted.face, &around).is_some_and(|file| file == wanted.file);
    let project = if everywhere { Path::new("") } else { world.directory.as_path() };
    let (mut servers, mut gateways, mut seen) = (Vec::new(), Vec::new(), Vec::new());
    for client in &CLIENTS {
        for place in places(client, &around) {
            if seen.contains(&place.path) || everywhere && place.scope == FileScope::Project {
                continue;
            }
            // As it was before we took servers out, and as it is.
            let past = backups(client, &place.path, world).into_iter().filter_map(|backup| backup.read());
            let mut texts: Vec<_> = past.map(|(_, before, _)| (before, false)).collect();
            texts.extend(contents(&place.path).map(|now| (now, true)));
            for (bytes, current) in texts {
                let Ok(text) = String::from_utf8(bytes) else { continue };
                let held = servers_in(client, &place.path, &text, place.scope, project);
                let held = held.into_iter().flat_map(|held| held.servers);
                let (ourselves, others): (Vec<_>, Vec<_>) = held.partition(is_gateway);
                servers.extend(others);
                gateways
                    .extend(ourselves.into_iter().filter(|server| current && starts(server, wanted.file)));
            }
            seen.push(place.path);
        }
    }
    let mut values = handed_on(&gateways, wanted);
    let present: Vec<_> = wanted.groups.iter().flat_map(|group| group.servers.clone()).collect();
    let known = |name: &str| known(name, &values, world);
    let found = found_in(&servers, &present, &remembered(wanted.file, world), &known);
    let new = |one: &FoundValue| values.iter().all(|known| known.variable != one.variable);
    let new: Vec<_> = found.into_iter().filter(new).collect();
    values.extend(new);
    values.retain(|one| world.variable(&one.variable).is_none_or(|set| set == one.text));
    Held { servers, values }
}

/// Whether an entry starts the gateway with this configuration.
fn starts(gateway: &ImportedServer, config: &Path) -> bool {
    let config = config.to_string_lossy();
    matches!(&gateway.launch, Launch::Command { args, .. } if args.iter().any(|arg| arg.text() == Some(&*config)))
}

/// What a client starts us with already; for others, what all agree on.
fn handed_on(gateways: &[ImportedServer], wanted: &Wanted<'_>) -> Vec<FoundValue> {
    let mut values: Vec<FoundValue> = Vec::new();
    for variable in Template::ours(wanted.text).variables() {
        let all = gateways.iter().filter_map(|gateway| {
            let (_, value) = gateway.env.iter().find(|(name, _)| name == variable)?;
            let text = value.text()?.to_owned();
            Some(FoundValue { variable: variable.to_owned(), text, client: gateway.origin.client })
        });
        let all: Vec<_> = all.collect();
        let own = all.iter().find(|one| wanted.client.is_some_and(|client| client.title == one.client));
        let agreed = all.first().filter(|first| all.iter().all(|one| one.text == first.text));
        values.extend(own.or(agreed).cloned());
    }
    values
}

/// The value of a variable: the environment's, or the one that was found.
pub(super) fn known(name: &str, found: &[FoundValue], world: &World) -> Option<String> {
    let held = || found.iter().find(|one| one.variable == name).map(|one| one.text.clone());
    world.variable(name).or_else(held)
}

/// Sets what a configuration needs and clients' files hold, for this process; answers what that was.
pub(super) fn borrow(world: &mut World, face: Face, file: &Path) -> Vec<FoundValue> {
    let text = contents(file).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    let Some(text) = text else { return Vec::new() };
    let missing = unset(&text, world);
    if missing.is_empty() {
        return Vec::new();
    }
    let Ok(parsed) = edit::parse(format(face), &text) else { return Vec::new() };
    let groups = read_config(face, &parsed.value);
    let wanted = Wanted { face, file, text: &text, groups: &groups, client: None };
    let mut found = held_by_clients(&wanted, world).values;
    found.retain(|one| missing.contains(&one.variable));
    world.vars.extend(found.iter().map(|one| (one.variable.clone().into(), one.text.clone().into())));
    found
}

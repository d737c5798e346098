//! Variables that a configuration names, and the values that clients' files still hold for them.
//!
//! `init` puts `${NAME}` in place of a secret that stood in a client's file. Until somebody sets the variable, its
//! value is where it was: in that file, or in the backup that `connect` made of it. `connect` hands such values on to
//! the gateway that a client starts, and verbs in the shell borrow them.

use super::World;
use super::change::format;
use super::connect::backups;
use super::import::{is_gateway, servers_in};
use crate::clients::{CLIENTS, Found, Group, Piece, Template, places, read_config, values};
use crate::config::locate::Face;
use crate::edit;
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

/// The values that clients' files hold for variables of a configuration. Where the environment has another value, that
/// one is meant.
pub(super) fn held_by_clients(groups: &[Group], world: &World) -> Vec<Found> {
    let environment = |name: &str| world.variable(name);
    let around = world.surroundings(&environment);
    let (mut servers, mut seen) = (Vec::new(), Vec::new());
    for client in &CLIENTS {
        for place in places(client, &around) {
            if seen.contains(&place.path) {
                continue;
            }
            // As it was before we took servers out, and as it is.
            let mut texts: Vec<_> = backups(client, &place.path, world)
                .iter()
                .filter_map(|backup| backup.read())
                .map(|(_, before, _)| before)
                .collect();
            texts.extend(std::fs::read(&place.path));
            for text in texts.into_iter().filter_map(|bytes| String::from_utf8(bytes).ok()) {
                let held = servers_in(client, &place.path, &text, place.scope, &world.directory);
                servers.extend(
                    held.into_iter().flat_map(|held| held.servers).filter(|server| !is_gateway(server)),
                );
            }
            seen.push(place.path);
        }
    }
    let present: Vec<_> = groups.iter().flat_map(|group| group.servers.clone()).collect();
    let mut found = values(servers, &present, &environment);
    found.retain(|one| world.variable(&one.variable).is_none_or(|set| set == one.text));
    found
}

/// The value of a variable: the environment's, or the one that was found.
pub(super) fn known(name: &str, found: &[Found], world: &World) -> Option<String> {
    let held = || found.iter().find(|one| one.variable == name).map(|one| one.text.clone());
    world.variable(name).or_else(held)
}

/// Sets what a configuration needs and clients' files hold, for this process; answers what that was.
pub(super) fn borrow(world: &mut World, face: Face, file: &Path) -> Vec<Found> {
    let Ok(text) = std::fs::read_to_string(file) else { return Vec::new() };
    let missing = unset(&text, world);
    if missing.is_empty() {
        return Vec::new();
    }
    let Ok(parsed) = edit::parse(format(face), &text) else { return Vec::new() };
    let mut found = held_by_clients(&read_config(face, &parsed.value), world);
    found.retain(|one| missing.contains(&one.variable));
    world.vars.extend(found.iter().map(|one| (one.variable.clone().into(), one.text.clone().into())));
    found
}

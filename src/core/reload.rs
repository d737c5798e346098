//! Compares an old file with a new one: which servers stay, and which are others. The registry and Toolman
//! call it.
//!
//! Invariant: these functions are pure; they compare and change nothing.

use super::upstream::Spec;
use crate::config::{Isolation, Transport};

/// Whether an upstream keeps running under its new settings: only another transport makes it another
/// upstream, and whether clients have upstreams of their own.
pub fn stays(old: &Spec, new: &Spec) -> bool {
    let is_own = |spec: &Spec| spec.isolation == Some(Isolation::Session);
    old.transport == new.transport && is_own(old) == is_own(new)
}

/// For each server of a new list, the server of an old list that it is. Names need not be unique: a server
/// with the same name and the same transport comes first, otherwise the next one with the same name that is
/// not taken.
pub fn same_servers(old: &[(&str, &Transport)], new: &[(&str, &Transport)]) -> Vec<Option<usize>> {
    let mut found: Vec<Option<usize>> = vec![None; new.len()];
    for strict in [true, false] {
        for (at, (name, transport)) in new.iter().enumerate() {
            if found[at].is_none() {
                let fits = |index: &usize| old[*index].0 == *name && (!strict || old[*index].1 == *transport);
                found[at] = (0..old.len()).find(|index| !found.contains(&Some(*index)) && fits(index));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::config::{ByteLimit, Command, Http, Secret, Start, ToolFilter};

    fn transport(program: &str) -> Transport {
        let (program, args) = (program.to_owned(), vec!["--flag".to_owned()]);
        Transport::Stdio(Command { program, args, env: Vec::new(), cwd: None, inherit_env: Vec::new() })
    }

    fn spec() -> Spec {
        Spec::plain(transport("server"))
    }

    #[test]
    fn only_another_way_to_reach_a_server_restarts_it() {
        type Change = fn(&mut Spec);
        let changes: Vec<(&str, Change, bool)> = vec![
            ("nothing", |_| (), true),
            ("filter", |spec| spec.filter = ToolFilter::Only(vec!["a".into()]), true),
            ("timeout", |spec| spec.timeouts.call = Some(Duration::from_secs(1)), true),
            ("restart", |spec| spec.restart = true, true),
            ("start", |spec| spec.start = Some(Start::Call), true),
            ("idle timeout", |spec| spec.idle_timeout = Some(Duration::from_secs(1)), true),
            ("offloadOver", |spec| spec.offload_over = ByteLimit::Auto, true),
            ("program", |spec| spec.transport = transport("other"), false),
            ("arguments", |spec| on_command(spec, |command| command.args.clear()), false),
            (
                "environment",
                |spec| on_command(spec, |command| command.env.push(("A".into(), Secret::new("1")))),
                false,
            ),
            ("directory", |spec| on_command(spec, |command| command.cwd = Some("/".into())), false),
            (
                "transport",
                |spec| {
                    let (url, headers) = ("http://127.0.0.1/mcp".to_owned(), Vec::new());
                    spec.transport = Transport::Http(Http { url, headers, sse: false, oauth: None });
                },
                false,
            ),
            ("isolation", |spec| spec.isolation = Some(Isolation::Session), false),
            ("isolation that means the same", |spec| spec.isolation = Some(Isolation::Directory), true),
        ];
        for (what, change, expected) in changes {
            let mut new = spec();
            change(&mut new);
            assert_eq!(stays(&spec(), &new), expected, "{what}");
        }
    }

    fn on_command(spec: &mut Spec, change: fn(&mut Command)) {
        if let Transport::Stdio(command) = &mut spec.transport {
            change(command);
        }
    }

    #[test]
    fn servers_are_known_again_by_name_and_by_how_they_are_reached() {
        let check = |old: &[(&str, &str)], new: &[(&str, &str)], expected: &[Option<usize>]| {
            let made = |list: &[(&str, &str)]| -> Vec<(String, Transport)> {
                list.iter().map(|(name, program)| ((*name).to_owned(), transport(program))).collect()
            };
            fn seen(list: &[(String, Transport)]) -> Vec<(&str, &Transport)> {
                list.iter().map(|(name, transport)| (name.as_str(), transport)).collect()
            }
            let (old, new) = (made(old), made(new));
            assert_eq!(same_servers(&seen(&old), &seen(&new)), expected, "{old:?} {new:?}");
        };
        check(&[("a", "x"), ("b", "y")], &[("b", "y"), ("a", "x")], &[Some(1), Some(0)]);
        check(&[("a", "x")], &[("a", "z")], &[Some(0)]);
        check(&[("a", "x")], &[("b", "x")], &[None]);
        // Among servers of one name, the unchanged ones are matched first, whatever stands before them.
        check(&[("", "x"), ("", "y")], &[("", "new"), ("", "y"), ("", "x")], &[None, Some(1), Some(0)]);
        check(&[("", "x"), ("", "y")], &[("", "z"), ("", "x")], &[Some(1), Some(0)]);
        check(&[], &[("a", "x")], &[None]);
    }
}

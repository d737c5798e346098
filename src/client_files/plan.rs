//! What an import adds to a configuration.

use super::read::{ImportedServer, Launch};
use super::secrets::Vault;
use super::template::Template;
use crate::config::Environment;

/// What is to be added, and what is not.
#[derive(Debug, Default)]
pub struct Plan {
    /// New servers, secrets replaced, in the order of the sources.
    pub additions: Vec<Addition>,
    /// Servers that are there already, or twice among the sources.
    pub merged: Vec<Present>,
}

/// A server to add.
#[derive(Debug)]
pub struct Addition {
    /// With the name that it gets.
    pub server: ImportedServer,
    /// What the client calls it, if that name was taken by another.
    pub renamed_from: Option<String>,
}

/// A server that need not be added.
#[derive(Debug, PartialEq, Eq)]
pub struct Present {
    /// What the client calls it.
    pub name: String,
    /// The client.
    pub client: &'static str,
    /// The one that stands for it.
    pub same_as: String,
    /// What differs all the same, and was left as that one has it.
    pub differs: Vec<&'static str>,
}

/// Merges identical servers, leaves out what `present` holds already, finds free names and replaces secrets.
/// `taken` are the names in use where the servers go; `environment` knows the values of variables.
pub fn plan(
    imported: Vec<ImportedServer>,
    present: &[ImportedServer],
    taken: &[String],
    environment: &Environment<'_>,
    vault: &mut Vault<'_>,
) -> Plan {
    let (unique, merged) = distinct(imported);
    let mut plan = Plan { additions: Vec::new(), merged };
    let mut left: Vec<&ImportedServer> = present.iter().collect();
    let mut names = taken.to_vec();
    for mut server in unique {
        if let Some(own) = counterpart(&server, &mut left, environment) {
            plan.merged.push(Present {
                differs: own.lacks(&server),
                name: server.name,
                client: server.origin.client,
                same_as: own.name.clone(),
            });
            continue;
        }
        let name = free_name(&server.name, &names);
        let renamed_from = (name != server.name).then(|| std::mem::replace(&mut server.name, name.clone()));
        names.push(name);
        vault.take(&mut server);
        plan.additions.push(Addition { server, renamed_from });
    }
    plan
}

/// The name itself, or the first with a number that is not taken. Names count as the same if toolboxes named
/// after them would have the same name.
pub fn free_name(name: &str, taken: &[String]) -> String {
    let is_taken = |name: &String| taken.iter().any(|other| toolbox_for(other) == toolbox_for(name));
    let numbered = |n: usize| if n == 1 { name.to_owned() } else { format!("{name}-{n}") };
    (1..).map(numbered).find(|name| !is_taken(name)).unwrap_or_default()
}

/// The name of the toolbox that is named after a server. `__` separates the parts of a tool's full name, so
/// no toolbox has it in its name.
pub fn toolbox_for(server: &str) -> String {
    let mut name = server.to_owned();
    while name.contains("__") {
        name = name.replace("__", "_");
    }
    name
}

/// Each server once, and those that are the same as another.
fn distinct(imported: Vec<ImportedServer>) -> (Vec<ImportedServer>, Vec<Present>) {
    let (mut unique, mut merged): (Vec<ImportedServer>, _) = (Vec::new(), Vec::new());
    for server in imported {
        match unique.iter_mut().find(|known| known.identical(&server)) {
            None => unique.push(server),
            Some(known) => merged.push(merge(known, server)),
        }
    }
    (unique, merged)
}

/// Those of a client's servers that stand in `present` as well and can be used there: each one there stands for one
/// server, and for what is identical to that.
pub fn held<'s>(
    servers: &'s [ImportedServer],
    present: &[ImportedServer],
    environment: &Environment<'_>,
) -> Vec<&'s ImportedServer> {
    let mut held: Vec<&ImportedServer> = Vec::new();
    let (mut off, mut on): (Vec<_>, Vec<_>) = present.iter().partition(|own| own.disabled);
    for server in servers {
        if held.iter().any(|known| known.identical(server))
            || counterpart(server, &mut on, environment).is_some()
            || server.disabled && counterpart(server, &mut off, environment).is_some()
        {
            held.push(server);
        }
    }
    held
}

/// Takes out the one that stands for a server. Where nobody knows whether two secrets are the same, the names decide:
/// two accounts at one service must not become one.
fn counterpart<'a>(
    server: &ImportedServer,
    left: &mut Vec<&'a ImportedServer>,
    environment: &Environment<'_>,
) -> Option<&'a ImportedServer> {
    let likeness: Vec<_> = left.iter().map(|own| own.likeness(server, environment)).collect();
    let find = |wanted: Likeness, named: &dyn Fn(&str) -> bool| {
        (0..left.len()).find(|&at| likeness[at] == wanted && named(&left[at].name))
    };
    let at = find(Likeness::Same, &|own| own == server.name)
        .or_else(|| find(Likeness::Same, &|_| true))
        .or_else(|| find(Likeness::Unsure, &|own| own == server.name))
        .or_else(|| find(Likeness::Unsure, &|own| is_numbered(own, &server.name)))?;
    Some(left.remove(at))
}

fn is_numbered(name: &str, base: &str) -> bool {
    let number = name.strip_prefix(base).and_then(|rest| rest.strip_prefix('-'));
    number.is_some_and(|number| number.parse::<u32>().is_ok())
}

/// How far two servers do the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Likeness {
    Same,
    /// The same if a variable that is not set stands for the secret of the other.
    Unsure,
    Different,
}

fn merge(known: &mut ImportedServer, other: ImportedServer) -> Present {
    let mut differs = Vec::new();
    for (what, mine, theirs) in [
        ("its startup timeout", &mut known.timeouts.connect, other.timeouts.connect),
        ("its timeout", &mut known.timeouts.call, other.timeouts.call),
    ] {
        match (&mine, theirs) {
            (Some(mine), Some(theirs)) if *mine != theirs => differs.push(what),
            (None, theirs) => *mine = theirs,
            _ => {}
        }
    }
    if known.description.is_empty() {
        known.description = other.description;
    }
    if known.disabled != other.disabled {
        // Somebody uses it.
        known.disabled = false;
        differs.push("that it is off in one of them");
    }
    Present { name: other.name, client: other.origin.client, same_as: known.name.clone(), differs }
}

impl ImportedServer {
    /// Whether both do the same, secrets included; names and timeouts do not count.
    fn identical(&self, other: &Self) -> bool {
        self.launch == other.launch
            && same_pairs(&self.env, &other.env)
            && self.cwd == other.cwd
            && self.inherit_env == other.inherit_env
            && self.tools == other.tools
    }

    /// What of the other is not here.
    fn lacks(&self, other: &Self) -> Vec<&'static str> {
        let missing = |theirs: &Option<String>, ours: &Option<String>| theirs.is_some() && theirs != ours;
        let mut lacks = Vec::new();
        for (what, differs) in [
            ("its startup timeout", missing(&other.timeouts.connect, &self.timeouts.connect)),
            ("its timeout", missing(&other.timeouts.call, &self.timeouts.call)),
            ("its list of tools", other.tools.is_some() && other.tools != self.tools),
            (
                "its list of inherited variables",
                other.inherit_env.iter().any(|name| !self.inherit_env.contains(name)),
            ),
            ("that it is off there", other.disabled && !self.disabled),
            ("that it is on there", !other.disabled && self.disabled),
        ] {
            lacks.extend(differs.then_some(what));
        }
        lacks
    }

    fn likeness(&self, other: &Self, environment: &Environment<'_>) -> Likeness {
        if !self.same_shape(other) {
            return Likeness::Different;
        }
        let mut likeness = Likeness::Same;
        for (one, two) in self.beside(other) {
            match (one.known(environment), two.known(environment)) {
                (Some(one), Some(two)) if one != two => return Likeness::Different,
                (None, _) | (_, None) if one != two => likeness = Likeness::Unsure,
                _ => {}
            }
        }
        likeness
    }

    /// Whether both do the same but for the values of secrets.
    fn same_shape(&self, other: &Self) -> bool {
        let (one, two) = (self.without_secrets(), other.without_secrets());
        let cwd = match (&one.cwd, &two.cwd) {
            (Some(one), Some(two)) => one.matches(two),
            (one, two) => one.is_none() && two.is_none(),
        };
        one.launch.matches(&two.launch) && matching(&one.env, &two.env) && cwd
    }

    /// The texts of both that stand at the same place.
    fn beside<'a>(&'a self, other: &'a Self) -> Vec<(&'a Template, &'a Template)> {
        let mut pairs = by_key(&self.env, &other.env);
        match (&self.launch, &other.launch) {
            (Launch::Command { args, .. }, Launch::Command { args: others, .. }) => {
                pairs.extend(args.iter().zip(others));
            }
            (
                Launch::Url { url, headers, oauth, .. },
                Launch::Url { url: theirs, headers: others, oauth: login, .. },
            ) => {
                pairs.push((url, theirs));
                pairs.extend(by_key(headers, others));
                pairs.extend(by_key(oauth, login));
            }
            _ => {}
        }
        pairs
    }

    fn without_secrets(&self) -> Self {
        let mut server = self.clone();
        Vault::blind(&|_| None).take(&mut server);
        server
    }
}

impl Launch {
    fn matches(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Command { program, args }, Self::Command { program: other, args: others }) => {
                program.matches(other)
                    && args.len() == others.len()
                    && args.iter().zip(others).all(|(one, two)| one.matches(two))
            }
            (
                Self::Url { url, headers, sse, oauth },
                Self::Url { url: other, headers: others, sse: same, oauth: login },
            ) => url.matches(other) && matching(headers, others) && sse == same && matching(oauth, login),
            _ => false,
        }
    }
}

type Pairs = [(String, Template)];

fn matching(one: &Pairs, two: &Pairs) -> bool {
    let found = |(key, value): &(String, Template)| {
        two.iter().any(|(name, other)| key == name && value.matches(other))
    };
    one.len() == two.len() && one.iter().all(found)
}

fn by_key<'a>(one: &'a Pairs, two: &'a Pairs) -> Vec<(&'a Template, &'a Template)> {
    let other = |name: &String| two.iter().find(|(key, _)| key == name).map(|(_, value)| value);
    one.iter().filter_map(|(name, value)| Some((value, other(name)?))).collect()
}

fn same_pairs(one: &Pairs, two: &Pairs) -> bool {
    one.len() == two.len() && one.iter().all(|pair| two.contains(pair))
}

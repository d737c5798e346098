//! What an import adds to a configuration.

use super::read::{ImportedServer, Launch};
use super::secrets::Vault;
use super::template::Template;

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
/// `taken` are the names in use where the servers go.
pub fn plan(
    imported: Vec<ImportedServer>,
    present: &[ImportedServer],
    taken: &[String],
    vault: &mut Vault<'_>,
) -> Plan {
    let (unique, merged) = distinct(imported);
    let mut plan = Plan { additions: Vec::new(), merged };
    let mut left: Vec<&ImportedServer> = present.iter().collect();
    let mut names = taken.to_vec();
    for mut server in unique {
        if let Some(own) = counterpart(&server, &mut left) {
            plan.merged.push(Present {
                name: server.name,
                client: server.origin.client,
                same_as: own.name.clone(),
                differs: Vec::new(),
            });
            continue;
        }
        let numbered = |n: usize| if n == 1 { server.name.clone() } else { format!("{}-{n}", server.name) };
        let name = (1..).map(numbered).find(|name| !names.contains(name)).unwrap_or_default();
        let renamed_from = (name != server.name).then(|| std::mem::replace(&mut server.name, name.clone()));
        names.push(name);
        vault.take(&mut server);
        plan.additions.push(Addition { server, renamed_from });
    }
    plan
}

/// The values that variables of `present` stand for, by what the servers that they were made of hold. A variable for
/// which there are two values is left out.
pub fn values(imported: Vec<ImportedServer>, present: &[ImportedServer]) -> Vec<Value> {
    let mut left: Vec<&ImportedServer> = present.iter().collect();
    let mut found: Vec<Value> = Vec::new();
    let mut doubtful = Vec::new();
    for server in distinct(imported).0 {
        let Some(own) = counterpart(&server, &mut left) else { continue };
        for (ours, theirs) in own.beside(&server) {
            let values = theirs.text().and_then(|text| ours.values_in(text)).unwrap_or_default();
            for (variable, text) in values {
                match found.iter().find(|known| known.variable == variable) {
                    Some(known) if known.text != text => doubtful.push(variable),
                    Some(_) => {}
                    None => found.push(Value { variable, text, client: server.origin.client }),
                }
            }
        }
    }
    found.retain(|value| !doubtful.contains(&value.variable));
    found
}

/// What a variable stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Value {
    /// The variable.
    pub variable: String,
    /// Its value, a secret.
    pub text: String,
    /// The client whose file holds it.
    pub client: &'static str,
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

/// Takes out the one that stands for a server: the same but for secrets, of the same name if there is one.
fn counterpart<'a>(
    server: &ImportedServer,
    left: &mut Vec<&'a ImportedServer>,
) -> Option<&'a ImportedServer> {
    let same_name = left.iter().position(|own| own.name == server.name && own.same_shape(server));
    let at = same_name.or_else(|| left.iter().position(|own| own.same_shape(server)))?;
    Some(left.remove(at))
}

fn merge(known: &mut ImportedServer, other: ImportedServer) -> Present {
    let mut differs = Vec::new();
    for (what, mine, theirs) in [
        ("its startup timeout", &mut known.connect_timeout, other.connect_timeout),
        ("its timeout", &mut known.call_timeout, other.call_timeout),
    ] {
        match (&mine, theirs) {
            (Some(mine), Some(theirs)) if *mine != theirs => differs.push(what),
            (None, theirs) => *mine = theirs,
            _ => {}
        }
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

    /// Whether both do the same but for the values of secrets.
    pub(super) fn same_shape(&self, other: &Self) -> bool {
        let (one, two) = (self.without_secrets(), other.without_secrets());
        let cwd = match (&one.cwd, &two.cwd) {
            (Some(one), Some(two)) => one.matches(two),
            (one, two) => one.is_none() && two.is_none(),
        };
        one.launch.matches(&two.launch) && matching(&one.env, &two.env) && cwd
    }

    /// Whether both are reached the same way but for the values of secrets.
    pub(super) fn same_launch(&self, other: &Self) -> bool {
        self.without_secrets().launch.matches(&other.without_secrets().launch)
    }

    /// The texts of both that stand at the same place.
    fn beside<'a>(&'a self, other: &'a Self) -> Vec<(&'a Template, &'a Template)> {
        let mut pairs = by_key(&self.env, &other.env);
        match (&self.launch, &other.launch) {
            (Launch::Command { args, .. }, Launch::Command { args: others, .. }) => {
                pairs.extend(args.iter().zip(others));
            }
            (Launch::Url { url, headers, .. }, Launch::Url { url: theirs, headers: others, .. }) => {
                pairs.push((url, theirs));
                pairs.extend(by_key(headers, others));
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

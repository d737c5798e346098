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
    let mut plan = Plan::default();
    let mut unique: Vec<ImportedServer> = Vec::new();
    for server in imported {
        match unique.iter_mut().find(|known| known.identical(&server)) {
            None => unique.push(server),
            Some(known) => plan.merged.push(merge(known, server)),
        }
    }
    let mut left: Vec<&ImportedServer> = present.iter().collect();
    let mut names = taken.to_vec();
    for mut server in unique {
        let same_name = left.iter().position(|own| own.name == server.name && own.same_shape(&server));
        if let Some(at) = same_name.or_else(|| left.iter().position(|own| own.same_shape(&server))) {
            let own = left.remove(at);
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

fn same_pairs(one: &Pairs, two: &Pairs) -> bool {
    one.len() == two.len() && one.iter().all(|pair| two.contains(pair))
}

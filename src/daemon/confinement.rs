//! How a process is confined. A daemon serves only sessions that are confined as it is: else it would be a way
//! out of a sandbox, or into one.

#[cfg(target_os = "linux")]
use std::io::Read;

/// What confines a process: names and values that can be compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Confinement(Vec<(&'static str, String)>);

impl Confinement {
    /// The confinement of a process of this user; `None` means this process. An error if it cannot be seen,
    /// which is itself a confinement.
    #[cfg(target_os = "linux")]
    pub fn of(pid: Option<u32>) -> std::io::Result<Self> {
        let process =
            std::path::Path::new("/proc").join(pid.map_or("self".to_owned(), |pid| pid.to_string()));
        // The system does not say how long it is. With room for all of it one read is enough, and a session waits for this.
        let mut status = String::with_capacity(4096);
        std::fs::File::open(process.join("status"))?.read_to_string(&mut status)?;
        let mut found = flags(&status);
        for (namespace, name) in [
            ("user", "the user namespace"),
            ("mnt", "the mount namespace"),
            ("pid", "the PID namespace"),
            ("net", "the network namespace"),
        ] {
            let link = std::fs::read_link(process.join("ns").join(namespace))?;
            found.push((name, link.to_string_lossy().into_owned()));
        }
        Ok(Self(found))
    }

    /// Other systems tell us nothing that could be compared.
    #[cfg(not(target_os = "linux"))]
    pub fn of(_pid: Option<u32>) -> std::io::Result<Self> {
        Ok(Self(Vec::new()))
    }

    /// Why a session of another process is not to be served, if it is not.
    pub fn objection(&self, theirs: std::io::Result<Self>) -> Option<String> {
        let Ok(theirs) = theirs else {
            return Some("the daemon cannot see how the session is confined".to_owned());
        };
        let what = self.difference(&theirs)?;
        Some(format!("the session is confined differently from the daemon: {what} is not the same"))
    }

    /// What differs between two processes, if anything does.
    fn difference(&self, other: &Self) -> Option<&'static str> {
        let differs = |(one, another): &(&(&'static str, String), &(&'static str, String))| one != another;
        let first = self.0.iter().zip(&other.0).find(differs).map(|(one, _)| one.0);
        first.or_else(|| (self.0.len() != other.0.len()).then_some("how they are confined"))
    }
}

/// What the `status` of a process says of its confinement.
#[cfg(any(target_os = "linux", test))]
fn flags(status: &str) -> Vec<(&'static str, String)> {
    let value = |key: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(key));
        line.unwrap_or_default().trim().to_owned()
    };
    vec![("no_new_privs", value("NoNewPrivs:")), ("the seccomp mode", value("Seccomp:"))]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_is_named() {
        let confinement = |privileges: &str, seccomp: &str, network: &str| {
            let status =
                format!("Name:\tx\nNoNewPrivs:\t{privileges}\nSeccomp:\t{seccomp}\nSeccomp_filters:\t9\n");
            let mut all = flags(&status);
            all.push(("the network namespace", network.to_owned()));
            Confinement(all)
        };
        let base = || confinement("0", "0", "net:[1]");
        for (other, expected) in [
            (base(), None),
            (confinement("1", "0", "net:[1]"), Some("no_new_privs")),
            (confinement("0", "2", "net:[1]"), Some("the seccomp mode")),
            (confinement("0", "0", "net:[2]"), Some("the network namespace")),
            (Confinement(Vec::new()), Some("how they are confined")),
        ] {
            assert_eq!(base().difference(&other), expected, "{other:?}");
        }
        let objection = |theirs| base().objection(theirs).unwrap_or_default();
        assert_eq!(objection(Ok(base())), "");
        let expected = "the session is confined differently from the daemon: no_new_privs is not the same";
        assert_eq!(objection(Ok(confinement("1", "0", "net:[1]"))), expected);
        let unseen = std::io::ErrorKind::NotFound.into();
        assert_eq!(objection(Err(unseen)), "the daemon cannot see how the session is confined");
    }

    #[test]
    fn this_process_is_confined_as_itself() {
        let (own, again) = (Confinement::of(None), Confinement::of(Some(std::process::id())));
        assert_eq!(own.expect("it can be seen").difference(&again.expect("by its number, too")), None);
    }
}

//! Decides where a connection may go.
//!
//! The user chose whatever the configuration names. What a server names during a login is not the user's
//! choice, and it must not make us contact hosts that the server itself cannot reach (server-side request
//! forgery). So URLs from servers are checked as they are written, names are looked up once, and we connect
//! to exactly the addresses that were checked.
//!
//! Invariant: we connect to an address that a server named only after it was checked.

use std::error::Error;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::Uri;
use hyper_util::client::legacy::connect::dns::Name;
use tower_service::Service;

use super::authorities::Authorities;

/// Finds the addresses of a name.
pub(in crate::transport) type Lookup =
    Arc<dyn Fn(String) -> Boxed<io::Result<Vec<SocketAddr>>> + Send + Sync>;
type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The system's name look-up.
pub(in crate::transport) fn system() -> Lookup {
    Arc::new(|name| Box::pin(async move { Ok(tokio::net::lookup_host((name, 0)).await?.collect()) }))
}

/// Who named the target of a connection, which decides how far the connection may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::transport) enum Reach {
    /// The configuration, which may name any address.
    Configured,
    /// The configuration, for a server that has answered from this address. Connections go there, whatever
    /// its name resolves to by now.
    Answered(IpAddr),
    /// A server on this machine.
    NamedHere,
    /// Any other server, which may name public addresses only.
    NamedElsewhere,
}

/// Checks connections and looks up names for them.
#[derive(Clone)]
pub(in crate::transport) struct Gate {
    pub(in crate::transport) reach: Reach,
    pub(in crate::transport) lookup: Lookup,
    /// Whose certificates are accepted.
    pub(in crate::transport) authorities: Authorities,
}

/// The reason why a connection is refused.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::transport) struct OutOfBounds(String);

impl fmt::Display for OutOfBounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; to use the server without a login, put its credentials into `headers`", self.0)
    }
}

impl Error for OutOfBounds {}

impl Reach {
    /// The reach of what the server at this URL names. A name that merely resolves to this machine does not
    /// count as local, because its owner can change that.
    pub(in crate::transport) fn named_by(server: &Uri) -> Self {
        match is_here(server.host().unwrap_or_default()) {
            true => Self::NamedHere,
            false => Self::NamedElsewhere,
        }
    }

    /// Checks a URL as far as possible without looking up its name.
    pub(in crate::transport) fn check(self, uri: &Uri) -> Result<(), OutOfBounds> {
        let host = uri.host().unwrap_or_default();
        let refused = |why: String| Err(OutOfBounds(why));
        if self == Self::Configured {
            return Ok(());
        }
        if uri.authority().is_none_or(|authority| authority.as_str().contains('@')) || host.is_empty() {
            return refused("it has no host, or credentials before it".into());
        }
        match uri.scheme_str() {
            Some("https") => {}
            Some("http") if is_here(host) || matches!(self, Self::Answered(_)) => {}
            Some("http") => {
                return refused(format!(
                    "plain http is for localhost and loopback addresses only, and {host} is neither"
                ));
            }
            _ => return refused("it does not begin with https://".into()),
        }
        if self != Self::NamedElsewhere {
            return Ok(());
        }
        match address(host) {
            Some(address) => match kind(address) {
                Some(kind) => refused(format!("{host} is a {kind} address{ONLY_HERE}")),
                None => Ok(()),
            },
            None if ends_in_number(host) => {
                refused(format!("{host} is not a host name, and not the usual form of an address"))
            }
            None if is_localhost(host) => refused(format!("{host} is a loopback name{ONLY_HERE}")),
            None => Ok(()),
        }
    }

    /// Checks all addresses of a name.
    fn check_addresses(self, name: &str, found: &[SocketAddr]) -> Result<(), OutOfBounds> {
        for address in found.iter().map(SocketAddr::ip) {
            match (self, kind(address)) {
                (Self::NamedElsewhere, Some(kind)) => {
                    return Err(OutOfBounds(format!(
                        "{name} resolves to {address}, a {kind} address{ONLY_HERE}"
                    )));
                }
                // Plain `http` is allowed to `localhost`, so it must really be this machine.
                (Self::NamedHere, kind) if is_localhost(name) && kind != Some("loopback") => {
                    return Err(OutOfBounds(format!(
                        "{name} resolves to {address}, which is not on this machine"
                    )));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

const ONLY_HERE: &str = ", and only a server on this machine may send the gateway there";

impl Gate {
    /// The gate for addresses from the configuration.
    pub(in crate::transport) fn configured(authorities: Authorities) -> Self {
        Self { reach: Reach::Configured, lookup: system(), authorities }
    }
}

/// The look-up for the connector, which connects to exactly the addresses that it is given.
impl Service<Name> for Gate {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = Box<dyn Error + Send + Sync>;
    type Future = Boxed<Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let reach = self.reach;
        if let Reach::Answered(address) = reach {
            return Box::pin(async move { Ok(vec![SocketAddr::new(address, 0)].into_iter()) });
        }
        let looking = (self.lookup)(name.as_str().to_owned());
        Box::pin(async move {
            let found = looking.await?;
            reach.check_addresses(name.as_str(), &found)?;
            Ok(found.into_iter())
        })
    }
}

/// Whether a host is `localhost` or a loopback address. Hosts are compared as addresses, because
/// `127.example` is an ordinary name.
fn is_here(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost") || address(host).and_then(kind) == Some("loopback")
}

/// Whether a name means this machine wherever it is looked up (RFC 6761).
fn is_localhost(name: &str) -> bool {
    let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    name == "localhost" || name.ends_with(".localhost")
}

/// The address in a host, if it is one in the usual form.
fn address(host: &str) -> Option<IpAddr> {
    match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(host) => host.parse().ok().map(IpAddr::V6),
        None => host.parse().ok().map(IpAddr::V4),
    }
}

/// Whether browsers and systems would read a host as an address, as in `127.1`, `0x7f.1`, `2130706433` or
/// `127.0.0.1.`.
fn ends_in_number(host: &str) -> bool {
    let last = host.strip_suffix('.').unwrap_or(host).rsplit('.').next().unwrap_or_default();
    let hexadecimal = last.strip_prefix("0x").or_else(|| last.strip_prefix("0X"));
    host.starts_with('[')
        || last.bytes().all(|byte| byte.is_ascii_digit())
        || hexadecimal.is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// The special kind of an address by IANA's registries; `None` for the public internet.
fn kind(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(address) => kind_v4(address),
        IpAddr::V6(address) => kind_v6(address),
    }
}

fn kind_v4(address: Ipv4Addr) -> Option<&'static str> {
    match address.octets() {
        [127, ..] => Some("loopback"),
        [169, 254, ..] => Some("link-local"),
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] | [100, 64..=127, ..] => Some("private"),
        [0 | 224.., ..]
        | [192, 0, 0 | 2, _]
        | [192, 88, 99, _]
        | [198, 18 | 19, ..]
        | [198, 51, 100, _]
        | [203, 0, 113, _] => Some("special"),
        _ => None,
    }
}

fn kind_v6(address: Ipv6Addr) -> Option<&'static str> {
    let [.., a, b, c, d] = address.octets();
    let embedded = Ipv4Addr::new(a, b, c, d);
    match address.segments() {
        [0, 0, 0, 0, 0, 0, 0, 1] => Some("loopback"),
        // An IPv4 address in IPv6 notation, and a NAT64 address, by which IPv6-only networks reach an IPv4
        // host.
        [0, 0, 0, 0, 0, 0xffff, ..] => kind_v4(embedded).or(Some("special")),
        [0x64, 0xff9b, 0, 0, 0, 0, ..] => kind_v4(embedded),
        [0xfe80..=0xfebf, ..] => Some("link-local"),
        [0xfc00..=0xfdff | 0xfec0..=0xfeff, ..] => Some("private"),
        // Protocol assignments, tunnels and documentation.
        [0x2001, 0..=0x1ff | 0xdb8, ..] | [0x2002, ..] | [0x3fff, 0..=0xfff, ..] => Some("special"),
        [0x2000..=0x3fff, ..] => None,
        _ => Some("special"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The reason why a URL is refused; empty if it is allowed.
    fn check(reach: Reach, url: &str) -> String {
        let uri: Result<Uri, _> = url.parse();
        uri.map_or("malformed".to_owned(), |uri| reach.check(&uri).err().map_or(String::new(), |why| why.0))
    }

    #[test]
    fn servers_elsewhere_name_public_addresses_only() {
        for (host, expected) in [
            ("as.example", ""),
            ("AS.Example.", ""),
            ("1.example", ""),
            ("127.evil.example", ""),
            ("localhost.example", ""),
            ("0x7f.example", ""),
            ("1.1.1.1", ""),
            ("9.255.255.255", ""),
            ("11.0.0.0", ""),
            ("100.63.255.255", ""),
            ("100.128.0.0", ""),
            ("126.255.255.255", ""),
            ("128.0.0.0", ""),
            ("169.253.255.255", ""),
            ("169.255.0.0", ""),
            ("172.15.255.255", ""),
            ("172.32.0.0", ""),
            ("192.0.1.1", ""),
            ("192.167.255.255", ""),
            ("192.169.0.0", ""),
            ("198.17.255.255", ""),
            ("198.20.0.0", ""),
            ("223.255.255.255", ""),
            ("[2606:4700::1111]", ""),
            ("[2001:200::1]", ""),
            ("[2003::1]", ""),
            ("[3fff:1000::1]", ""),
            ("[64:ff9b::1.1.1.1]", ""),
            ("0.0.0.0", "0.0.0.0 is a special address"),
            ("0.1.2.3", "special"),
            ("10.0.0.1", "10.0.0.1 is a private address"),
            ("10.255.255.255", "private"),
            ("100.64.0.1", "private"),
            ("100.127.255.255", "private"),
            ("127.0.0.1", "127.0.0.1 is a loopback address"),
            ("127.255.255.254", "loopback"),
            ("169.254.169.254", "169.254.169.254 is a link-local address"),
            ("172.16.0.1", "private"),
            ("172.31.255.255", "private"),
            ("192.0.0.1", "special"),
            ("192.0.2.1", "special"),
            ("192.88.99.1", "special"),
            ("192.168.0.1", "private"),
            ("198.18.0.1", "special"),
            ("198.19.255.255", "special"),
            ("198.51.100.1", "special"),
            ("203.0.113.1", "special"),
            ("224.0.0.1", "special"),
            ("240.0.0.1", "special"),
            ("255.255.255.255", "special"),
            ("[::]", "special"),
            ("[::1]", "[::1] is a loopback address"),
            ("[0:0:0:0:0:0:0:1]", "loopback"),
            ("[::127.0.0.1]", "special"),
            ("[::ffff:127.0.0.1]", "loopback"),
            ("[::FFFF:7F00:1]", "loopback"),
            ("[::ffff:10.0.0.1]", "private"),
            ("[::ffff:1.1.1.1]", "special"),
            ("[64:ff9b::127.0.0.1]", "loopback"),
            ("[64:ff9b::a9fe:a9fe]", "link-local"),
            ("[64:ff9b:1::1]", "special"),
            ("[100::1]", "special"),
            ("[2001::1]", "special"),
            ("[2001:2::1]", "special"),
            ("[2001:1ff::1]", "special"),
            ("[2001:db8::1]", "special"),
            ("[2002:7f00:1::]", "special"),
            ("[3fff::1]", "special"),
            ("[3fff:fff::1]", "special"),
            ("[5f00::1]", "special"),
            ("[fc00::1]", "private"),
            ("[fdff::1]", "private"),
            ("[fe80::1]", "link-local"),
            ("[febf::1]", "link-local"),
            ("[fec0::1]", "private"),
            ("[ff02::1]", "special"),
            ("localhost", "localhost is a loopback name"),
            ("LocalHost", "loopback"),
            ("localhost.", "loopback"),
            ("a.b.localhost", "loopback"),
            ("a.LOCALHOST.", "loopback"),
            ("2130706433", "2130706433 is not a host name"),
            ("017700000001", "not a host name"),
            ("0x7f000001", "not a host name"),
            ("0X7F.1", "not a host name"),
            ("127.0.0.0x1", "not a host name"),
            ("0177.0.0.1", "not a host name"),
            ("127.1", "not a host name"),
            ("127.0.0.1.", "not a host name"),
            ("127.0.0.01", "not a host name"),
            ("1.1.1.1.", "not a host name"),
            ("0x", "not a host name"),
            ("[fe80::1%25eth0]", "not a host name"),
            ("[v1.x]", "not a host name"),
            ("%31%32%37.0.0.1", "malformed"),
            ("127。0。0。1", "malformed"),
            ("１２７.0.0.1", "malformed"),
            ("as.example\\@127.0.0.1", "malformed"),
            ("as.example\t", "malformed"),
            ("u:p@as.example", "credentials before it"),
            ("as.example@127.0.0.1", "credentials before it"),
        ] {
            let told = check(Reach::NamedElsewhere, &format!("https://{host}/x"));
            assert!(told.contains(expected) && told.is_empty() == expected.is_empty(), "{host}: {told}");
            assert_eq!(told, check(Reach::NamedElsewhere, &format!("HTTPS://{host}:8443")), "{host}");
        }
    }

    #[test]
    fn plain_http_stays_on_this_machine() {
        let server: IpAddr = [10, 0, 0, 1].into();
        for (url, here, elsewhere) in [
            ("http://localhost:1/", true, false),
            ("http://LOCALHOST/", true, false),
            ("http://127.0.0.1/", true, false),
            ("http://127.9.9.9/", true, false),
            ("http://[::1]/", true, false),
            ("http://[::ffff:127.0.0.1]/", true, false),
            ("https://10.0.0.1/", true, false),
            ("https://as.example/", true, true),
            ("http://127.evil.example/", false, false),
            ("http://127.1/", false, false),
            ("http://localhost./", false, false),
            ("http://x.localhost/", false, false),
            ("http://localhost.example/", false, false),
            ("http://as.example/", false, false),
            ("http://1.1.1.1/", false, false),
            ("http://[::2]/", false, false),
            ("ftp://localhost/", false, false),
            ("javascript://localhost/%0aalert(1)", false, false),
            ("localhost:1", false, false),
            ("/path", false, false),
        ] {
            assert_eq!(check(Reach::NamedHere, url).is_empty(), here, "{url}");
            assert_eq!(check(Reach::NamedElsewhere, url).is_empty(), elsewhere, "{url}");
            assert_eq!(check(Reach::Configured, url), "", "{url}");
        }
        assert_eq!(
            check(Reach::NamedElsewhere, "http://127.evil.example/x"),
            "plain http is for localhost and loopback addresses only, and 127.evil.example is neither"
        );
        assert_eq!(check(Reach::Answered(server), "http://10.0.0.1/mcp"), "");
        assert_ne!(check(Reach::Answered(server), "http://u:p@10.0.0.1/mcp"), "");
    }

    #[test]
    fn servers_are_here_if_their_url_says_so() {
        for (server, here) in [
            ("http://localhost:1/mcp", true),
            ("http://Localhost/mcp", true),
            ("http://127.0.0.2/mcp", true),
            ("https://[::1]:1/mcp", true),
            ("http://127.evil.example/mcp", false),
            ("http://localhost.example/mcp", false),
            ("http://0.0.0.0/mcp", false),
            ("http://192.168.0.1/mcp", false),
            ("https://mcp.example/mcp", false),
        ] {
            let reach = Reach::named_by(&server.parse().unwrap());
            assert_eq!(reach == Reach::NamedHere, here, "{server}: {reach:?}");
        }
    }

    #[test]
    fn all_addresses_of_a_name_count() {
        let check = |reach: Reach, found: &[&str]| {
            let found: Vec<SocketAddr> =
                found.iter().map(|one| SocketAddr::new(one.parse().unwrap(), 0)).collect();
            reach.check_addresses("as.example", &found).err().map_or(String::new(), |why| why.0)
        };
        assert_eq!(check(Reach::NamedElsewhere, &["1.1.1.1", "2606:4700::1111"]), "");
        for mixed in [["1.1.1.1", "::1"], ["::1", "1.1.1.1"]] {
            let told = check(Reach::NamedElsewhere, &mixed);
            assert!(told.starts_with("as.example resolves to ::1, a loopback address, and only"), "{told}");
            assert_eq!(check(Reach::NamedHere, &mixed), "");
            assert_eq!(check(Reach::Configured, &mixed), "");
        }
    }
}

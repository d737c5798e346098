//! `serve --http`: checks what must be right before a port is opened, then opens it.

use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket};

use super::Http;
use super::failure::{Failure, FailureKind};
use crate::config::{Access, mend};
use crate::config::{Secret, Serving, Token};
use crate::edit::file::contents_and_metadata;
use crate::gateway::console::{Door, KeyFile};
use crate::gateway::http::{self, Backend, Rules, Settings};
use crate::replicas::Replicas;
use crate::replicas::valkey::Valkey;

/// The most connections that wait to be accepted.
const BACKLOG: u32 = 4096;

/// A port that is open, and how to serve on it.
pub(super) struct Ready {
    listener: TcpListener,
    /// The settings; a reload of the configuration may change their `rules`.
    pub(super) settings: Settings,
}

impl Ready {
    /// The address that was opened.
    pub(super) fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// The door of a console at this port.
    pub(super) fn door(&self, key: KeyFile) -> io::Result<Door> {
        let Settings { allow_host, rules, .. } = &self.settings;
        Ok(Door::new(self.address()?, allow_host, rules.clone(), key))
    }
}

/// Joins the other replicas, if the file names a store.
pub(super) async fn join(serving: &Serving) -> Result<Option<Arc<Replicas>>, Failure> {
    let Some(address) = &serving.store else { return Ok(None) };
    let unreachable = |reason: &str, hint: &str| {
        let message = format!("cannot use the store at {}: {reason}", address.shown);
        Failure::new(FailureKind::Unreachable, message, hint)
    };
    let store =
        Valkey::connect(address).await.map_err(|refused| unreachable(&refused.reason, refused.hint))?;
    let replicas = Replicas::new(Arc::new(store), &serving.state_keys);
    replicas.begin().await.map_err(|away| unreachable(&away.0, "start the store, or correct `store`"))?;
    Ok(Some(replicas))
}

/// Checks the options and opens the port. Called inside a runtime.
pub(super) fn prepare(address: &str, options: &Http, serving: &Serving) -> Result<Ready, Failure> {
    let usage = |message: String, hint: &str| Failure::usage(message, hint);
    let address = resolve(address)?;
    if let Some(host) = options.allow_host.iter().find(|host| !http::is_host(host)) {
        let message = format!("--allow-host does not accept `{host}`");
        return Err(usage(message, "give a host name or an address, without scheme and path"));
    }
    if let Some(origin) =
        options.allow_origin.iter().find(|origin| !http::is_origin(origin.trim_end_matches('/')))
    {
        let message = format!("--allow-origin does not accept `{origin}`");
        return Err(usage(message, "give an origin such as https://app.example"));
    }
    let drain = Duration::try_from_secs_f64(options.drain).map_err(|_| {
        usage(format!("--drain does not accept {}", options.drain), "give a number of seconds")
    })?;
    let token = options.auth_token_file.as_deref().map(read_token).transpose()?;
    if !address.ip().is_loopback() && token.is_none() && serving.tokens.is_empty() {
        let message = format!("{} can be reached from other machines, so it needs tokens", address.ip());
        let hint = "name a file with --auth-token-file, or add `auth` to the configuration; 127.0.0.1 is for this \
                    machine alone";
        return Err(usage(message, hint));
    }
    let listener = listen(address).map_err(|error| {
        let hint = "choose another port; 0 takes a free one";
        Failure::failed(format!("cannot listen on {address}: {error}"), hint)
    })?;
    let settings = Settings {
        allow_host: options.allow_host.clone(),
        allow_origin: options.allow_origin.clone(),
        drain,
        metrics: options.metrics,
        ..Settings::new(Rules::new(serving, token))
    };
    Ok(Ready { listener, settings })
}

/// Prints the address and serves until `shutdown` resolves.
pub(super) async fn run<B: Backend>(
    backend: Arc<B>,
    ready: Ready,
    out: &mut impl Write,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    writeln!(out, "listening on http://{}/mcp", ready.listener.local_addr()?)?;
    out.flush()?;
    http::serve(backend, ready.listener, ready.settings, shutdown).await
}

/// The address to serve at; a port alone is one of this machine, which nobody else can reach.
fn resolve(address: &str) -> Result<SocketAddr, Failure> {
    if let Ok(port) = address.parse::<u16>() {
        return Ok((Ipv4Addr::LOCALHOST, port).into());
    }
    let wrong =
        |why: String| Failure::usage(format!("`{address}` is not an address{why}"), "try `127.0.0.1:8850`");
    let mut found = address.to_socket_addrs().map_err(|error| match error.kind() {
        io::ErrorKind::InvalidInput => wrong(String::new()),
        _ => wrong(format!(": {error}")),
    })?;
    found.next().ok_or_else(|| wrong(String::new()))
}

pub(super) fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // On Windows this option would let two servers share a port.
    #[cfg(unix)]
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Reads the token file. A file that others can change is refused, since they could let in whom they please.
/// A file that others can read may be how a container platform provides a secret, so that only causes a
/// warning.
fn read_token(path: &Path) -> Result<Token, Failure> {
    let shown = path.display();
    let unreadable = |error: io::Error| {
        let message = format!("cannot read --auth-token-file {shown}: {error}");
        Failure::usage(message, "name a regular file that you may read")
    };
    let (bytes, metadata) = contents_and_metadata(path).map_err(unreadable)?;
    match Access::of_others(&metadata) {
        Access::Write => {
            let message = format!("--auth-token-file {shown} can be written by its group or by others");
            return Err(Failure::usage(message, format!("run `{}`", mend(path))));
        }
        Access::Read => {
            let mend = mend(path);
            tracing::warn!("--auth-token-file {shown} can be read by its group or by others; run `{mend}`");
        }
        Access::None => {}
    }
    let text = str::from_utf8(&bytes).map_err(|_| "it is not UTF-8");
    text.and_then(file_token)
        .map_err(|why| Failure::usage(format!("--auth-token-file {shown}: {why}"), "write one token into it"))
}

/// The token in a file: exactly one, without the white space around it.
fn file_token(text: &str) -> Result<Token, &'static str> {
    let token = text.trim_start_matches('\u{feff}').trim();
    if token.is_empty() {
        return Err("the token is empty");
    }
    if token.contains(|character: char| character.is_whitespace() || character.is_control()) {
        return Err("the file must hold one token and nothing else");
    }
    Ok(Token { name: "--auth-token-file".to_owned(), token: Secret::new(token), scope: None })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::failure::FailureKind;

    fn serving(tokens: &[&str]) -> Serving {
        Serving {
            session_idle_timeout: Duration::from_secs(1),
            max_body_bytes: 1,
            state_keys: Vec::new(),
            store: None,
            tokens: tokens
                .iter()
                .map(|token| Token { name: (*token).to_owned(), token: Secret::new(*token), scope: None })
                .collect(),
        }
    }

    #[tokio::test]
    async fn refuses_what_is_unsafe_or_wrong() {
        let holder = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let taken = holder.local_addr().unwrap().to_string();
        let options = |host: &str, origin: &str, drain| Http {
            allow_host: vec![host.to_owned()],
            allow_origin: vec![origin.to_owned()],
            drain,
            ..Http::default()
        };
        let good = || options("gateway.example", "https://app.example/", 0.5);
        for (address, options, tokens, expected) in [
            ("127.0.0.1:0", good(), &[][..], None),
            ("[::1]:0", good(), &[], None),
            ("0.0.0.0:0", good(), &["secret"], None),
            ("0.0.0.0:0", good(), &[], Some((FailureKind::Usage, "--auth-token-file"))),
            ("[::]:0", good(), &[], Some((FailureKind::Usage, "--auth-token-file"))),
            ("127.0.0.1", good(), &[], Some((FailureKind::Usage, "127.0.0.1:8850"))),
            (&*taken, good(), &[], Some((FailureKind::Failure, "cannot listen on"))),
            (
                "127.0.0.1:0",
                options("a/b", "https://a", 1.0),
                &[],
                Some((FailureKind::Usage, "--allow-host")),
            ),
            ("127.0.0.1:0", options("a", "*", 1.0), &[], Some((FailureKind::Usage, "--allow-origin"))),
            ("127.0.0.1:0", options("a", "https://a", -1.0), &[], Some((FailureKind::Usage, "--drain"))),
        ] {
            let outcome = prepare(address, &options, &serving(tokens));
            let told =
                outcome.err().map(|failure| (failure.kind, format!("{}\n{}", failure.message, failure.hint)));
            let shown = told.as_ref().map(|(kind, text)| (*kind, text.as_str()));
            // A machine without IPv6 cannot listen on such an address; everything else about the address was
            // right.
            if address.starts_with('[') && shown.is_some_and(|(kind, _)| kind == FailureKind::Failure) {
                continue;
            }
            match (shown, expected) {
                (None, None) => {}
                (Some((kind, message)), Some((expected, words))) => {
                    assert_eq!(kind, expected, "{message}");
                    assert!(message.contains(words), "{message}");
                }
                (shown, _) => panic!("{address}: {shown:?}"),
            }
        }
    }

    #[test]
    fn addresses() {
        for (address, expected) in [
            ("8850", Ok("127.0.0.1:8850")),
            ("0", Ok("127.0.0.1:0")),
            ("127.0.0.1:1", Ok("127.0.0.1:1")),
            ("[::1]:1", Ok("[::1]:1")),
            ("65536", Err("`65536` is not an address")),
            ("lan", Err("`lan` is not an address")),
        ] {
            let resolved = resolve(address).map(|address| address.to_string());
            assert_eq!(resolved.as_deref().map_err(|failure| failure.message.as_str()), expected);
        }
    }

    #[tokio::test]
    async fn says_where_it_listens() {
        let ready = prepare("127.0.0.1:0", &Http::default(), &serving(&[])).unwrap();
        let address = ready.listener.local_addr().unwrap();
        let mut out = Vec::new();
        run(http::tests::backend(), ready, &mut out, async {}).await.unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), format!("listening on http://{address}/mcp\n"));
        assert_ne!(address.port(), 0);
    }

    #[test]
    fn a_file_holds_one_token() {
        assert_eq!(file_token("\u{feff}  secret\r\n").unwrap().token.expose(), "secret");
        assert!(file_token(" \n").is_err());
        assert!(file_token("two tokens").is_err());
    }
}

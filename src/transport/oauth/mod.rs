//! Tokens for HTTP upstreams: an OAuth 2.1 client as the MCP specification requires it.
//!
//! An [`Authorizer`] belongs to one MCP server, and the HTTP client asks it for the header of each request.
//! If the server refuses a request, the authorizer finds the authorization server that the server trusts,
//! renews the token, or begins a login that a person completes in a browser. The result is stored and shared
//! with other processes of the same user.
//!
//! ```text
//! refused ──▶ discover ──▶ renew ── renewed ──▶ send again
//!                            │
//!                            └── refused, or a scope is missing ──▶ login (browser) ──▶ send again
//! ```
//!
//! Invariant: a credential goes only to the origin that issued it or that it is for. A token goes to its MCP
//! server and everything else to the authorization server that issued it, each by TLS or within this machine.

mod ask;
mod callback;
mod challenge;
mod discovery;
mod flow;
mod grant;
mod scope;

use std::net::IpAddr;
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::{HeaderMap, HeaderValue, StatusCode, Uri};
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep};

use self::ask::NoToken;
use self::challenge::Challenge;
use self::discovery::Discovered;
use self::flow::{CALLBACK, Flow};
#[cfg(test)]
pub use self::grant::Token;
pub use self::grant::{Grant, KnownLogin, Memory, Method, OauthClient};
use self::scope::Scopes;
use crate::transport::http_client::Authorities;
use crate::transport::http_client::reach::{self, Gate, Lookup, Reach};

/// The time that a person has to log in.
const LOGIN: Duration = Duration::from_secs(600);
/// The time that another process has to renew a token.
const OTHERS: Duration = Duration::from_secs(20);
const BETWEEN_LOOKS: Duration = Duration::from_millis(50);

type AuthorizerTurn = tokio::sync::OwnedMutexGuard<()>;

/// The configuration of logins to one server.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct Settings {
    /// The id of a client that is already registered.
    pub client_id: Option<String>,
    /// The secret of that client.
    pub client_secret: Option<String>,
    /// The URL of our client metadata document, for authorization servers that support those.
    pub client_metadata_url: Option<String>,
    /// The scopes to request, whatever the server suggests.
    pub scope: Option<String>,
    /// The port of the redirect URI.
    pub callback_port: Option<u16>,
}

/// The reason why a refused request cannot be sent again.
#[derive(Debug)]
pub enum Unauthorized {
    /// Nothing can be done, and the server's answer stands.
    Final,
    /// There is no token, for this reason.
    NoToken(String),
}

/// A login that waits for a person.
#[derive(Clone)]
pub struct Login {
    /// The URL at which to log in.
    pub url: String,
    outcome: watch::Receiver<Option<Result<(), String>>>,
}

/// Holds the tokens for one MCP server, or obtains them.
pub struct Authorizer {
    server: Uri,
    settings: Settings,
    memory: Option<Box<dyn Memory>>,
    /// Whether there is a person who could log in.
    attended: bool,
    /// Called after every successful login.
    on_login: Box<dyn Fn() + Send + Sync>,
    lookup: Lookup,
    authorities: Authorities,
    state: Mutex<LoginState>,
    /// Lets one task at a time look for a token.
    turn: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Default)]
struct LoginState {
    grant: Option<Grant>,
    /// The header, and when to renew its token.
    bearer: Option<(HeaderValue, Option<u64>)>,
    pending: Option<Pending>,
    /// The reason why the last login failed.
    last_failure: Option<String>,
    /// The scopes of logins that asked for nothing new, so that they are not repeated for ever.
    in_vain: Vec<Scopes>,
}

/// A login in progress.
struct Pending {
    url: String,
    issuer: String,
    scope: Scopes,
    until: Instant,
    outcome: watch::Receiver<Option<Result<(), String>>>,
    listener: AbortHandle,
}

impl Authorizer {
    /// An authorizer for the server at this URL, which must not hold credentials. Without a person to log in
    /// (`attended`), no login is begun. Whoever is asked for tokens must have a certificate of these authorities. `on_login` is called after every successful login.
    pub fn new(
        server: &str,
        settings: Settings,
        memory: Option<Box<dyn Memory>>,
        attended: bool,
        authorities: Authorities,
        on_login: impl Fn() + Send + Sync + 'static,
    ) -> Option<Arc<Self>> {
        let authorizer = Self {
            server: server.parse().ok().filter(|uri: &Uri| uri.authority().is_some())?,
            settings,
            memory,
            attended,
            on_login: Box::new(on_login),
            lookup: reach::system(),
            authorities,
            state: Mutex::default(),
            turn: Arc::default(),
        };
        authorizer.recall();
        Some(Arc::new(authorizer))
    }

    /// The header for a request, if there is a token. A token that is about to expire is renewed first.
    pub async fn bearer(self: &Arc<Self>) -> Option<HeaderValue> {
        let (header, renew_at) = self.state.lock().bearer.clone()?;
        if renew_at.is_none_or(|at| now() < at) {
            return Some(header);
        }
        let turn = self.turn.clone().lock_owned().await;
        if self.header().as_ref() == Some(&header)
            && let Some(grant) = self.grant()
            && let Err(problem) = self.renew(grant, turn).await.1
        {
            tracing::debug!(
                "{} keeps an old token: {}",
                self.server.host().unwrap_or_default(),
                problem.reason()
            );
            // The server will say when the token has expired.
            if let Some((_, renew_at)) = &mut self.state.lock().bearer {
                *renew_at = None;
            }
        }
        self.header()
    }

    /// Called when the server refused a request that carried this header, with this answer from this address.
    /// `Ok` means that the request may be sent again with the current header.
    pub async fn refused(
        self: &Arc<Self>,
        used: Option<&HeaderValue>,
        status: StatusCode,
        headers: &HeaderMap,
        peer: Option<IpAddr>,
    ) -> Result<(), Unauthorized> {
        let challenge = Challenge::read(headers);
        let lacks_scope = status == StatusCode::FORBIDDEN && challenge.lacks_scope();
        if status != StatusCode::UNAUTHORIZED && !lacks_scope {
            return Err(Unauthorized::Final);
        }
        let mut turn = self.turn.clone().lock_owned().await;
        // Another task or process may have had the same answer and renewed the token already.
        if self.header().as_ref() != used || self.recall() {
            return Ok(());
        }
        let before = self.grant();
        let known = before.as_ref().map(|grant| &*grant.issuer);
        let own =
            peer.map_or_else(|| self.gate(), |peer| Gate { reach: Reach::Answered(peer), ..self.gate() });
        let found = match discovery::discover(&self.server, &challenge, known, &own, &self.gate()).await {
            Ok(Some(found)) => found,
            Ok(None) => return Err(Unauthorized::Final),
            Err(reason) => return Err(Unauthorized::NoToken(format!("it needs a login, but {reason}"))),
        };
        // A token from another authorization server is worth nothing here.
        let same = before.as_ref().filter(|grant| grant.issuer == found.server.issuer);
        if !lacks_scope && let Some(grant) = same {
            match self.renew(grant.clone(), turn).await {
                (_, Ok(())) => return Ok(()),
                (kept, Err(NoToken::Refused(_))) => turn = kept,
                (_, Err(NoToken::Failed(reason))) => return Err(Unauthorized::NoToken(reason)),
            }
        }
        // A pending login may have succeeded in the meantime.
        if self.header().as_ref() != used {
            return Ok(());
        }
        let scope = self.scope(&challenge, &found, same, lacks_scope).map_err(Unauthorized::NoToken)?;
        let login = self.log_in(found, scope, before).await;
        if self.header().as_ref() != used {
            self.state.lock().pending = None;
            return Ok(());
        }
        drop(turn);
        Err(Unauthorized::NoToken(login.unwrap_or_else(|reason| format!("it needs a login, but {reason}"))))
    }

    /// The login that waits for a person, if there is one.
    pub fn login(&self) -> Option<Login> {
        let state = self.state.lock();
        let pending = state.pending.as_ref().filter(|pending| pending.is_open())?;
        Some(Login { url: pending.url.clone(), outcome: pending.outcome.clone() })
    }

    /// The scopes that a login asks for. Scopes granted earlier are kept, and a login that would ask for
    /// nothing new is not begun over and over.
    fn scope(
        &self,
        challenge: &Challenge,
        found: &Discovered,
        same: Option<&Grant>,
        lacks_scope: bool,
    ) -> Result<Scopes, String> {
        let before = same.map(|grant| Scopes::from(&*grant.scope)).unwrap_or_default();
        let scope = Scopes::first(self.settings.scope.as_deref(), challenge.scope.as_ref(), &found.scopes);
        let offline: &[String] = match found.server.refreshes() {
            true => found.server.scopes_supported.as_deref().unwrap_or_default(),
            false => &[],
        };
        let challenged = challenge.scope.clone().unwrap_or_default();
        let scope = before.clone().and(&scope).and(&challenged).and_offline(offline);
        if lacks_scope && before.has(&scope) {
            let granted = same.and_then(|grant| grant.token.as_ref()?.scope.as_deref()).map(Scopes::from);
            let state = &mut *self.state.lock();
            if granted.is_none_or(|granted| granted.has(&challenged)) || state.in_vain.contains(&scope) {
                return Err(format!(
                    "it needs the scope `{challenged}`, which the login was asked for and does not give"
                ));
            }
            state.in_vain.push(scope.clone());
        }
        Ok(scope)
    }

    /// Begins a login, or finds the one in progress. Returns the message for the user, or the reason why
    /// there can be no login.
    async fn log_in(
        self: &Arc<Self>,
        found: Discovered,
        scope: Scopes,
        before: Option<Grant>,
    ) -> Result<String, String> {
        if !self.attended {
            return Err("nobody is here to log in".to_owned());
        }
        let under_way = self.state.lock().pending.as_ref().and_then(|pending| {
            let fits = pending.issuer == found.server.issuer && pending.scope.has(&scope);
            (fits && pending.is_open()).then(|| pending.url.clone())
        });
        let url = match under_way {
            Some(url) => url,
            None => self.begin(found, scope, before).await?,
        };
        let failed = self
            .state
            .lock()
            .last_failure
            .as_ref()
            .map(|reason| format!(" (the last login failed: {reason})"));
        Ok(format!(
            "it needs a login{}; open this in a browser, then try again: {url}",
            failed.unwrap_or_default()
        ))
    }

    async fn begin(
        self: &Arc<Self>,
        found: Discovered,
        scope: Scopes,
        before: Option<Grant>,
    ) -> Result<String, String> {
        let (listener, client) = self.client(&found, before.as_ref()).await?;
        let port = listener.local_addr().map_err(|error| error.to_string())?.port();
        let endpoint = found.server.authorization_endpoint.clone();
        let grant = Grant {
            issuer: found.server.issuer.clone(),
            token_endpoint: found.server.token_endpoint,
            resource: found.resource,
            client,
            scope: scope.to_string(),
            token: None,
        };
        let flow =
            Flow::new(grant, redirect(port), found.server.authorization_response_iss_parameter_supported)?;
        let url = flow.url(&endpoint);
        let (done, outcome) = watch::channel(None);
        let done = Arc::new(done);
        let this = Arc::downgrade(self);
        let finish = move |flow, code| finish(this.clone(), done.clone(), flow, code);
        let listener = tokio::spawn(callback::receive(listener, flow, LOGIN, finish)).abort_handle();
        let until = Instant::now() + LOGIN;
        let issuer = found.server.issuer;
        let pending = Pending { url: url.clone(), issuer, scope, until, outcome, listener };
        self.state.lock().pending = Some(pending);
        Ok(url)
    }

    /// Our identity at this authorization server, and the listener for the browser's redirect. The identity
    /// is the configured one, else a metadata document if the server supports those, else the earlier one,
    /// else a new registration.
    async fn client(
        &self,
        found: &Discovered,
        before: Option<&Grant>,
    ) -> Result<(TcpListener, OauthClient), String> {
        let (server, settings) = (&found.server, &self.settings);
        let own = |id: &String, secret: Option<String>| {
            let supported = server.token_endpoint_auth_methods_supported.as_deref();
            let method = Method::choose(secret.is_some(), supported);
            OauthClient { id: id.clone(), secret, method, registered: None, doubtful: false }
        };
        if let Some(id) = &settings.client_id {
            if let Some(grant) =
                before.filter(|grant| grant.client.id == *id && grant.issuer != server.issuer)
            {
                return Err(format!(
                    "the client of the configuration is one of {}, and now the server names {}; set `oauth` anew",
                    grant.issuer, server.issuer
                ));
            }
            return Ok((self.listen().await?, own(id, settings.client_secret.clone())));
        }
        if let Some(url) =
            settings.client_metadata_url.as_ref().filter(|_| server.client_id_metadata_document_supported)
        {
            return Ok((self.listen().await?, own(url, None)));
        }
        let known = before.filter(|grant| grant.issuer == server.issuer && !grant.client.doubtful);
        if let Some((grant, port)) = known.and_then(|grant| Some((grant, grant.client.registered?)))
            && settings.callback_port.is_none_or(|own| own == port)
            && let Ok(listener) = bind(port).await
        {
            let doubtful = OauthClient { doubtful: true, ..grant.client.clone() };
            self.keep(Grant { client: doubtful, ..grant.clone() });
            return Ok((listener, grant.client.clone()));
        }
        let listener = self.listen().await?;
        let port = listener.local_addr().map_err(|error| error.to_string())?.port();
        let Some(endpoint) = &server.registration_endpoint else {
            return Err(format!(
                "its authorization server {} registers no clients by itself; register one there for {} and set `oauth` to its `clientId`",
                server.issuer,
                redirect(port)
            ));
        };
        let client = ask::register(&self.gate(), server, endpoint, &redirect(port), port).await?;
        Ok((listener, client))
    }

    async fn listen(&self) -> Result<TcpListener, String> {
        let port = self.settings.callback_port.unwrap_or(0);
        bind(port).await.map_err(|error| format!("port {port} for its answer cannot be had: {error}"))
    }

    /// Renews the token in a task of its own, which goes on even if nobody waits for it: many servers accept
    /// a refresh token only once, and a lost answer would contain the next one.
    async fn renew(
        self: &Arc<Self>,
        grant: Grant,
        turn: AuthorizerTurn,
    ) -> (AuthorizerTurn, Result<(), NoToken>) {
        let this = self.clone();
        let renewing = tokio::spawn(async move {
            let renewed = this.renew_here(&grant).await;
            (turn, renewed)
        });
        match renewing.await {
            Ok(renewed) => renewed,
            Err(_) => {
                (self.turn.clone().lock_owned().await, Err(NoToken::Failed("the gateway is ending".into())))
            }
        }
    }

    async fn renew_here(&self, grant: &Grant) -> Result<(), NoToken> {
        let refresh = grant.token.as_ref().and_then(|token| token.refresh.as_deref());
        let Some(refresh) = refresh else { return Err(NoToken::Refused("there is no refresh token".into())) };
        let _lock = self.lock().await;
        // Another process may have renewed the token in the meantime.
        if self.recall() {
            return Ok(());
        }
        let token = ask::refresh(&self.gate(), grant, refresh).await?;
        self.keep(Grant { token: Some(token), ..grant.clone() });
        Ok(())
    }

    /// Keeps other processes from renewing. A process that hangs does not block us for ever.
    async fn lock(&self) -> Option<Box<dyn std::any::Any + Send>> {
        let memory = self.memory.as_ref()?;
        let until = Instant::now() + OTHERS;
        loop {
            match memory.lock() {
                None if Instant::now() < until => sleep(BETWEEN_LOOKS).await,
                lock => return lock,
            }
        }
    }

    /// Loads the stored login. Returns whether it has another token than ours.
    fn recall(&self) -> bool {
        let Some(grant) = self.memory.as_ref().and_then(|memory| memory.load()) else { return false };
        let configured = self.settings.client_id.as_ref();
        if configured.is_some_and(|id| *id != grant.client.id) {
            return false;
        }
        let mut state = self.state.lock();
        let other = grant.token.is_some()
            && state.grant.as_ref().and_then(|own| own.token.as_ref()) != grant.token.as_ref();
        if other || state.grant.is_none() {
            state.set(grant);
        }
        other
    }

    /// Takes over a login, and stores it.
    fn keep(&self, grant: Grant) {
        if let Some(memory) = &self.memory
            && let Err(error) = memory.save(&grant)
        {
            tracing::warn!(
                "the login to {} cannot be remembered: {error}",
                self.server.host().unwrap_or_default()
            );
        }
        self.state.lock().set(grant);
    }

    /// The gate for everything that the server names.
    fn gate(&self) -> Gate {
        Gate {
            reach: Reach::named_by(&self.server),
            lookup: self.lookup.clone(),
            authorities: self.authorities.clone(),
        }
    }

    fn grant(&self) -> Option<Grant> {
        self.state.lock().grant.clone()
    }

    fn header(&self) -> Option<HeaderValue> {
        self.state.lock().bearer.as_ref().map(|(header, _)| header.clone())
    }
}

/// Finishes a login whose answer has come.
async fn finish(
    authorizer: Weak<Authorizer>,
    done: Arc<watch::Sender<Option<Result<(), String>>>>,
    flow: Flow,
    code: Result<String, String>,
) -> Result<(), String> {
    let Some(authorizer) = authorizer.upgrade() else { return Err("the gateway has ended".to_owned()) };
    let token = match code {
        Ok(code) => {
            let gate = authorizer.gate();
            let token = ask::exchange(&gate, &flow.grant, &code, &flow.verifier, &flow.redirect).await;
            token.map_err(NoToken::reason)
        }
        Err(reason) => Err(reason),
    };
    let outcome = match token {
        Ok(token) => {
            authorizer.keep(Grant { token: Some(token), ..flow.grant });
            authorizer.state.lock().last_failure = None;
            Ok(())
        }
        Err(reason) => {
            tracing::warn!("the login to {} failed: {reason}", authorizer.server.host().unwrap_or_default());
            authorizer.state.lock().last_failure = Some(reason.clone());
            Err(reason)
        }
    };
    done.send_replace(Some(outcome.clone()));
    if outcome.is_ok() {
        (authorizer.on_login)();
    }
    outcome
}

impl LoginState {
    fn set(&mut self, grant: Grant) {
        self.bearer = grant.token.as_ref().and_then(|token| {
            let mut header: HeaderValue = format!("Bearer {}", token.access).parse().ok()?;
            header.set_sensitive(true);
            Some((header, token.renew_at.filter(|_| token.refresh.is_some())))
        });
        self.grant = Some(grant);
    }
}

impl Pending {
    /// Whether a person can still complete the login.
    fn is_open(&self) -> bool {
        self.outcome.borrow().is_none() && Instant::now() < self.until
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        // An answered login still shows its last page.
        if self.outcome.borrow().is_none() {
            self.listener.abort();
        }
    }
}

impl Login {
    /// Waits until somebody has logged in, or the time is up.
    pub async fn done(mut self) -> Result<(), String> {
        let outcome = tokio::time::timeout(LOGIN, self.outcome.wait_for(Option::is_some)).await;
        match outcome {
            Ok(Ok(outcome)) => outcome.clone().expect("waited for"),
            _ => Err("nobody has logged in".to_owned()),
        }
    }
}

async fn bind(port: u16) -> std::io::Result<TcpListener> {
    TcpListener::bind(("127.0.0.1", port)).await
}

/// The redirect URI. It uses the address, because a name can resolve elsewhere (RFC 8252).
fn redirect(port: u16) -> String {
    format!("http://127.0.0.1:{port}{CALLBACK}")
}

/// The Unix time in seconds.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use discovery::ServerMetadata;

    /// A store with one login.
    struct Known(Grant);

    impl Memory for Known {
        fn load(&self) -> Option<Grant> {
            Some(self.0.clone())
        }

        fn save(&self, _: &Grant) -> std::io::Result<()> {
            Ok(())
        }

        fn lock(&self) -> Option<Box<dyn std::any::Any + Send>> {
            Some(Box::new(()))
        }
    }

    /// Every kind of request to an authorization server is checked, even if its URL was learnt long ago.
    #[tokio::test]
    async fn every_request_goes_through_the_gate() {
        let trap = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        trap.set_nonblocking(true).unwrap();
        let endpoint = format!("http://{}/x", trap.local_addr().unwrap());
        let client = OauthClient {
            id: "c".into(),
            secret: None,
            method: Method::None,
            registered: None,
            doubtful: false,
        };
        let token = Token { access: "a".into(), refresh: Some("r".into()), renew_at: Some(0), scope: None };
        let grant = Grant {
            issuer: "https://as.example".into(),
            token_endpoint: endpoint.clone(),
            resource: "https://mcp.example/mcp".into(),
            client,
            scope: String::new(),
            token: Some(token),
        };
        let memory = Some(Box::new(Known(grant.clone())) as Box<dyn Memory>);
        let authorizer = Authorizer::new(
            "https://mcp.example/mcp",
            Settings::default(),
            memory,
            true,
            Authorities::default(),
            || (),
        )
        .unwrap();

        let NoToken::Failed(renewal) = authorizer.renew_here(&grant).await.unwrap_err() else { panic!() };
        let server = ServerMetadata { registration_endpoint: Some(endpoint), ..ServerMetadata::default() };
        let found = Discovered { server, resource: String::new(), scopes: Vec::new() };
        let registration = authorizer.client(&found, None).await.err().unwrap();
        let flow = Flow::new(grant, redirect(1), false).unwrap();
        let done = Arc::new(watch::channel(None).0);
        let exchange = finish(Arc::downgrade(&authorizer), done, flow, Ok("code".into())).await.unwrap_err();
        for failure in [renewal, registration, exchange] {
            assert!(failure.contains("127.0.0.1 is a loopback address"), "{failure}");
        }
        assert!(trap.accept().is_err(), "it was connected to");
    }
}

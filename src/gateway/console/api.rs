//! What the pages ask for: the routes, their answers, and the headers that everything below `/console` has.
//!
//! Invariant: the order of the checks is that of MCP over HTTP: 403, 401, 404/405, 415, 413, 400.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::spawn_blocking;

use super::super::http::{Annex, AnnexAnswer, AnnexBody, is_json, read_body};
use super::door::Pass;
use super::premises::ServerEntry;
use super::stream::TabStream;
use super::{Console, files, trial};
use crate::core::upstream::by_hand;
use crate::events::Fact;
use crate::face::ServerPlace;
use crate::text::percent::decode_strictly;

/// Where everything is.
const ROOT: &str = "/console";
/// The longest request.
const LONGEST_BODY: usize = 16 * 1024 * 1024;
/// The longest pause inside a request.
const SILENCE: Duration = Duration::from_secs(30);
/// How many tools a page gets at once.
const TOOLS_AT_ONCE: usize = 200;

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
    img-src 'self' data: blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
    require-trusted-types-for 'script'";

/// The headers of everything below [`ROOT`].
const HEADERS: [(HeaderName, &str); 4] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// Why a request gets no answer.
type ApiRefusal = (StatusCode, String);

/// What a page wants of one server.
#[derive(Deserialize)]
struct ServerOrder {
    id: String,
}

/// A call that a page wants.
#[derive(Deserialize)]
struct WantedCall<'a> {
    id: String,
    #[serde(borrow)]
    arguments: &'a RawValue,
}

impl Annex for Arc<Console> {
    fn owns(&self, path: &str) -> bool {
        path.strip_prefix(ROOT).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    fn respond<'a>(&'a self, request: Request<&'a mut Incoming>) -> AnnexAnswer<'a> {
        Box::pin(async move {
            let is_api = request.uri().path().starts_with("/console/api");
            let mut answer = match self.answer(request).await {
                Ok(answer) => answer,
                Err((status, words)) => refusal(status, &words),
            };
            let headers = answer.headers_mut();
            for (name, value) in HEADERS {
                headers.insert(name, HeaderValue::from_static(value));
            }
            let keep = if is_api { "no-store" } else { "no-cache" };
            headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(keep));
            answer
        })
    }

    fn end(&self) {
        Console::end(self);
    }
}

impl Console {
    /// Serves one connection, on which there is nothing but the console.
    pub async fn serve<C>(self: Arc<Self>, connection: C)
    where
        C: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let service = service_fn(|request: Request<Incoming>| {
            let console = self.clone();
            async move {
                let (head, mut body) = request.into_parts();
                let request = Request::from_parts(head, &mut body);
                let answer = match console.owns(request.uri().path()) {
                    true => console.respond(request).await,
                    false => refusal(StatusCode::NOT_FOUND, "nothing is served at this path; try /console"),
                };
                Ok::<_, Infallible>(answer)
            }
        });
        let mut builder = http1::Builder::new();
        builder.timer(TokioTimer::new()).header_read_timeout(SILENCE);
        let _ = builder.serve_connection(TokioIo::new(connection), service).await;
    }

    async fn answer(
        self: &Arc<Self>,
        request: Request<&mut Incoming>,
    ) -> Result<Response<AnnexBody>, ApiRefusal> {
        let plain = |(status, words): (StatusCode, &str)| (status, words.to_owned());
        self.door.check_host(request.uri(), request.headers()).map_err(plain)?;
        let path = request.uri().path().strip_prefix(ROOT).unwrap_or_default().to_owned();
        if let Some(path) = path.strip_prefix("/api") {
            self.door.check_origin(request.headers()).map_err(plain)?;
            let pass = self.door.pass(request.headers());
            let pass =
                pass.ok_or_else(|| (StatusCode::UNAUTHORIZED, "a key or token is needed".to_owned()))?;
            return self.api(path, request, pass).await;
        }
        let file = files::find(&path).ok_or_else(nothing_here)?;
        match *request.method() {
            Method::GET | Method::HEAD => Ok(answer(file.media, Bytes::from_static(file.text.as_bytes()))),
            _ => Err((StatusCode::METHOD_NOT_ALLOWED, "allowed here: GET, HEAD".to_owned())),
        }
    }

    async fn api(
        self: &Arc<Self>,
        path: &str,
        request: Request<&mut Incoming>,
        pass: Pass,
    ) -> Result<Response<AnnexBody>, ApiRefusal> {
        let (head, body) = request.into_parts();
        let query = Parameters(head.uri.query().unwrap_or_default());
        let changes = matches!(path, "/restart" | "/stop" | "/call");
        match (&head.method, changes) {
            (&Method::GET, false) | (&Method::POST, true) => {}
            (_, true) => return Err((StatusCode::METHOD_NOT_ALLOWED, "allowed here: POST".to_owned())),
            (_, false) => return Err((StatusCode::METHOD_NOT_ALLOWED, "allowed here: GET".to_owned())),
        }
        let found = match path {
            "/events" => return Ok(events(TabStream::new(self.clone(), pass, head.headers))),
            "/server" => self.server(&query.get("id"), &pass)?,
            "/tools" => self.tools(query, pass).await?,
            "/tool" => self.tool(&query.get("id"), &pass).await?,
            "/kept" => self.kept(&query.get("call"), &pass)?,
            "/restart" | "/stop" => {
                if pass.groups.is_some() {
                    return Err((
                        StatusCode::FORBIDDEN,
                        "this token cannot start or stop servers".to_owned(),
                    ));
                }
                let order: ServerOrder = parsed(&read(&head.headers, body).await?)?;
                self.order(path, &order.id, &pass)?
            }
            "/call" => {
                let body = read(&head.headers, body).await?;
                let wanted: WantedCall<'_> = parsed(&body)?;
                if !wanted.arguments.get().starts_with('{') {
                    return Err((StatusCode::BAD_REQUEST, "the arguments must be an object".to_owned()));
                }
                self.call(&wanted, &pass).await?
            }
            _ => return Err(nothing_here()),
        };
        Ok(answer("application/json", found.to_string()))
    }

    fn entry(&self, id: &str, pass: &Pass) -> Result<ServerEntry, ApiRefusal> {
        let entries = self.servers(&self.houses(), pass);
        let found = entries.into_iter().find(|entry| entry.id == id);
        found.ok_or_else(|| (StatusCode::NOT_FOUND, "there is no such server any more".to_owned()))
    }

    fn server(self: &Arc<Self>, id: &str, pass: &Pass) -> Result<Value, ApiRefusal> {
        let entry = self.entry(id, pass)?;
        Ok(self.with_surroundings(&self.houses(), pass, |around| entry.details(around)))
    }

    fn order(&self, path: &str, id: &str, pass: &Pass) -> Result<Value, ApiRefusal> {
        if !self.live {
            return Err((StatusCode::NOT_FOUND, "no gateway of this process runs the server".to_owned()));
        }
        let entry = self.entry(id, pass)?;
        match path {
            "/stop" => by_hand::stop(&entry.upstream),
            _ => by_hand::restart(&entry.upstream)
                .map_err(|error| (StatusCode::CONFLICT, error.to_string()))?,
        }
        Ok(json!({}))
    }

    /// A part of the list of tools, or what fits some words.
    async fn tools(self: &Arc<Self>, query: Parameters<'_>, pass: Pass) -> Result<Value, ApiRefusal> {
        let (words, from) = (query.get("query"), query.get("from").parse().unwrap_or(0usize));
        let (files, shows_server) = (self.files(&self.houses(), &pass), !self.is_toolman());
        let searched = spawn_blocking(move || {
            let (mut total, mut version, mut tools) = (0, 0, Vec::new());
            for (house, survey, file) in files {
                let id = |(group, server): &ServerPlace, tool: &str| {
                    json!([house, group, server, tool]).to_string()
                };
                let (skipped, most) = (from.saturating_sub(total), TOOLS_AT_ONCE.saturating_sub(tools.len()));
                let mut survey = survey.lock();
                let mut found = survey.rows(&file, &words, (skipped, most), id, shows_server);
                version += survey.version();
                total += found["total"].as_u64().unwrap_or(0) as usize;
                tools.extend(found["tools"].as_array_mut().into_iter().flat_map(std::mem::take));
            }
            json!({"version": version, "total": total, "tools": tools})
        });
        searched.await.map_err(|_| (StatusCode::INTERNAL_SERVER_ERROR, "the search was given up".to_owned()))
    }

    /// The definition of a tool, as it came.
    async fn tool(self: &Arc<Self>, id: &str, pass: &Pass) -> Result<Value, ApiRefusal> {
        let (house, place, name) = tool_id(id)?;
        let (_, survey, file) = self.file(house, pass)?;
        let found = spawn_blocking(move || {
            let mut survey = survey.lock();
            survey.look(&file);
            let definition = survey.tool(&place, &name)?.item.raw().to_owned();
            let secrets = file.gateway.engine.settings().secrets.clone();
            Some(json!({"definition": secrets.redact(&definition)}))
        });
        found.await.ok().flatten().ok_or_else(no_such_tool)
    }

    fn file(&self, house: usize, pass: &Pass) -> Result<super::HouseFile, ApiRefusal> {
        let mut files = self.files(&self.houses(), pass).into_iter();
        files.find(|(number, ..)| *number == house).ok_or_else(no_such_tool)
    }

    /// Calls a tool that is on the list.
    async fn call(self: &Arc<Self>, wanted: &WantedCall<'_>, pass: &Pass) -> Result<Value, ApiRefusal> {
        let (house, place, name) = tool_id(&wanted.id)?;
        let houses = self.houses();
        let (_, survey, file) = self.file(house, pass)?;
        let station =
            houses.get(house).and_then(|house| self.station(house, pass)).ok_or_else(no_such_tool)?;
        let (gateway, face, workspace) = (file.gateway.clone(), file.face.clone(), file.workspace.clone());
        let (of_tool, wanted_tool) = (place.clone(), name.clone());
        let is_there = spawn_blocking(move || {
            let mut survey = survey.lock();
            survey.look(&file);
            survey.tool(&of_tool, &wanted_tool).is_some()
        });
        let servers = face.servers();
        let declared = servers.iter().find(|server| (server.group, server.key) == (&*place.0, &*place.1));
        let upstream = declared.map(|declared| gateway.upstream(&workspace, declared));
        drop(servers);
        match (is_there.await, upstream) {
            (Ok(true), Some(upstream)) => {
                let asked = (&*name, wanted.arguments.get());
                Ok(trial::call(&gateway, &station.session, &upstream, asked, self.unused).await)
            }
            _ => Err(no_such_tool()),
        }
    }

    /// What is kept of a call's arguments and result.
    fn kept(&self, number: &str, pass: &Pass) -> Result<Value, ApiRefusal> {
        let call = number.parse().ok().and_then(|number| self.record.lock().call(number, pass));
        let happening =
            call.ok_or_else(|| (StatusCode::NOT_FOUND, "this call is no longer kept".to_owned()))?;
        let Fact::Call(call) = &happening.fact else { return Err(nothing_here()) };
        Ok(json!({"arguments": call.arguments, "result": call.result}))
    }
}

/// The house, the server and the name in what a page calls a tool.
fn tool_id(id: &str) -> Result<(usize, ServerPlace, String), ApiRefusal> {
    let (house, group, server, tool): (usize, String, String, String) =
        serde_json::from_str(id).map_err(|_| no_such_tool())?;
    Ok((house, (group, server), tool))
}

fn no_such_tool() -> ApiRefusal {
    (StatusCode::NOT_FOUND, "there is no such tool any more".to_owned())
}

fn nothing_here() -> ApiRefusal {
    (StatusCode::NOT_FOUND, "nothing is served at this path; try /console".to_owned())
}

/// Reads what is posted. It must be called JSON, which no form of another page can do.
async fn read(headers: &HeaderMap, body: &mut Incoming) -> Result<Bytes, ApiRefusal> {
    if !is_json(headers) {
        return Err((StatusCode::UNSUPPORTED_MEDIA_TYPE, "send application/json".to_owned()));
    }
    let read = read_body(body, LONGEST_BODY, SILENCE).await;
    read.map_err(|status| (status, "the request cannot be read".to_owned()))
}

fn parsed<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, ApiRefusal> {
    serde_json::from_slice(body)
        .map_err(|error| (StatusCode::BAD_REQUEST, format!("this is not understood: {error}")))
}

/// The parameters after the `?` of an address.
#[derive(Clone, Copy)]
struct Parameters<'a>(&'a str);

impl Parameters<'_> {
    /// The value of a parameter; empty if it is missing or malformed.
    fn get(self, name: &str) -> String {
        let pairs = self.0.split('&').filter_map(|pair| pair.split_once('='));
        let value = pairs.into_iter().find(|(own, _)| *own == name).map(|(_, value)| value);
        value.and_then(decode_strictly).map(|text| text.into_owned()).unwrap_or_default()
    }
}

fn answer(media: &'static str, body: impl Into<Bytes>) -> Response<AnnexBody> {
    let mut answer = Response::new(Box::pin(Full::new(body.into())) as AnnexBody);
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
    answer
}

fn events(stream: TabStream) -> Response<AnnexBody> {
    let mut answer = Response::new(Box::pin(stream) as Pin<Box<_>>);
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    answer
}

fn refusal(status: StatusCode, words: &str) -> Response<AnnexBody> {
    let mut answer = answer("application/json", json!({"error": words}).to_string());
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    match status {
        StatusCode::UNAUTHORIZED => {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        StatusCode::METHOD_NOT_ALLOWED => {
            let allowed = words.rsplit(": ").next().unwrap_or_default();
            headers.extend(HeaderValue::from_str(allowed).ok().map(|allowed| (header::ALLOW, allowed)));
        }
        _ => {}
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_decoded() {
        let query = Parameters("id=%5B0%2C%22d%20v%22%5D&query=&broken=%zz");
        assert_eq!(query.get("id"), "[0,\"d v\"]");
        for name in ["query", "broken", "missing"] {
            assert_eq!(query.get(name), "", "{name}");
        }
    }

    #[test]
    fn the_policy_allows_what_pages_need_and_nothing_else() {
        let parts: Vec<_> = POLICY.split("; ").collect();
        assert_eq!(
            parts,
            [
                "default-src 'none'",
                "script-src 'self'",
                "style-src 'self'",
                "connect-src 'self'",
                "img-src 'self' data: blob:",
                "base-uri 'none'",
                "form-action 'none'",
                "frame-ancestors 'none'",
                "require-trusted-types-for 'script'",
            ]
        );
        assert!(!POLICY.contains("unsafe"));
    }
}

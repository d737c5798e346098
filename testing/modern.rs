//! What the modern era adds: metadata of requests, completed results, tags of subscriptions.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;

const VERSION: &str = "2026-07-28";

/// The eras that the server speaks.
#[derive(Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Era {
    #[default]
    Legacy,
    Modern,
    Both,
}

impl std::str::FromStr for Era {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "legacy" => Ok(Self::Legacy),
            "modern" => Ok(Self::Modern),
            "both" => Ok(Self::Both),
            _ => Err("legacy, modern or both expected".to_owned()),
        }
    }
}

#[derive(Deserialize, Default)]
struct Params {
    #[serde(rename = "_meta", default)]
    meta: Option<Meta>,
}

#[derive(Deserialize, Default)]
struct Meta {
    #[serde(rename = "io.modelcontextprotocol/protocolVersion")]
    version: Option<String>,
    #[serde(rename = "io.modelcontextprotocol/clientCapabilities")]
    capabilities: Option<BTreeMap<String, Box<RawValue>>>,
}

/// Whether a request is of the modern era; `Err` is the error object for one that is not as it must be.
pub(crate) fn is_modern(era: Era, params: Option<&RawValue>) -> Result<bool, String> {
    let params = params.and_then(|params| serde_json::from_str::<Params>(params.get()).ok());
    let meta = params.unwrap_or_default().meta.unwrap_or_default();
    match (era, meta.version.as_deref(), meta.capabilities) {
        (Era::Legacy, ..) | (Era::Both, None, None) => Ok(false),
        (_, Some(VERSION), Some(_)) => Ok(true),
        (_, Some(version), _) if version != VERSION => Err(format!(
            r#"{{"code":-32022,"message":"Unsupported protocol version","data":{{"supported":["{VERSION}"],"requested":"{version}"}}}}"#
        )),
        _ => Err(r#"{"code":-32602,"message":"_meta lacks what every request needs"}"#.to_owned()),
    }
}

/// Whether the client can be asked this.
pub(crate) fn can(params: Option<&RawValue>, method: &str) -> bool {
    let params = params.and_then(|params| serde_json::from_str::<Params>(params.get()).ok());
    let capabilities = params.unwrap_or_default().meta.unwrap_or_default().capabilities.unwrap_or_default();
    method.split('/').next().is_some_and(|capability| capabilities.contains_key(capability))
}

/// Whether the client takes a task for an answer.
pub(crate) fn can_wait(params: Option<&RawValue>) -> bool {
    let params = params.and_then(|params| serde_json::from_str::<Params>(params.get()).ok());
    let capabilities = params.unwrap_or_default().meta.unwrap_or_default().capabilities.unwrap_or_default();
    capabilities.get("extensions").is_some_and(|known| known.get().contains("io.modelcontextprotocol/tasks"))
}

/// A result with what the era wants in it, where it is not there yet.
pub(crate) fn completed(method: &str, result: &str) -> String {
    let has: BTreeMap<String, Box<RawValue>> = serde_json::from_str(result).unwrap_or_default();
    let mut added = String::new();
    let mut add = |key: &str, value: &str| {
        if !has.contains_key(key) {
            added.push_str(&format!(r#""{key}":{value},"#));
        }
    };
    add("resultType", r#""complete""#);
    let info = r#"{"io.modelcontextprotocol/serverInfo":{"name":"fake-upstream","version":"1.0.0"}}"#;
    add("_meta", info);
    if method.ends_with("/list") || matches!(method, "server/discover" | "resources/read") {
        add("ttlMs", "60000");
        add("cacheScope", r#""public""#);
    }
    if has.is_empty() {
        added.pop();
    }
    result.replacen('{', &format!("{{{added}"), 1)
}

/// A notification with the tag of a subscription.
pub(crate) fn tagged(method: &str, params: Option<&str>, id: &str) -> String {
    let tag = format!(r#""_meta":{{"io.modelcontextprotocol/subscriptionId":{id}}}"#);
    let params = match params {
        None | Some("{}") => format!("{{{tag}}}"),
        Some(params) => params.replacen('{', &format!("{{{tag},"), 1),
    };
    format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":{params}}}"#)
}

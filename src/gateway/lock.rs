//! Asks servers what they offer now, whatever is remembered of them. The verb `lock` writes that down.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Gateway;
use crate::catalog::{Kind, Sent};
use crate::config::{Redactor, ToolFilter};
use crate::core::start_error::StartError;
use crate::lock::LockPlace;
use crate::transport::oauth::Login;

/// A server that was asked.
pub struct Asked {
    /// The server.
    pub place: LockPlace,
    /// The server's name for people.
    pub label: String,
    /// The definitions of its tools and prompts as they were sent, by name, or why it could not be asked.
    pub outcome: Result<[BTreeMap<String, String>; 2], StartError>,
    /// Values that must not be written anywhere.
    pub secrets: Redactor,
    /// The login that the server waits for.
    pub login: Option<(String, Login)>,
}

/// Starts the wanted servers at once and asks each what it offers, after its filter. They run until
/// [`Gateway::end`].
pub async fn ask(gateway: &Arc<Gateway>, wanted: &dyn Fn(&LockPlace) -> bool) -> Vec<Asked> {
    let face = gateway.faces.whole();
    let workspace = gateway.engine.workspace("lock", 0, face.clone(), None, None);
    let servers = gateway.upstreams_by_hand(&*face, &workspace).into_iter();
    let places = servers.map(|(server, upstream)| (LockPlace::new(&upstream.group, &server), upstream));
    let wanted: Vec<_> = places.filter(|(place, _)| wanted(place)).collect();
    let starts: Vec<_> = wanted.iter().map(|(_, upstream)| upstream.start()).collect();
    let mut asked = Vec::new();
    for ((place, upstream), start) in wanted.into_iter().zip(starts) {
        let up = match start {
            Ok(phase) => upstream.settled(phase).await.map(drop),
            Err(refused) => Err(refused),
        };
        asked.push(Asked {
            place,
            label: upstream.to_string(),
            outcome: up.map(|()| definitions(&upstream.sent(), &upstream.spec().filter)),
            secrets: gateway.engine.secrets_of(&upstream),
            login: upstream.login().map(|login| (upstream.to_string(), login)),
        });
    }
    asked
}

/// The tools and prompts by name. Of several with one name the first counts.
fn definitions(sent: &Sent, filter: &ToolFilter) -> [BTreeMap<String, String>; 2] {
    [Kind::Tool, Kind::Prompt].map(|kind| {
        let mut all = BTreeMap::new();
        let exist = sent.definitions(kind).filter(|(name, _)| kind != Kind::Tool || filter.allows(name));
        for (name, text) in exist {
            all.entry(name.to_string()).or_insert_with(|| text.to_owned());
        }
        all
    })
}

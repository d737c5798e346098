//! How a session stands, so that it can go on elsewhere: its handshake, what it has open or switched, its
//! subscriptions and its log level. The daemon gives it to the client's end after each change, and takes it
//! back when that end returns after the daemon's death.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::session::ClientSession;
use crate::core::aside::record_line;
use crate::json::quote;

/// How a session stands.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Record {
    /// The parameters of `initialize`, raw; `None` before the handshake.
    pub hello: Option<String>,
    /// The parameters of `logging/setLevel`, raw.
    pub level: Option<String>,
    /// The open groups, in the order of opening.
    pub open: Vec<String>,
    /// What was switched by hand: tools, and resources with templates, by full name.
    pub switched: [BTreeMap<String, bool>; 2],
    /// The URIs that the client subscribed to.
    pub subscriptions: Vec<String>,
}

impl Record {
    /// How this session stands now.
    pub(super) fn of(session: &ClientSession) -> Self {
        let hello = session.hello().map(|hello| {
            format!(
                "{{\"protocolVersion\":\"{}\",\"capabilities\":{},\"clientInfo\":{{\"name\":{},\"version\":{}}}}}",
                hello.version.as_str(),
                hello.capabilities,
                quote(&hello.name),
                quote(&hello.client_version)
            )
        });
        let (open, switched) = session.workspace.read(|view| {
            let open = view.opened().iter().map(|group| group.to_string()).collect();
            let switched = view.switched.each_ref();
            let switched =
                switched.map(|names| names.iter().map(|(name, on)| (name.to_string(), *on)).collect());
            (open, switched)
        });
        Self {
            hello,
            level: session.log_level(),
            open,
            switched,
            subscriptions: session.subscriptions.uris(),
        }
    }

    /// The record as a line between the two ends of a session, without the line break.
    pub(super) fn to_line(&self) -> Vec<u8> {
        record_line(&serde_json::to_string(self).expect("texts and numbers can be written"))
    }

    /// Reads a record; `None` if the text is none.
    pub fn read(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::aside::FromDaemon;

    #[test]
    fn a_record_comes_back_as_it_was_and_an_older_one_can_be_read() {
        let record = Record {
            hello: Some(r#"{"protocolVersion":"2025-06-18"}"#.into()),
            level: Some(r#"{"level":"debug"}"#.into()),
            open: vec!["dev".into(), "with \"quotes\"\n".into()],
            switched: [BTreeMap::from([("a_b".to_owned(), true)]), BTreeMap::new()],
            subscriptions: vec!["file:///x".into()],
        };
        let line = record.to_line();
        assert!(!line.contains(&b'\n'), "it is one line");
        let FromDaemon::Record(text) = FromDaemon::read(&line) else { panic!("it is no record") };
        assert_eq!(Record::read(text), Some(record));
        assert_eq!(Record::read("{}"), Some(Record::default()));
        assert_eq!(Record::read("bye"), None);
    }
}

//! What an upstream said of itself, as it was last heard: its greeting, how long its lists may be kept, and what its tools
//! want in headers. The lifecycle writes it, every call reads it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use crate::catalog::{Item, Kind};
use crate::core::modern::Cache;
use crate::core::upstream::Upstream;
use crate::json::Scanner;
use crate::protocol::era::{ServerHello, TaskSupport, Version};
use crate::protocol::tool_headers::{self, ToolHeaders};

/// What an upstream said of itself.
pub struct Profile {
    hello: Mutex<Option<ServerHello>>,
    /// The version in it, as a place in the list of versions: every call asks for it.
    version: AtomicU8,
    mute: AtomicBool,
    /// How long its lists may be kept, by kind; a legacy upstream's may not.
    hints: Mutex<[Cache; 4]>,
    /// Where the HTTP client looks up which parameters it mirrors into headers.
    mirrored: OnceLock<Arc<ToolHeaders>>,
}

impl Default for Profile {
    fn default() -> Self {
        Self {
            hello: Mutex::default(),
            version: AtomicU8::new(Version::LATEST_LEGACY as u8),
            mute: AtomicBool::new(false),
            hints: Mutex::default(),
            mirrored: OnceLock::new(),
        }
    }
}

impl Profile {
    /// Notes its greeting.
    pub(in crate::core) fn greeted(&self, hello: ServerHello) {
        self.version.store(hello.version as u8, Ordering::Relaxed);
        *self.hello.lock() = Some(hello);
    }

    /// Whether it has said what it speaks.
    pub(in crate::core) fn is_greeted(&self) -> bool {
        self.hello.lock().is_some()
    }

    /// Whether it declared this capability.
    pub(super) fn can(&self, capability: &str) -> bool {
        self.hello.lock().as_ref().is_some_and(|hello| hello.can(capability))
    }

    /// The version that it speaks.
    pub(super) fn version(&self) -> Version {
        Version::ALL[usize::from(self.version.load(Ordering::Relaxed))]
    }

    /// What of tasks it can.
    pub(in crate::core) fn tasks(&self) -> TaskSupport {
        self.hello.lock().as_ref().map_or(TaskSupport::None, ServerHello::tasks)
    }

    /// Whether it was asked for its era and has not answered anything yet.
    pub(in crate::core) fn is_mute(&self) -> bool {
        self.mute.load(Ordering::Relaxed)
    }

    pub(in crate::core) fn set_mute(&self, mute: bool) {
        self.mute.store(mute, Ordering::Relaxed);
    }

    /// How long its list of this kind may be kept.
    pub fn hint(&self, kind: Kind) -> Cache {
        self.hints.lock()[kind as usize]
    }

    /// Notes how long its list of this kind may be kept.
    pub(in crate::core) fn set_hint(&self, kind: Kind, hint: Cache) {
        self.hints.lock()[kind as usize] = hint;
    }

    /// Lets the HTTP client know which parameters are mirrored into headers, once tools are listed.
    pub(in crate::core) fn mirror_parameters(&self, headers: Arc<ToolHeaders>) {
        let _ = self.mirrored.set(headers);
    }

    /// Takes note of the parameters that tools want in headers; those that want the impossible are left out.
    pub(in crate::core) fn note_mirrored(&self, upstream: &Upstream, tools: Vec<Item>) -> Vec<Item> {
        let Some(mirrored) = self.mirrored.get().filter(|_| self.version().is_modern()) else { return tools };
        let mut known = HashMap::new();
        let mut scanner = Scanner::default();
        let mut kept = Vec::with_capacity(tools.len());
        for tool in tools {
            let root = scanner.scan_str(tool.raw()).expect("definitions are valid JSON").root();
            match tool_headers::read_schema(root.get("inputSchema").map_or("{}", |schema| schema.raw())) {
                Ok(headers) => {
                    known.insert(tool.key.to_string(), headers);
                    kept.push(tool);
                }
                Err(reason) => tracing::warn!("[{upstream}] tool {} is left out: {reason}", tool.key),
            }
        }
        mirrored.set(known);
        kept
    }
}

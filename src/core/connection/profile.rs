//! The upstream's latest description of itself: its greeting, how long its lists may be cached, and which
//! parameters its tools want in headers. The lifecycle writes it, and every call reads it.

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

/// The upstream's description of itself.
pub struct Profile {
    hello: Mutex<Option<ServerHello>>,
    /// The version in `hello`, as an index into the list of versions. It is separate because every call reads
    /// it.
    version: AtomicU8,
    /// Whether `hello` declares tasks in whichever form, which results may name.
    has_tasks: AtomicBool,
    mute: AtomicBool,
    /// How long each list may be cached. A legacy upstream's lists may not.
    hints: Mutex<[Cache; 4]>,
    /// The table from which the HTTP client reads the parameters to mirror into headers.
    mirrored: OnceLock<Arc<ToolHeaders>>,
}

impl Default for Profile {
    fn default() -> Self {
        Self {
            hello: Mutex::default(),
            version: AtomicU8::new(Version::LATEST_LEGACY as u8),
            has_tasks: AtomicBool::new(false),
            mute: AtomicBool::new(false),
            hints: Mutex::default(),
            mirrored: OnceLock::new(),
        }
    }
}

impl Profile {
    /// Stores the greeting.
    pub(in crate::core) fn greeted(&self, hello: ServerHello) {
        self.version.store(hello.version as u8, Ordering::Relaxed);
        self.has_tasks.store(hello.can("tasks") || hello.tasks() != TaskSupport::None, Ordering::Relaxed);
        *self.hello.lock() = Some(hello);
    }

    /// Whether the upstream has greeted us.
    pub(in crate::core) fn is_greeted(&self) -> bool {
        self.hello.lock().is_some()
    }

    /// Whether the upstream declared this capability.
    pub(super) fn can(&self, capability: &str) -> bool {
        self.hello.lock().as_ref().is_some_and(|hello| hello.can(capability))
    }

    /// The version that the upstream speaks.
    pub(super) fn version(&self) -> Version {
        Version::ALL[usize::from(self.version.load(Ordering::Relaxed))]
    }

    /// Whether results may name tasks.
    pub(in crate::core) fn has_tasks(&self) -> bool {
        self.has_tasks.load(Ordering::Relaxed)
    }

    /// The upstream's support for tasks.
    pub(in crate::core) fn tasks(&self) -> TaskSupport {
        self.hello.lock().as_ref().map_or(TaskSupport::None, ServerHello::tasks)
    }

    /// Whether the upstream was asked for its era and has not answered anything yet.
    pub(in crate::core) fn is_mute(&self) -> bool {
        self.mute.load(Ordering::Relaxed)
    }

    pub(in crate::core) fn set_mute(&self, mute: bool) {
        self.mute.store(mute, Ordering::Relaxed);
    }

    /// How long the list of this kind may be cached.
    pub fn hint(&self, kind: Kind) -> Cache {
        self.hints.lock()[kind as usize]
    }

    /// Stores how long the list of this kind may be cached.
    pub(in crate::core) fn set_hint(&self, kind: Kind, hint: Cache) {
        self.hints.lock()[kind as usize] = hint;
    }

    /// Sets the table that the HTTP client reads, which is filled when tools are listed.
    pub(in crate::core) fn mirror_parameters(&self, headers: Arc<ToolHeaders>) {
        let _ = self.mirrored.set(headers);
    }

    /// Stores the parameters that tools want in headers. Tools whose marks break the rules are left out.
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

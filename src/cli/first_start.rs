//! The end of `init`: starting every server once, so that introductions, search and `tokens` know from the
//! first minute what there is.

use super::change::{Console, Settled};
use super::doctor;
use super::failure::Failure;
use super::import::Order;
use super::load::{Loader, Overrides};
use super::screen::Screen;
use clap::Args;
use serde_json::Value;
use std::path::Path;

/// What the command line says about starting the servers.
#[derive(Args, Clone, Copy)]
pub(super) struct Choice {
    /// Start every server once, to learn what it offers
    #[arg(long, conflicts_with = "no_start")]
    start: bool,
    /// Start nothing, and do not ask about it
    #[arg(long)]
    no_start: bool,
}

/// Starts the servers of the file if that is wanted, and returns how each of them fares.
pub(super) fn offer(
    choice: Choice,
    order: &Order<'_>,
    file: &Path,
    outcome: Settled,
    screen: Screen,
    console: &mut Console<'_>,
) -> Result<Option<Value>, Failure> {
    // Only a person who has just agreed to a change is asked.
    let asks = outcome == Settled::Written && !console.yes && !choice.no_start;
    if outcome == Settled::Shown || !(choice.start || asks) {
        return Ok(None);
    }
    let overrides = Overrides::default();
    let loader = Loader::for_asking(order.face, Ok(file.to_owned()), &overrides, order.world)?;
    let (configured, _) = loader.load(console.output)?;
    if configured.face.servers().is_empty() {
        return Ok(None);
    }
    let question = "Start every server once, so that the gateway knows what each offers?";
    if !choice.start && !console.confirms(question)? {
        return Ok(None);
    }
    let findings = doctor::examine(configured, "", screen, order.world)?;
    if console.output.json {
        return Ok(Some(doctor::as_json(order.face, &findings)["servers"].take()));
    }
    doctor::as_text(order.face, &findings, (console.output, screen), console.out)?;
    Ok(None)
}

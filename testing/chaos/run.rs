//! The run: all clients at once, and the report.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::clients::{BETWEEN_CRASHES, CRASH_ONE_IN, Plan, over_http, over_stdio};
use crate::fault::{Chance, Fault};
use crate::ledger::Totals;
use crate::oracle::Promise;
use crate::sabotage::Sabotage;
use crate::scene::{Gateway, Programs, Scene, footprint};

/// What the command line says.
pub(crate) struct Options {
    pub(crate) seed: u64,
    pub(crate) calls: u64,
    pub(crate) minutes: Option<f64>,
    /// How many calls go wrong, about; a hundredth unless told otherwise.
    pub(crate) faults: Option<u64>,
    /// Clients over stdio; over HTTP there are twice as many.
    pub(crate) clients: usize,
    pub(crate) upstreams: usize,
    pub(crate) rounds: usize,
    /// How many times as long things may take as they should, for machines that are busy with other things.
    pub(crate) patience: u32,
    /// Seconds after which an answer counts as lost.
    lost_after: u64,
    /// What is done to the messages of clients over stdio, and over HTTP.
    sabotage: [Option<Sabotage>; 2],
    programs: Option<Programs>,
}

impl Options {
    pub(crate) fn parse(arguments: &[String]) -> Result<Self, String> {
        let mut options = Self {
            seed: 1,
            calls: 100_000,
            minutes: None,
            faults: None,
            clients: 4,
            upstreams: 12,
            rounds: 20,
            patience: 1,
            lost_after: 30,
            sabotage: [None, None],
            programs: None,
        };
        let (mut gateway, mut fake) = (None, None);
        for pair in arguments.chunks(2) {
            let [flag, value] = pair else { return Err(format!("{} needs a value", pair[0])) };
            let number = || value.parse::<u64>().map_err(|error| format!("{flag}: {error}"));
            match flag.as_str() {
                "--seed" => options.seed = number()?,
                "--calls" => options.calls = number()?,
                "--minutes" => options.minutes = Some(value.parse().map_err(|_| "--minutes: no number")?),
                "--faults" => options.faults = Some(number()?),
                "--clients" => options.clients = number()?.max(1) as usize,
                "--upstreams" => options.upstreams = number()?.max(1) as usize,
                "--rounds" => options.rounds = number()? as usize,
                "--patience" => options.patience = number()?.max(1) as u32,
                "--lost-after" => options.lost_after = number()?,
                "--sabotage" => {
                    let (what, only) = value.split_once('@').unwrap_or((value, ""));
                    let sabotage = Some(what.parse()?);
                    options.sabotage = match only {
                        "" => [sabotage, sabotage],
                        "stdio" => [sabotage, None],
                        "http" => [None, sabotage],
                        _ => return Err(format!("{flag}: {only} is neither stdio nor http")),
                    };
                }
                "--gateway" => gateway = Some(value.into()),
                "--fake" => fake = Some(value.into()),
                _ => return Err(format!("unknown flag {flag}")),
            }
        }
        if let (Some(gateway), Some(fake)) = (gateway, fake) {
            options.programs = Some(Programs { gateway, fake });
        }
        Ok(options)
    }

    pub(crate) fn programs(&self) -> Programs {
        self.programs.clone().unwrap_or_else(Programs::find)
    }
}

/// Runs all clients and reports. `true`: every promise was kept.
pub(crate) fn run(options: &Options) -> bool {
    let scene = Scene::new(options.programs());
    let faults = options.faults.unwrap_or(options.calls / 100);
    // Every gateway has its share, and the clients over HTTP have one gateway.
    let share = options.calls.div_ceil(options.clients as u64 + 1);
    let share = options.minutes.map_or(share, |_| u64::MAX);
    let one_in = match (options.faults, options.minutes) {
        (None, Some(_)) => 100,
        _ => options.calls.checked_div(faults).unwrap_or(u64::MAX).max(1),
    };
    let pace = BETWEEN_CRASHES.div_f64(options.upstreams as f64 * CRASH_ONE_IN as f64 * one_in as f64);
    let plan = Plan {
        totals: Totals::default(),
        calls: [share, share.div_ceil(2 * options.clients as u64)],
        until: options.minutes.map(|minutes| Instant::now() + Duration::from_secs_f64(minutes * 60.0)),
        one_in,
        pace: [pace, pace * 2 * options.clients as u32],
        faults: AtomicU64::new(0),
        servers: options.upstreams + 1,
        lost_after: Duration::from_secs(options.lost_after),
        sabotage: options.sabotage,
    };
    let mut remotes = Vec::new();
    let mut gateway = |name: &str, n: usize, arguments: &[&str]| {
        let (remote, url) = scene.remote(name, options.upstreams);
        remotes.push(remote);
        let config = scene.chaotic(name, options.upstreams, options.seed + n as u64, &url);
        scene.gateway(name, &config, arguments)
    };
    let host = gateway("http", 0, &["serve", "--http", "127.0.0.1:0"]);
    let mut gateways: Vec<Gateway> =
        (1..=options.clients).map(|n| gateway(&format!("stdio{n}"), n, &[])).collect();
    let pids: Vec<(String, u32)> = std::iter::once(&host)
        .chain(&gateways)
        .map(|gateway| (gateway.name.clone(), gateway.child.id()))
        .collect();
    let began = Instant::now();
    let over = AtomicBool::new(false);
    let samples = std::thread::scope(|scope| {
        let sampler = scope.spawn(|| sample(&pids, &plan, &over));
        let clients: Vec<_> = gateways
            .iter_mut()
            .enumerate()
            .map(|(n, gateway)| {
                let chance = Chance(options.seed ^ ((n as u64 + 1) << 48));
                let (plan, journals) = (&plan, scene.journals(&gateway.name, options.upstreams));
                scope.spawn(move || over_stdio(plan, gateway, &journals, chance))
            })
            .collect();
        let journals = scene.journals(&host.name, options.upstreams);
        over_http(&plan, &host, &journals, 2 * options.clients, &Chance(options.seed));
        for client in clients {
            client.join().expect("no panic");
        }
        over.store(true, Ordering::Relaxed);
        sampler.join().expect("no panic")
    });
    let took = began.elapsed();
    let orderly = gateways.into_iter().chain([host]).map(Gateway::end).filter(|orderly| *orderly).count();
    for mut remote in remotes {
        let _ = remote.kill();
        let _ = remote.wait();
    }
    let left = scene.until_gone(Instant::now(), Duration::from_secs(5)).err().unwrap_or_default();
    let enough_crashes = report(options, &plan, &scene, took, &samples);
    println!("gateways that ended with status 0: {orderly} of {}", pids.len());
    println!("processes left behind: {}", left.len());
    plan.totals.is_kept() && enough_crashes && orderly == pids.len() && left.is_empty()
}

/// Memory and descriptors of one gateway, now and then: calls so far, KiB, descriptors.
struct Samples {
    name: String,
    points: Vec<(u64, u64, usize)>,
}

fn sample(pids: &[(String, u32)], plan: &Plan, over: &AtomicBool) -> Vec<Samples> {
    let mut all: Vec<Samples> =
        pids.iter().map(|(name, _)| Samples { name: name.clone(), points: Vec::new() }).collect();
    while !over.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(200));
        let calls = plan.totals.calls.load(Ordering::Relaxed);
        for (samples, (_, pid)) in all.iter_mut().zip(pids) {
            let (memory, descriptors) = footprint(*pid);
            if calls > 0 && memory > 0 {
                samples.points.push((calls, memory, descriptors));
            }
        }
    }
    all
}

/// Prints what was found. `false`: too few of the faults were crashes for it to mean much.
fn report(options: &Options, plan: &Plan, scene: &Scene, took: Duration, samples: &[Samples]) -> bool {
    let totals = &plan.totals;
    let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let (faults, bad_starts) = scene.injected();
    let sum: u64 = faults.values().sum();
    let crashes: u64 = Fault::CRASHES.iter().filter_map(|crash| faults.get(crash)).sum();
    println!(
        "seed {}: {} clients over stdio and {} over HTTP, {} servers behind each gateway, {:.1} s",
        options.seed,
        options.clients,
        2 * options.clients,
        plan.servers,
        took.as_secs_f64(),
    );
    println!(
        "calls {}, faults {sum}, crashes among them {crashes}, bad starts {bad_starts}",
        get(&totals.calls)
    );
    let listed: Vec<_> = faults.iter().map(|(fault, count)| format!("{} {count}", fault.name())).collect();
    println!("  {}", listed.join(", "));
    println!(
        "answered with their own answer {}, with an error {}, cancelled {}",
        get(&totals.own_answers),
        get(&totals.errors),
        get(&totals.cancelled),
    );
    let broken = totals.broken.lock().expect("no panic");
    let listed = Promise::ALL.map(|(promise, name)| format!("{name} {}", broken.get(&promise).unwrap_or(&0)));
    println!("{}", listed.join(", "));
    for Samples { name, points } in samples {
        // The first fifth is warm-up.
        let settled = &points[points.len() / 5..];
        let (Some(first), Some(last)) = (settled.first(), settled.last()) else { continue };
        let memory: Vec<(f64, f64)> =
            settled.iter().map(|(calls, memory, _)| (*calls as f64, *memory as f64)).collect();
        let descriptors: Vec<(f64, f64)> =
            settled.iter().map(|(calls, _, descriptors)| (*calls as f64, *descriptors as f64)).collect();
        println!(
            "{name}: memory {:.1} → {:.1} MiB ({:+.1} KiB per 100,000 calls), descriptors {} → {} ({:+.2} per 100,000 calls)",
            first.1 as f64 / 1024.0,
            last.1 as f64 / 1024.0,
            slope(&memory) * 100_000.0,
            first.2,
            last.2,
            slope(&descriptors) * 100_000.0,
        );
    }
    crashes * 10 >= sum
}

/// Least squares.
fn slope(points: &[(f64, f64)]) -> f64 {
    let count = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (x, y) = (mean(|point| point.0), mean(|point| point.1));
    let above: f64 = points.iter().map(|point| (point.0 - x) * (point.1 - y)).sum();
    let below: f64 = points.iter().map(|point| (point.0 - x).powi(2)).sum();
    if below == 0.0 { 0.0 } else { above / below }
}

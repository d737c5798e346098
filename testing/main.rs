//! The scripted fake upstream: an MCP server that does what honest servers do not.
//!
//! Its command line tells everything about it, so that a test's configuration entry can be read on its own.
//! It speaks the legacy era over stdio unless told otherwise; every method that it does not know gets `-32601`.
//!
//! # Flags
//!
//! What it offers (each may be given several times; `JSON` is emitted byte for byte):
//!
//! | flag | meaning |
//! |---|---|
//! | `--with NAMES` | offer these behaviours (below) as tools, comma separated; `all` is every one |
//! | `--tool JSON` | offer this tool; called, it behaves as its name says, or as `echo` |
//! | `--tools N` | offer `tool-1` … `tool-N`, which echo |
//! | `--tools-of FILE` | offer the tools that the file holds at the start, one a line; called, each behaves as with `--tool` |
//! | `--resource JSON`, `--resources N` | offer this resource; `fake://resource/1` … |
//! | `--template JSON`, `--templates N` | offer this template; `fake://item/1/{id}` … |
//! | `--prompt JSON`, `--prompts N` | offer this prompt; `prompt-1` … |
//! | `--page N` | at most N items on a page of any list |
//!
//! How it shakes hands:
//!
//! | flag | meaning |
//! |---|---|
//! | `--era ERA` | `legacy` (default), `modern` or `both` |
//! | `--http PORT` | Streamable HTTP on this port, or a free one for 0, told on a line of stdout; stdin is ignored |
//! | `--sse` | over HTTP, the old transport of 2024-11-05 |
//! | `--stay-open` | over HTTP, answer every request on a stream that does not end with the answer |
//! | `--no-stream` | over HTTP, no stream for what belongs to no request |
//! | `--break HOW` | over HTTP, cut every stream of a call after its first message: `plain`, or with `ids` by which it goes on |
//! | `--protocol VERSION` | answer `initialize` with this version instead of the one asked for |
//! | `--capabilities JSON` | these capabilities instead of those that follow from what it offers |
//! | `--instructions TEXT` | the `instructions` of its handshake |
//! | `--result METHOD=JSON` | answer this method with this result |
//! | `--error METHOD=JSON` | answer this method with this error |
//! | `--result-as TEXT`, `--error-as TEXT` | write every answer so, with `@id`, `@result` and `@error` filled in |
//! | `--hang METHOD` | never answer this method; `METHOD#N`: not the n-th time |
//! | `--ask-after-initialized METHOD` | ask the client this, once, after `notifications/initialized` |
//!
//! How it lives and dies:
//!
//! | flag | meaning |
//! |---|---|
//! | `--marker TEXT` | nothing; for finding the process. Its descendants carry it too |
//! | `--count FILE` | append a line to the file at every start; `chaos` adds one for every fault, before it happens |
//! | `--single FILE` | fail to start while another instance holds the file |
//! | `--fail-while FILE` | fail to start while the file exists |
//! | `--wait-for FILE` | start only once the file exists |
//! | `--delay MS` | start late |
//! | `--stderr TEXT` | write this line to stderr at the start |
//! | `--stdout TEXT` | write this line to stdout at the start |
//! | `--exit CODE` | end at once, after `--stderr` |
//! | `--stubborn N` | spawn N descendants (each with a child of its own) that leave the session and ignore signals |
//! | `--ignore-term` | ignore SIGTERM, SIGINT and SIGHUP |
//! | `--ignore-eof` | live on after the end of stdin |
//! | `--exit-after-handshake` | end as soon as the handshake is over |
//! | `--chaos SEED` | something goes wrong with some of the starts: slow, noisy, stubborn, over after the handshake; `--count` says what |
//!
//! # Behaviours
//!
//! | tool | arguments | what it does |
//! |---|---|---|
//! | `echo` | any | answers with the bytes of its `params` as text |
//! | `result` | `json` | answers with that text as the result, byte for byte |
//! | `error` | `json` | answers with that text as the error, byte for byte |
//! | `answer` | `text`, `then`? | writes this text in place of its answer, `@id` filled in; with `then`, the right answer behind it |
//! | `slow` | `key`?, `ms`?, `late`? | answers after `ms`, or when `release` names its key; not when cancelled, unless `late` |
//! | `release` | `key`? | lets the `slow` calls with this key answer |
//! | `started` | `key`? | answers as soon as a `slow` call with this key has begun |
//! | `progress` | `n`, `ms`?, `extra`? | sends n progress notifications (one every `ms`; `extra`: raw members to add), then answers |
//! | `never` | | never answers |
//! | `crash` | `code`?, `stderr`?, `answer`? | writes the lines, answers if asked to, and ends with the code |
//! | `notify` | `method`, `params`? | sends this notification, `params` (a text of JSON) byte for byte, then answers |
//! | `ask` | `method`, `params`?, `n`?, `progress`? | asks the client this and answers with the client's `{"result"}` or `{"error"}` as text; modern: by `input_required`, n times (1); legacy: with so many progress notifications before the client's answer, and as many after it |
//! | `change` | `list`?, `add`?, `remove`?, `times`? | adds to `tools` (or `resources`, `templates`, `prompts`) texts of JSON, removes by name, sends `list_changed` so many times (1) |
//! | `raw` | `text`?, `bytes`?, `n`? | writes these bytes to stdout before it answers; `@pad` in the text is n bytes |
//! | `report` | | answers with what it knows of itself: `env`, `cwd`, `argv`, `pid`, `initialize`, `level`, `subscriptions`, `headers` of the last call of each tool, `sessions` so far |
//! | `received` | `method`?, `count`? | answers with the notifications received, once there are `count` of them |
//! | `requests` | `method`? | answers with the requests received |
//! | `large` | `bytes` | answers with a text of this length |
//! | `lines` | `n` | answers with so many lines, each of which holds a number |
//! | `flood` | `bytes` | writes this much to stderr, then answers |
//! | `endless` | `n` | writes a line of so many bytes to stdout, then answers |
//! | `spawn` | `n` | as `--stubborn` |
//! | `update` | `uri` | sends `notifications/resources/updated` if the client has subscribed to it |
//! | `cancelled` | `count` | answers once so many requests have been cancelled |
//! | `chaos`, `chaos-…` | `mark`, `fault`?, `n`? | reports progress n times, answers with the mark, and does what the fault says (`chaos/fault.rs` lists them) |
//! | `job` | | begins a task, `task-1` and so on, if the caller takes one: by `task` in its `params`, or by the extension |
//! | `finish` | `id`, `status`?, `json`? | lets a task have this status (`completed`) and this result, and tells of it |
//! | `forget` | | forgets the session over HTTP, as a server does that was started anew |
//! | `cut` | | breaks the streams over HTTP that are open for what belongs to no call: subscriptions, and the one of the session |
//!
//! Offering `job`, it has the capability for tasks. `resources/read`, `prompts/get` and `completion/complete` answer with the bytes of their `params` as text.

#![allow(clippy::print_stdout, reason = "stdout is this program's wire")]

mod behaviours;
mod catalog;
#[path = "chaos/fault.rs"]
#[allow(dead_code, reason = "the driver uses the rest")]
mod fault;
mod faults;
mod http;
#[path = "chaos/mark.rs"]
mod mark;
mod modern;
mod options;
mod peer;
mod server;
mod stubborn;
mod tasks;

use std::io::Write;
use std::process::exit;
use std::time::Duration;

use options::Options;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [flag, marker, depth] = arguments.as_slice()
        && flag == stubborn::FLAG
    {
        stubborn::live(marker, depth);
    }
    let mut options = Options::parse(arguments).unwrap_or_else(|problem| {
        eprintln!("fake-upstream: {problem}");
        exit(64);
    });
    begin(&mut options);
    server::serve(options);
}

/// All that happens before the first message is read.
fn begin(options: &mut Options) {
    if let Some(file) = &options.count {
        let starts = |text: String| text.lines().filter(|line| line.starts_with("start")).count();
        options.life = std::fs::read_to_string(file).map_or(0, starts) + 1;
        // A server over HTTP is waited for by the driver, so its start goes well.
        let seed = options.chaos.filter(|_| options.http.is_none());
        let what = seed.map_or("start", |seed| faults::begin(options, seed));
        faults::journal(options, what);
    }
    for line in &options.stderr {
        eprintln!("{line}");
    }
    if let Some(code) = options.exit {
        exit(code);
    }
    if options.fail_while.as_ref().is_some_and(|file| file.exists()) {
        eprintln!("fake-upstream: told to fail");
        exit(1);
    }
    if let Some(file) = &options.single
        && std::fs::File::options().create_new(true).write(true).open(file).is_err()
    {
        eprintln!("fake-upstream: another instance is running");
        exit(1);
    }
    if options.ignore_term {
        stubborn::ignore_signals();
    }
    std::thread::sleep(Duration::from_millis(options.delay));
    if let Some(file) = &options.wait_for {
        while !file.exists() {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
    stubborn::spawn(options.stubborn, &options.marker);
    let mut stdout = std::io::stdout();
    for line in &options.stdout {
        writeln!(stdout, "{line}").expect("stdout is open");
    }
    stdout.flush().expect("stdout is open");
}

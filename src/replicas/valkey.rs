//! The store in a Valkey or Redis server.
//!
//! Everything that must happen at once is a short script, and every script uses only what Redis 6.2, Valkey 7.2 and the
//! managed services have in common. Entries are hashes with the fields `owner`, `epoch` and `value`; logs and mail
//! are streams; the members are one sorted set.
//!
//! Invariant: nothing here outlasts [`SILENCE`]. A server that says nothing for that long counts as away.
//!
//! Invariant: what is asked twice happens once. A connection that drops leaves open whether its last commands were
//! carried out, and they are sent again: entries and logs have epochs and positions, letters have numbers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::RwLock;
use redis::aio::{ConnectionLike, ConnectionManager, ConnectionManagerConfig};
use redis::{Client, Cmd, ErrorKind, FromRedisValue, Pipeline, RedisError, RedisResult, Value, cmd, pipe};
use tokio::time::{sleep, timeout};

use super::store::{Addition, Away, LONGEST_LIFE, Pending, Roll, Store, StoreEntry};
use crate::config::StoreAddress;

/// The longest silence of a store that is there.
const SILENCE: Duration = Duration::from_secs(1);
/// How long a store that cannot be reached is tried at the start.
const PATIENCE: Duration = Duration::from_secs(10);
/// The pause between such tries.
const PAUSE: Duration = Duration::from_millis(200);
/// How long a replica is remembered after its last beat.
const REMEMBERED: Duration = Duration::from_secs(60);
/// How long the server holds a question for mail while there is none.
const MAIL_WAIT: Duration = Duration::from_millis(500);
/// The most letters that are received at once.
const MOST_LETTERS: usize = 256;

const ROLL: &str = "\
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local before = redis.call('ZSCORE', KEYS[1], ARGV[1])
if ARGV[3] == 'beat' then
  redis.call('ZADD', KEYS[1], now, ARGV[1])
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - ARGV[2])
end
local silences = {}
for _, member in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
  silences[#silences + 1] = member
  silences[#silences + 1] = now - redis.call('ZSCORE', KEYS[1], member)
end
return {before and now - before or -1, silences}";

const SWAP: &str = "\
local epoch = tonumber(redis.call('HGET', KEYS[1], 'epoch') or 0)
if epoch ~= tonumber(ARGV[1]) then
  return 0
end
redis.call('HSET', KEYS[1], 'epoch', epoch + 1, 'owner', ARGV[2], 'value', ARGV[3])
redis.call('PEXPIRE', KEYS[1], ARGV[4])
return epoch + 1";

const WRITE: &str = "\
if redis.call('HGET', KEYS[1], 'epoch') ~= ARGV[1] then
  return 0
end
redis.call('HSET', KEYS[1], 'value', ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return 1";

// What is in a log already need not be added again: then the connection dropped after it was added. Any other error is
// the server's own, which may be full: it says nothing of the log.
const APPEND: &str = "\
if KEYS[2] and redis.call('HGET', KEYS[2], 'epoch') ~= ARGV[1] then
  return 0
end
for at = 4, #ARGV, 2 do
  local id = ARGV[at] .. '-1'
  local added = redis.pcall('XADD', KEYS[1], id, 'e', ARGV[at + 1])
  if type(added) == 'table' and added.err then
    if not string.find(added.err, 'equal or smaller', 1, true) then
      return added
    end
    local there = redis.call('XRANGE', KEYS[1], id, id)
    if #there == 0 or there[1][2][2] ~= ARGV[at + 1] then
      return 0
    end
  end
end
redis.call('XTRIM', KEYS[1], 'MINID', ARGV[3])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1";

const TAKE_BACK: &str = "\
for _, letter in ipairs(redis.call('XRANGE', KEYS[1], '-', '+')) do
  redis.call('XADD', KEYS[2], '*', 'l', letter[2][2])
end
redis.call('DEL', KEYS[1])
redis.call('PEXPIRE', KEYS[2], ARGV[1])
return redis.call('XRANGE', KEYS[2], '-', '+')";

/// Why there is no store at the start.
#[derive(Debug)]
pub struct Unusable {
    /// What is wrong.
    pub reason: String,
    /// What to do about it.
    pub hint: &'static str,
}

/// A store in a server.
pub struct Valkey {
    /// `mcpwb:{NAME}:`.
    prefix: String,
    client: Client,
    /// For everything that is answered at once.
    commands: Wire,
    /// For questions that the server may hold.
    mail: Wire,
}

/// A connection that is made anew when it drops.
struct Wire(RwLock<(u64, ConnectionManager)>);

impl Valkey {
    /// Connects, and tries for a while if nobody is there.
    pub async fn connect(address: &StoreAddress) -> Result<Self, Unusable> {
        let hint = "check `store`";
        let client = client(address).map_err(|error| Unusable { reason: words(&error), hint })?;
        let store = Self {
            prefix: format!("mcpwb:{{{}}}:", address.prefix),
            commands: Wire::new(&client)?,
            mail: Wire::new(&client)?,
            client,
        };
        let begun = Instant::now();
        loop {
            let tried = store.commands.try_once(&store.client, &trial(&store.prefix)).await;
            let Err(error) = tried else { return Ok(store) };
            if let Some(hint) = refusal(&error) {
                return Err(Unusable { reason: words(&error), hint });
            }
            if begun.elapsed() >= PATIENCE {
                let hint = "start the store, or correct `store`; without `store` the gateway runs alone";
                return Err(Unusable { reason: words(&error), hint });
            }
            sleep(PAUSE).await;
        }
    }

    fn key(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    fn script(&self, script: &str, keys: &[&str]) -> Cmd {
        let mut command = cmd("EVAL");
        command.arg(script).arg(keys.len());
        for key in keys {
            command.arg(self.key(key));
        }
        command
    }

    async fn ask<T: FromRedisValue>(&self, command: impl StoreCommand) -> Result<T, Away> {
        self.commands.ask(&self.client, command).await
    }

    /// Calls the roll, for somebody who only looks or also says that he lives.
    async fn called(&self, own: &str, what: &str) -> Result<Roll, Away> {
        let mut command = self.script(ROLL, &["members"]);
        command.arg(own).arg(milliseconds(REMEMBERED)).arg(what);
        let (before, members): (i64, Vec<Value>) = self.ask(command).await?;
        let wrong = |error: redis::ParsingError| Away(error.to_string());
        let mut others = Vec::new();
        for [id, silence] in members.as_chunks::<2>().0 {
            let id = String::from_redis_value_ref(id).map_err(wrong)?;
            let silence = i64::from_redis_value_ref(silence).map_err(wrong)?;
            if id != own {
                others.push((id, Duration::from_millis(silence.try_into().unwrap_or(0))));
            }
        }
        Ok(Roll { own_silence: before.try_into().ok().map(Duration::from_millis), others })
    }
}

/// What is asked at the start: whether keys may be written at all.
fn trial(prefix: &str) -> Cmd {
    let mut command = cmd("EVAL");
    command.arg(ROLL).arg(1).arg(format!("{prefix}trial")).arg("trial").arg(1).arg("beat");
    command
}

fn client(address: &StoreAddress) -> RedisResult<Client> {
    let found = redis::IntoConnectionInfo::into_connection_info(address.url.expose())?;
    // Old servers and proxies refuse to be told which library asks.
    let settings = found.redis_settings().clone().set_skip_set_lib_name();
    Client::open(found.set_redis_settings(settings))
}

impl Wire {
    fn new(client: &Client) -> Result<Self, Unusable> {
        let manager =
            manager(client).map_err(|error| Unusable { reason: words(&error), hint: "check `store`" })?;
        Ok(Self(RwLock::new((0, manager))))
    }

    async fn try_once(&self, client: &Client, command: &Cmd) -> RedisResult<()> {
        let (generation, mut connection) = self.0.read().clone();
        let tried = match timeout(SILENCE, connection.req_packed_command(command)).await {
            Ok(answer) => answer.and_then(Value::extract_error).map(|_| ()),
            Err(_) => Err((ErrorKind::Io, "it does not answer").into()),
        };
        if tried.is_err() {
            self.renew(client, generation);
        }
        tried
    }

    async fn ask<T: FromRedisValue>(&self, client: &Client, command: impl StoreCommand) -> Result<T, Away> {
        self.ask_counting(client, command).await.map(|(answer, _)| answer)
    }

    /// The answer, and how often it took to ask.
    async fn ask_counting<T: FromRedisValue>(
        &self,
        client: &Client,
        command: impl StoreCommand,
    ) -> Result<(T, u32), Away> {
        let mut tries = 0;
        loop {
            let (generation, mut connection) = self.0.read().clone();
            tries += 1;
            match timeout(SILENCE, command.ask(&mut connection)).await {
                Ok(Ok(answer)) => {
                    let answer = T::from_redis_value(answer).map_err(|error| Away(error.to_string()))?;
                    return Ok((answer, tries));
                }
                Ok(Err(error)) if error.is_connection_dropped() && tries == 1 => {}
                Ok(Err(error)) => {
                    self.renew(client, generation);
                    let silent = error.is_timeout().then(|| "it does not answer".to_owned());
                    return Err(Away(silent.unwrap_or_else(|| words(&error))));
                }
                Err(_) => {
                    self.renew(client, generation);
                    return Err(Away("it does not answer".to_owned()));
                }
            }
        }
    }

    /// Gives up a connection on which something went wrong: it may be dead without anybody having told us, it may have
    /// been refused for good, or another server may have taken the place of the one at its other end.
    fn renew(&self, client: &Client, generation: u64) {
        let mut line = self.0.write();
        if line.0 == generation
            && let Ok(manager) = manager(client)
        {
            *line = (generation + 1, manager);
        }
    }
}

fn manager(client: &Client) -> RedisResult<ConnectionManager> {
    let config = ConnectionManagerConfig::new()
        .set_number_of_retries(0)
        .set_connection_timeout(Some(SILENCE))
        .set_response_timeout(Some(SILENCE));
    ConnectionManager::new_lazy_with_config(client.clone(), config)
}

/// A command, or several that go together.
trait StoreCommand: Send + Sync {
    fn ask(&self, connection: &mut ConnectionManager) -> impl Future<Output = RedisResult<Value>> + Send;
}

impl StoreCommand for Cmd {
    async fn ask(&self, connection: &mut ConnectionManager) -> RedisResult<Value> {
        connection.req_packed_command(self).await.and_then(Value::extract_error)
    }
}

impl StoreCommand for Pipeline {
    async fn ask(&self, connection: &mut ConnectionManager) -> RedisResult<Value> {
        self.query_async(connection).await
    }
}

/// What a server says that will not change its mind, as what to do about it.
fn refusal(error: &RedisError) -> Option<&'static str> {
    use redis::ServerErrorKind as Server;
    let text = error.to_string();
    match error.kind() {
        ErrorKind::Server(Server::Moved | Server::Ask | Server::CrossSlot | Server::ClusterDown) => Some(
            "the gateway does not speak cluster mode; name a server that is no cluster, or a proxy in front of one",
        ),
        ErrorKind::AuthenticationFailed => {
            Some("correct user and password in `store`; both are percent-encoded")
        }
        ErrorKind::Server(Server::NoPerm) => {
            Some("give the user these rights: `~mcpwb:{NAME}:* &mcpwb:{NAME}:* +@all -@admin -@dangerous`")
        }
        ErrorKind::InvalidClientConfig => Some("correct `store`"),
        _ if ["NOAUTH", "WRONGPASS"].iter().any(|code| text.contains(code)) => {
            Some("correct user and password in `store`; both are percent-encoded")
        }
        _ if text.contains("DB index") || text.contains("invalid DB") => {
            Some("correct the number of the database at the end of `store`")
        }
        _ if text.contains("ertificate") => Some(
            "let the server show a certificate that the system trusts, or name its issuer in SSL_CERT_FILE",
        ),
        _ => None,
    }
}

/// What an error says, without the address or anything else that the URL holds.
fn words(error: &RedisError) -> String {
    match error.kind() {
        ErrorKind::Server(redis::ServerErrorKind::Moved | redis::ServerErrorKind::Ask) => {
            "it is a cluster (MOVED)".to_owned()
        }
        _ => error.to_string(),
    }
}

fn milliseconds(life: Duration) -> u64 {
    u64::try_from(life.min(LONGEST_LIFE).as_millis()).unwrap_or(u64::MAX).max(1)
}

/// The entries of a stream, as `XRANGE` has them: id, then names and values.
type Streamed = Vec<(String, Vec<Vec<u8>>)>;

fn only_values(streamed: Streamed) -> Vec<Vec<u8>> {
    streamed
        .into_iter()
        .filter_map(|(_, mut fields)| (fields.len() == 2).then(|| fields.swap_remove(1)))
        .collect()
}

impl Store for Valkey {
    fn beat<'a>(&'a self, own: &'a str) -> Pending<'a, Roll> {
        Box::pin(self.called(own, "beat"))
    }

    fn roll<'a>(&'a self, own: &'a str) -> Pending<'a, Roll> {
        Box::pin(self.called(own, "look"))
    }

    fn apart(self: Arc<Self>) -> Result<Arc<dyn Store>, Away> {
        let wire = || Wire::new(&self.client).map_err(|unusable| Away(unusable.reason));
        let (prefix, client) = (self.prefix.clone(), self.client.clone());
        Ok(Arc::new(Self { prefix, client, commands: wire()?, mail: wire()? }))
    }

    fn leave<'a>(&'a self, own: &'a str) -> Pending<'a, ()> {
        Box::pin(async move {
            let mut command = cmd("ZREM");
            command.arg(self.key("members")).arg(own);
            self.ask(command).await
        })
    }

    fn read<'a>(&'a self, key: &'a str) -> Pending<'a, Option<StoreEntry>> {
        Box::pin(async move {
            let mut command = cmd("HMGET");
            command.arg(self.key(key)).arg(&["owner", "epoch", "value"]);
            let (owner, epoch, value): (Option<String>, Option<u64>, Option<Vec<u8>>) =
                self.ask(command).await?;
            Ok(epoch.map(|epoch| StoreEntry {
                owner: owner.unwrap_or_default(),
                epoch,
                value: value.unwrap_or_default(),
            }))
        })
    }

    fn swap<'a>(
        &'a self,
        key: &'a str,
        seen: u64,
        owner: &'a str,
        value: &'a [u8],
        life: Duration,
    ) -> Pending<'a, Option<u64>> {
        Box::pin(async move {
            let mut command = self.script(SWAP, &[key]);
            command.arg(seen).arg(owner).arg(value).arg(milliseconds(life));
            let epoch: u64 = self.ask(command).await?;
            if epoch > 0 {
                return Ok(Some(epoch));
            }
            // A connection that dropped may have dropped after the entry was there.
            let there = self.read(key).await?;
            let is_ours =
                |entry: &StoreEntry| entry.epoch == seen + 1 && entry.owner == owner && entry.value == value;
            Ok(there.filter(is_ours).map(|entry| entry.epoch))
        })
    }

    fn write<'a>(&'a self, key: &'a str, epoch: u64, value: &'a [u8], life: Duration) -> Pending<'a, bool> {
        Box::pin(async move {
            let mut command = self.script(WRITE, &[key]);
            command.arg(epoch).arg(value).arg(milliseconds(life));
            self.ask(command).await
        })
    }

    fn epochs<'a>(&'a self, keys: &'a [String]) -> Pending<'a, Vec<u64>> {
        Box::pin(async move {
            let mut epochs = Vec::with_capacity(keys.len());
            for some in keys.chunks(MOST_LETTERS) {
                let mut pipeline = pipe();
                for key in some {
                    pipeline.cmd("HGET").arg(self.key(key)).arg("epoch");
                }
                let found: Vec<Option<u64>> = self.ask(pipeline).await?;
                epochs.extend(found.into_iter().map(Option::unwrap_or_default));
            }
            Ok(epochs)
        })
    }

    fn touch<'a>(&'a self, keys: &'a [String], life: Duration) -> Pending<'a, ()> {
        Box::pin(async move {
            for some in keys.chunks(MOST_LETTERS) {
                let mut pipeline = pipe();
                for key in some {
                    pipeline.cmd("PEXPIRE").arg(self.key(key)).arg(milliseconds(life)).ignore();
                }
                let () = self.ask(pipeline).await?;
            }
            Ok(())
        })
    }

    fn remove<'a>(&'a self, keys: &'a [String]) -> Pending<'a, ()> {
        Box::pin(async move {
            for some in keys.chunks(MOST_LETTERS) {
                let mut command = cmd("UNLINK");
                some.iter().for_each(|key| {
                    command.arg(self.key(key));
                });
                let _: u64 = self.ask(command).await?;
            }
            Ok(())
        })
    }

    fn append<'a>(&'a self, addition: Addition<'a>) -> Pending<'a, bool> {
        Box::pin(async move {
            let Addition { log, fence, first_kept, events, life } = addition;
            let mut command = match fence {
                Some((key, _)) => self.script(APPEND, &[log, key]),
                None => self.script(APPEND, &[log]),
            };
            let epoch = fence.map_or(0, |(_, epoch)| epoch);
            command.arg(epoch).arg(milliseconds(life)).arg(first_kept);
            for (position, event) in &events {
                command.arg(position).arg(event);
            }
            self.ask(command).await
        })
    }

    fn events<'a>(&'a self, log: &'a str, after: u64) -> Pending<'a, Vec<(u64, Vec<u8>)>> {
        Box::pin(async move {
            let Some(from) = after.checked_add(1) else { return Ok(Vec::new()) };
            let mut command = cmd("XRANGE");
            command.arg(self.key(log)).arg(from).arg("+");
            let streamed: Streamed = self.ask(command).await?;
            let event = |(id, mut fields): (String, Vec<Vec<u8>>)| {
                let position = id.split_once('-')?.0.parse().ok()?;
                Some((position, fields.pop()?))
            };
            Ok(streamed.into_iter().filter_map(event).collect())
        })
    }

    fn send<'a>(&'a self, to: &'a str, message: &'a [u8], life: Duration) -> Pending<'a, ()> {
        Box::pin(async move {
            let key = self.key(&format!("mail:{to}"));
            let mut command = cmd("XADD");
            command.arg(&key).arg("NOMKSTREAM").arg("*").arg("l").arg(message);
            let sent: Option<String> = self.ask(command).await?;
            if sent.is_some() {
                return Ok(());
            }
            let mut pipeline = pipe();
            pipeline.atomic();
            pipeline.cmd("XADD").arg(&key).arg("*").arg("l").arg(message).ignore();
            pipeline.cmd("PEXPIRE").arg(&key).arg(milliseconds(life)).ignore();
            self.ask(pipeline).await
        })
    }

    fn receive<'a>(&'a self, own: &'a str) -> Pending<'a, Vec<Vec<u8>>> {
        Box::pin(async move {
            let key = self.key(&format!("mail:{own}"));
            let mut pipeline = pipe();
            // Whoever sends need not care for the mailbox, and letters to a replica that dies outlast its burial.
            pipeline.cmd("PEXPIRE").arg(&key).arg(milliseconds(REMEMBERED)).ignore();
            pipeline.cmd("XREAD").arg("COUNT").arg(MOST_LETTERS).arg("BLOCK").arg(milliseconds(MAIL_WAIT));
            pipeline.arg("STREAMS").arg(&key).arg("0");
            let answer: Vec<Option<Vec<(String, Streamed)>>> = self.mail.ask(&self.client, pipeline).await?;
            let Some((_, letters)) = answer.into_iter().flatten().flatten().next() else {
                return Ok(Vec::new());
            };
            // A letter is received by whoever deletes it: us, or somebody who takes it back because we seem to be gone.
            let mut command = cmd("XDEL");
            command.arg(&key).arg(letters.iter().map(|(id, _)| id).collect::<Vec<_>>());
            let (deleted, tries): (usize, _) = self.commands.ask_counting(&self.client, command).await?;
            // After a second try nobody knows who deleted it, and we have not been silent long enough to seem gone.
            Ok(if deleted == letters.len() || tries > 1 { only_values(letters) } else { Vec::new() })
        })
    }

    fn take_back<'a>(&'a self, of: &'a str) -> Pending<'a, Vec<Vec<u8>>> {
        Box::pin(async move {
            let mut command = self.script(TAKE_BACK, &[&format!("mail:{of}"), &format!("returned:{of}")]);
            command.arg(milliseconds(REMEMBERED));
            let streamed: Streamed = self.ask(command).await?;
            Ok(only_values(streamed))
        })
    }
}

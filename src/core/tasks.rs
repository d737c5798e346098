//! Tasks: calls that upstreams finish later. A result that begins a task is recorded on its way to the
//! client, and every later message about a task passes through here in both directions.
//!
//! Invariant: a client sees only the tasks that it began, under ids that are unique for it.

use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::connection::Connection;
use super::upstream::Upstream;
use crate::config::Transport;
use crate::json::{Node, Scanner, quote};
use crate::protocol::era::meta;
use crate::transport::peer::Answer;

/// The largest number of tasks that are remembered per client. The oldest are forgotten first.
const MOST_TASKS: usize = 1000;
/// The length of a replica's id.
const ID_LENGTH: usize = 16;
/// The number of tasks on a page of `tasks/list`.
const PAGE: usize = 100;

/// The tasks of one client.
#[derive(Default)]
pub struct Tasks {
    table: Mutex<TaskTable>,
    home: OnceLock<TaskHome>,
}

/// Where tasks live that clients may ask any replica about.
pub struct TaskHome {
    /// The replica, which stands in the ids of its tasks.
    pub replica: Arc<str>,
    /// Takes note of a task whose server outlives the replica, and of how long it may be asked for.
    pub note: TakeNote,
}

/// Takes note of a task, for so long.
pub type TakeNote = Box<dyn Fn(&TaskNote, Duration) + Send + Sync>;

/// What another replica needs to know of a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskNote {
    /// The client's id.
    pub id: String,
    /// The upstream's id.
    pub own: String,
    /// The upstream's group.
    pub group: String,
    /// The upstream's key in its group.
    pub server: String,
}

/// How long a task may be asked for whose server does not say it.
const LONGEST_TASK: Duration = Duration::from_secs(24 * 60 * 60);

/// The replica that stands in the id of a task.
pub fn home_in(id: &str) -> Option<&str> {
    let (_, home) = id.rsplit_once('~')?;
    (home.len() == ID_LENGTH && home.bytes().all(|byte| byte.is_ascii_hexdigit())).then_some(home)
}

#[derive(Default)]
struct TaskTable {
    /// The tasks in the order in which they began.
    tasks: Vec<Task>,
    begun: u64,
}

impl TaskTable {
    fn push(&mut self, task: Task) {
        self.tasks.push(task);
        if self.tasks.len() > MOST_TASKS {
            self.tasks.remove(0);
        }
    }

    /// The task with this id at the upstream.
    fn find(&self, connection: &Arc<Connection>, own: &str) -> Option<&Task> {
        self.tasks.iter().find(|task| *task.own == *own && task.is_of(connection))
    }
}

struct Task {
    number: u64,
    /// The client's id.
    id: Arc<str>,
    /// The upstream's id.
    own: Box<str>,
    upstream: Weak<Upstream>,
    /// The connection. The tasks of a process end with it, and the next process may reuse their ids.
    connection: Weak<Connection>,
    /// Our request that began the task, whose id is the progress token, and the client's own token, raw.
    progress: Option<(u64, Box<str>)>,
    /// Whether the task's tool has an app, which needs the result as it came.
    has_app: bool,
    /// Whether the client still has something to expect of the task.
    expected: Expected,
}

/// Whether a client still has something to expect of a task.
enum Expected {
    /// The result, or the news that there is none.
    Outcome,
    /// The same, until the upstream may forget the task.
    OutcomeUntil(Instant),
    /// Nothing: the client knows how the task ended.
    Nothing,
}

impl Task {
    fn is_of(&self, connection: &Arc<Connection>) -> bool {
        std::ptr::eq(self.upstream.as_ptr(), &*connection.upstream)
            && (outlives_us(&connection.upstream) || std::ptr::eq(self.connection.as_ptr(), &**connection))
    }

    /// The connection over which the upstream can be asked about the task.
    fn connection(&self) -> Option<Arc<Connection>> {
        self.upstream.upgrade()?.connection().filter(|connection| self.is_of(connection))
    }

    fn place(&self) -> Option<TaskPlace> {
        let (id, own, has_app) = (self.id.clone(), self.own.to_string(), self.has_app);
        Some(TaskPlace { id, connection: self.connection()?, own, has_app })
    }
}

/// Whether the tasks of an upstream go on when a connection to it ends.
fn outlives_us(upstream: &Upstream) -> bool {
    matches!(upstream.spec().transport, Transport::Http(_))
}

/// The address of a task at its upstream.
pub struct TaskPlace {
    /// The client's id.
    pub id: Arc<str>,
    /// The connection to the upstream.
    pub connection: Arc<Connection>,
    /// The upstream's id.
    pub own: String,
    /// Whether the task's tool has an app.
    pub has_app: bool,
}

impl Tasks {
    /// Records a task that the client has begun, and returns the client's id for it. `task` is what the
    /// upstream says about it.
    fn begin(
        &self,
        connection: &Arc<Connection>,
        own: &str,
        task: Node<'_>,
        progress: Option<(u64, Box<str>)>,
    ) -> Arc<str> {
        let mut table = self.table.lock();
        if let Some(known) = table.find(connection, own) {
            return known.id.clone();
        }
        let is_taken = |id: &str| table.tasks.iter().any(|task| *task.id == *id);
        let home = self.home.get();
        let suffix = home.map(|home| format!("~{}", home.replica)).unwrap_or_default();
        let mut id = format!("{own}{suffix}");
        let mut count = 1;
        while is_taken(&id) {
            count += 1;
            id = format!("{own}~{count}{suffix}");
        }
        let id: Arc<str> = id.into();
        table.begun += 1;
        let number = table.begun;
        let (upstream, way) = (Arc::downgrade(&connection.upstream), Arc::downgrade(connection));
        let ttl = ["ttl", "ttlMs"].iter().find_map(|key| task.get(key)?.raw().parse::<f64>().ok());
        let ttl = ttl.and_then(|ms| Duration::try_from_secs_f64(ms / 1000.0).ok());
        let expected = ttl.and_then(|ttl| Instant::now().checked_add(ttl));
        let expected = expected.map_or(Expected::Outcome, Expected::OutcomeUntil);
        if let Some(home) = home.filter(|_| outlives_us(&connection.upstream)) {
            let note = TaskNote {
                id: id.to_string(),
                own: own.to_owned(),
                group: connection.upstream.group.to_string(),
                server: connection.upstream.server.to_string(),
            };
            (home.note)(&note, ttl.unwrap_or(LONGEST_TASK));
        }
        table.push(Task {
            number,
            id: id.clone(),
            own: own.into(),
            upstream,
            connection: way,
            progress,
            has_app: false,
            expected,
        });
        id
    }

    /// Lets clients ask any replica about the tasks that begin from now on.
    pub fn live_at(&self, home: TaskHome) {
        // Whoever comes second says the same.
        let _ = self.home.set(home);
    }

    /// Takes over a task that was begun at a replica which is gone.
    pub fn adopt(&self, note: &TaskNote, upstream: &Arc<Upstream>) {
        let mut table = self.table.lock();
        if table.tasks.iter().any(|task| *task.id == *note.id) || !outlives_us(upstream) {
            return;
        }
        table.begun += 1;
        let number = table.begun;
        table.push(Task {
            number,
            id: note.id.as_str().into(),
            own: note.own.as_str().into(),
            upstream: Arc::downgrade(upstream),
            connection: Weak::new(),
            progress: None,
            has_app: false,
            expected: Expected::Outcome,
        });
    }

    /// Whether the client still expects something of a task of this connection.
    pub(super) fn any_open(&self, connection: &Arc<Connection>) -> bool {
        let table = self.table.lock();
        table.tasks.iter().filter(|task| task.is_of(connection)).any(|task| match task.expected {
            Expected::Outcome => true,
            Expected::OutcomeUntil(end) => Instant::now() < end,
            Expected::Nothing => false,
        })
    }

    /// Notes what an upstream answered to a request about a task. The task is over for its client once the
    /// client has the result, or hears that there is none.
    pub fn answered(&self, id: &str, method: &str, answer: &Answer<'_>) {
        let is_over = match answer {
            Answer::Result(result) => {
                let status = result.get("status").and_then(Node::as_str);
                let has_result = method == "tasks/result" || result.get("result").is_some();
                has_result || matches!(status.as_deref(), Some("failed" | "cancelled"))
            }
            Answer::Error(_) => true,
            Answer::Lost(_) => false,
        };
        if is_over && let Some(task) = self.table.lock().tasks.iter_mut().find(|task| *task.id == *id) {
            task.expected = Expected::Nothing;
        }
    }

    /// The address of the task with this client's id.
    pub fn find(&self, id: &str) -> Option<TaskPlace> {
        let table = self.table.lock();
        let task = table.tasks.iter().find(|task| *task.id == *id)?;
        task.place()
    }

    /// Notes that the tool of the task with this client's id has an app.
    pub fn note_app(&self, id: &str) {
        let mut table = self.table.lock();
        if let Some(task) = table.tasks.iter_mut().find(|task| *task.id == *id) {
            task.has_app = true;
        }
    }

    /// The next tasks after the one with this number, and the number to continue from, if there are more.
    pub fn page(&self, after: u64) -> (Vec<TaskPlace>, Option<u64>) {
        let table = self.table.lock();
        let rest = table.tasks.iter().filter(|task| task.number > after);
        let shown: Vec<&Task> = rest.take(PAGE).collect();
        let last = shown.last().map(|task| task.number);
        let more = last.filter(|last| table.tasks.iter().any(|task| task.number > *last));
        (shown.iter().filter_map(|task| task.place()).collect(), more)
    }

    /// The client's id for a task of this upstream, if the client began it.
    pub(super) fn known(&self, connection: &Arc<Connection>, own: &str) -> Option<Arc<str>> {
        self.table.lock().find(connection, own).map(|task| task.id.clone())
    }

    /// The client's own progress token for the task that began with this request of ours.
    pub(super) fn progress_token(&self, connection: &Arc<Connection>, request: u64) -> Option<Box<str>> {
        let table = self.table.lock();
        let tasks = table.tasks.iter().filter(|task| task.is_of(connection));
        let mut tokens = tasks.filter_map(|task| task.progress.as_ref());
        tokens.find(|(id, _)| *id == request).map(|(_, token)| token.clone())
    }
}

/// Passes a result on with the client's ids of tasks. `begun_by` is our request with the client's progress
/// token, for a result that begins a task.
pub(super) fn results(
    tasks: &Tasks,
    connection: &Arc<Connection>,
    method: &str,
    begun_by: Option<(u64, Box<str>)>,
    result: Node<'_>,
    hand_on: impl FnOnce(Node<'_>),
) {
    if !result.members().any(|(key, _)| matches!(&*key, "task" | "taskId" | "_meta")) {
        return hand_on(result);
    }
    let id_in = |node: Node<'_>| node.get("taskId").and_then(Node::as_str).map(|id| id.into_owned());
    let legacy = result.get("task").filter(|task| method == "tools/call" && task.is_object());
    let is_modern = result.get("resultType").is_some_and(|kind| kind.raw() == "\"task\"");
    let (mut id, mut task) = (None, None);
    if let Some(own) = legacy.and_then(id_in) {
        let mut text = Vec::new();
        let begun = legacy.expect("it has an id");
        let known = quote(&tasks.begin(connection, &own, begun, begun_by));
        begun.write_with(&mut text, &[("taskId", Some(&known))]);
        task = Some(String::from_utf8(text).expect("written from UTF-8 texts"));
    } else if method == "tools/call" && is_modern {
        id = id_in(result).map(|own| tasks.begin(connection, &own, result, begun_by));
    } else if method.starts_with("tasks/") {
        id = id_in(result).and_then(|own| tasks.known(connection, &own));
    }
    let id = id.map(|id| quote(&id));
    let related = related(tasks, connection, result);
    let changes: Vec<(&str, Option<&str>)> = [("taskId", &id), ("task", &task), ("_meta", &related)]
        .into_iter()
        .filter_map(|(key, value)| value.as_deref().map(|value| (key, Some(value))))
        .collect();
    if changes.is_empty() {
        return hand_on(result);
    }
    let mut text = Vec::new();
    result.write_with(&mut text, &changes);
    hand_on(Scanner::default().scan(&text).expect("written as valid JSON").root());
}

/// The id of the task that a message belongs to.
pub(super) fn related_id(message: Node<'_>) -> Option<String> {
    let id = message.get("_meta")?.get(meta::RELATED_TASK)?.get("taskId")?;
    id.as_str().map(|id| id.into_owned())
}

/// The `_meta` of a message that belongs to a task, with the client's id of the task.
fn related(tasks: &Tasks, connection: &Arc<Connection>, message: Node<'_>) -> Option<String> {
    let known = tasks.known(connection, &related_id(message)?)?;
    Some(with_related(message, &known))
}

/// The `_meta` of a message that belongs to a task, with this id of the task.
pub(super) fn with_related(message: Node<'_>, id: &str) -> String {
    let own = message.get("_meta").expect("it names a task");
    let related = own.get(meta::RELATED_TASK).expect("it names a task");
    let mut text = Vec::new();
    related.write_with(&mut text, &[("taskId", Some(&quote(id)))]);
    let related = String::from_utf8(text).expect("written from UTF-8 texts");
    let mut text = Vec::new();
    own.write_with(&mut text, &[(meta::RELATED_TASK, Some(&related))]);
    String::from_utf8(text).expect("written from UTF-8 texts")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The result as the client gets it.
    fn shown(tasks: &Tasks, connection: &Arc<Connection>, method: &str, result: &str) -> String {
        let mut scanner = Scanner::default();
        let node = scanner.scan_str(result).unwrap().root();
        let mut shown = String::new();
        results(tasks, connection, method, Some((7, "\"t\"".into())), node, |node| {
            shown = node.raw().to_owned()
        });
        shown
    }

    #[test]
    fn ids_are_kept_unless_another_upstream_has_them() {
        let tasks = Tasks::default();
        let [a, b] = ["a", "b"].map(|name| {
            let upstream = Upstream::unreal(name, name);
            upstream.pretend(Some(Default::default()));
            upstream.connection().unwrap()
        });
        let legacy = r#"{"task":{"taskId":"1","x":1.0}}"#;
        assert_eq!(shown(&tasks, &a, "tools/call", legacy), legacy);
        assert_eq!(shown(&tasks, &b, "tools/call", legacy), r#"{"task":{"taskId":"1~2","x":1.0}}"#);
        assert_eq!(
            shown(&tasks, &b, "tools/call", r#"{"resultType":"task","taskId":"2"}"#),
            r#"{"resultType":"task","taskId":"2"}"#
        );
        let related = r#"{"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"1"},"y":2}}"#;
        assert_eq!(shown(&tasks, &a, "tasks/result", related), related);
        assert_eq!(shown(&tasks, &b, "tasks/result", related), related.replace("\"1\"", "\"1~2\""));
        assert_eq!(shown(&tasks, &b, "tasks/get", r#"{"taskId":"1"}"#), r#"{"taskId":"1~2"}"#);
        // Results that are not about tasks stay unchanged, and so do tasks that the client did not begin.
        for (method, other) in
            [("tools/call", r#"{"taskId":"1"}"#), ("tasks/get", r#"{"taskId":"9"}"#), ("prompts/get", legacy)]
        {
            assert_eq!(shown(&tasks, &b, method, other), other);
        }
        assert!(Arc::ptr_eq(&tasks.find("1~2").unwrap().connection, &b));
        assert_eq!(tasks.find("1~2").unwrap().own, "1");
        assert_eq!(tasks.progress_token(&a, 7).as_deref(), Some("\"t\""));
        assert_eq!(tasks.progress_token(&a, 8), None);
        let (page, next) = tasks.page(0);
        assert_eq!(page.iter().map(|place| &*place.id).collect::<Vec<_>>(), ["1", "1~2", "2"]);
        assert_eq!(next, None);
        // The next process may reuse the id for another task.
        a.upstream.pretend(None);
        a.upstream.pretend(Some(Default::default()));
        assert!(tasks.find("1").is_none());
    }

    #[test]
    fn ids_of_several_replicas_are_told_apart_and_lead_home() {
        let upstream = Upstream::unreal("a", "a");
        upstream.pretend(Some(Default::default()));
        let connection = upstream.connection().unwrap();
        let ids: Vec<String> = ["0123456789abcdef", "fedcba9876543210"]
            .into_iter()
            .flat_map(|replica| {
                let tasks = Tasks::default();
                tasks.live_at(TaskHome {
                    replica: replica.into(),
                    note: Box::new(|_, _| panic!("it ends with us")),
                });
                let nothing = Scanner::default().scan_str("{}").unwrap().root().raw().to_owned();
                let begin = |connection: &Arc<Connection>| {
                    let mut scanner = Scanner::default();
                    tasks.begin(connection, "1", scanner.scan_str(&nothing).unwrap().root(), None).to_string()
                };
                let first = begin(&connection);
                upstream.pretend(None);
                upstream.pretend(Some(Default::default()));
                [first, begin(&upstream.connection().unwrap())]
            })
            .collect();
        assert_eq!(ids[..2], ["1~0123456789abcdef", "1~2~0123456789abcdef"]);
        assert_eq!(home_in(&ids[3]), Some("fedcba9876543210"));
        assert_eq!([home_in("1"), home_in("1~2"), home_in("1~0123456789abcdeg")], [None; 3]);
    }

    #[test]
    fn pages_end_and_the_oldest_are_forgotten() {
        let tasks = Tasks::default();
        let upstream = Upstream::unreal("a", "a");
        upstream.pretend(Some(Default::default()));
        let connection = upstream.connection().unwrap();
        for n in 0..MOST_TASKS + 10 {
            tasks.begin(&connection, &n.to_string(), Scanner::default().scan_str("{}").unwrap().root(), None);
        }
        assert!(tasks.find("9").is_none());
        let (mut seen, mut after) = (Vec::new(), 0);
        loop {
            let (page, next) = tasks.page(after);
            seen.extend(page.into_iter().map(|place| place.own));
            match next {
                Some(next) => after = next,
                None => break,
            }
        }
        assert_eq!(seen, (10..MOST_TASKS + 10).map(|n| n.to_string()).collect::<Vec<_>>());
    }
}

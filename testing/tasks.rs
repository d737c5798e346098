//! Tasks, in the shape of either era: begun by the tool `job`, they work until `finish` says so.

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::peer::Peer;

/// One of them.
pub(crate) struct Task {
    id: String,
    status: &'static str,
    /// The answers that it was given.
    inputs: Value,
    /// Its result, if `finish` said which.
    result: Option<Value>,
}

impl Task {
    /// As the era shows it; a modern one holds its result, or its question.
    fn shown(&self, modern: bool) -> Value {
        let (ttl, interval) = if modern { ("ttlMs", "pollIntervalMs") } else { ("ttl", "pollInterval") };
        let mut task = json!({
            "taskId": self.id, "status": self.status, "createdAt": "2026-01-01T00:00:00Z",
            "lastUpdatedAt": "2026-01-01T00:00:00Z", ttl: 60000, interval: 10,
        });
        match (modern, self.status) {
            (true, "completed") => task["result"] = self.result(),
            (true, "input_required") => {
                let question = json!({"method": "elicitation/create", "params": {"message": "Who?"}});
                task["inputRequests"] = json!({"who": question});
            }
            _ => {}
        }
        task
    }

    fn result(&self) -> Value {
        if let Some(result) = &self.result {
            return result.clone();
        }
        let text = format!("{} is done with {}", self.id, self.inputs);
        json!({"content": [{"type": "text", "text": text}]})
    }
}

/// Begins a task and returns the result that says so.
pub(crate) fn begin(peer: &Peer, modern: bool) -> Value {
    peer.update(|heard| {
        let id = format!("task-{}", heard.tasks.len() + 1);
        heard.tasks.push(Task { id, status: "working", inputs: Value::Null, result: None });
        let mut shown = heard.tasks[heard.tasks.len() - 1].shown(modern);
        if !modern {
            return json!({"task": shown});
        }
        shown["resultType"] = json!("task");
        shown
    })
}

/// Lets a task have another status, and tells whoever wants to hear of it.
pub(crate) fn set_status(peer: &Peer, id: &str, status: &str, result: Option<Value>) {
    let status =
        ["working", "input_required", "completed", "cancelled"].into_iter().find(|known| *known == status);
    let shown = peer.update(|heard| {
        let task = heard.tasks.iter_mut().find(|task| task.id == id)?;
        task.status = status.expect("a status");
        task.result = result;
        Some([task.shown(false), task.shown(true)])
    });
    let Some([legacy, modern]) = shown else { return };
    if peer.update(|heard| heard.initialize.is_some()) {
        peer.notify("notifications/tasks/status", Some(&legacy.to_string()));
    }
    peer.notify("notifications/tasks", Some(&modern.to_string()));
}

/// Answers a request about a task.
pub(crate) fn request(peer: &Peer, key: &RawValue, method: &str, params: Option<&RawValue>) {
    #[derive(Deserialize, Default)]
    #[serde(rename_all = "camelCase", default)]
    struct Params {
        task_id: String,
        input_responses: Value,
    }
    let params: Params =
        params.and_then(|params| serde_json::from_str(params.get()).ok()).unwrap_or_default();
    let modern = peer.is_modern(key);
    let known = peer.update(|heard| {
        let task = heard.tasks.iter_mut().find(|task| task.id == params.task_id)?;
        match method {
            "tasks/cancel" => task.status = "cancelled",
            "tasks/update" => {
                task.inputs = params.input_responses.clone();
                task.status = "working";
            }
            _ => {}
        }
        Some(task.shown(modern))
    });
    match (known, method) {
        (None, _) => peer.error(key, r#"{"code":-32602,"message":"no such task"}"#),
        (Some(_), "tasks/cancel" | "tasks/update") if modern => peer.result(key, "{}"),
        (Some(_), "tasks/result") => {
            let finished = |task: &&Task| task.id == params.task_id && task.status == "completed";
            let mut result = peer.wait(|heard| heard.tasks.iter().find(finished).map(Task::result));
            result["_meta"]["io.modelcontextprotocol/related-task"] = json!({"taskId": params.task_id});
            peer.result(key, &result.to_string());
        }
        (Some(task), _) => peer.result(key, &task.to_string()),
    }
}

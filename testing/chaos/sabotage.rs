//! Lies between the gateway and its clients, each of which the oracle must notice.

/// What is done to the messages of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sabotage {
    /// Every answer is an error, as it would come if the call ran out of time.
    Errors,
    /// One byte of one result is another.
    Byte,
    /// Two answers change places. Where answers come one at a time, the later one is the earlier one's.
    Swap,
    /// A result has one block more.
    Block,
    /// An answer does not come.
    Missing,
    /// An answer comes again.
    Again,
    /// A report of progress comes again.
    Progress,
}

impl std::str::FromStr for Sabotage {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        Ok(match text {
            "errors" => Self::Errors,
            "byte" => Self::Byte,
            "swap" => Self::Swap,
            "block" => Self::Block,
            "missing" => Self::Missing,
            "again" => Self::Again,
            "progress" => Self::Progress,
            _ => return Err(format!("no such sabotage: {text}")),
        })
    }
}

/// Sabotages the messages of one client: once, and errors for ever.
pub(crate) struct Saboteur {
    what: Option<Sabotage>,
    /// Whether answers come one at a time, so that none can be held back.
    one_by_one: bool,
    held: Option<String>,
    /// A report of progress that has come.
    progress: Option<String>,
}

impl Saboteur {
    pub(crate) fn new(what: Option<Sabotage>, one_by_one: bool) -> Self {
        Self { what, one_by_one, held: None, progress: None }
    }

    /// What becomes of a message; `label` names the call that an id (raw) belongs to.
    pub(crate) fn pass(&mut self, message: String, label: impl Fn(&str) -> Option<String>) -> Vec<String> {
        if self.what.is_none() {
            return vec![message];
        }
        if message.contains("\"notifications/progress\"") {
            self.progress = Some(message.clone());
        }
        let call = parts(&message).and_then(|(id, result)| Some((id, result, label(id)?)));
        let Some((id, result, label)) = call else { return vec![message] };
        let answer =
            |id: &str, result: &str| format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{result}}}");
        let sabotaged = match self.what {
            Some(Sabotage::Errors) => return vec![answer(id, &error(&label, result))],
            Some(Sabotage::Byte) => match result.rfind("mark-") {
                None => return vec![message],
                Some(at) => vec![answer(id, &format!("{}n{}", &result[..at], &result[at + 1..]))],
            },
            Some(Sabotage::Swap) => match self.held.take() {
                None if self.one_by_one => {
                    self.held = Some(message.clone());
                    return vec![message];
                }
                None => {
                    self.held = Some(message);
                    return Vec::new();
                }
                Some(held) => {
                    let (earlier, earlier_result) = parts(&held).expect("an answer");
                    let mut swapped = vec![answer(id, earlier_result)];
                    if !self.one_by_one {
                        swapped.push(answer(earlier, result));
                    }
                    swapped
                }
            },
            Some(Sabotage::Block) => {
                let block = "\"content\":[{\"type\":\"text\",\"text\":\"\"},";
                vec![answer(id, &result.replacen("\"content\":[", block, 1))]
            }
            Some(Sabotage::Missing) => Vec::new(),
            Some(Sabotage::Again) => vec![message.clone(), message],
            Some(Sabotage::Progress) => match self.progress.take() {
                None => return vec![message],
                Some(progress) => vec![progress, message],
            },
            None => return vec![message],
        };
        self.what = None;
        sabotaged
    }
}

/// The id and the result of an answer, raw.
fn parts(message: &str) -> Option<(&str, &str)> {
    let rest = message.trim_end().strip_prefix("{\"jsonrpc\":\"2.0\",\"id\":")?.strip_suffix('}')?;
    rest.split_once(",\"result\":")
}

/// An error of the gateway, of the era that the result is of.
fn error(label: &str, result: &str) -> String {
    let message = "timeout: the longest time for a call is over";
    let era = result.rsplit_once(",\"io.modelcontextprotocol/serverInfo\":");
    let end =
        era.map_or("}}".to_owned(), |(_, end)| format!(",\"io.modelcontextprotocol/serverInfo\":{end}"));
    format!(
        "{{\"content\":[{{\"type\":\"text\",\"text\":\"[{label}] {message}\"}}],\"isError\":true,\
         \"_meta\":{{\"mcp-workbench/error\":{{\"code\":-32000,\"message\":\"{message}\"}}{end}"
    )
}

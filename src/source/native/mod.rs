//! The native tools: `read, write, edit, list, fetch, time, exec`. Each is off unless configuration allows it by name.
//!
//! Invariant: files stay inside one root, however the path is written and whatever the file system does meanwhile; `fetch`
//! reaches the hosts of its list and no address behind them that is not public; nothing takes longer than
//! 30 s or gives more than its cap.

mod address;
mod exec;
mod fetch;
mod files;
mod root;

use std::{sync::Arc, time::Duration};

use futures::future::BoxFuture;
use serde_json::{Map, Value, json};

use super::FixedSource;
use crate::{
    catalog::{Annotations, Invocation, Invoke, Tool, ToolDefinition, ToolId, ToolOutput},
    config::{NativeSettings, NativeTool},
    tool_error::{ToolError, ToolErrorCode},
};

/// How long a native tool may take, whatever the run's limits.
const MAX_DURATION: Duration = Duration::from_secs(30);

/// The allowed native tools as a source, `openclaw:core:*`; `None` when none is allowed.
pub fn source(settings: &NativeSettings) -> Option<FixedSource> {
    let mut allowed = settings.allow.clone();
    allowed.sort_unstable();
    allowed.dedup();
    if allowed.is_empty() {
        return None;
    }
    let root = root::Root::new(&settings.root);
    let tools = allowed.into_iter().map(|kind| Arc::new(tool(kind, settings, &root)));
    Some(FixedSource::new("openclaw", "core", tools.collect()))
}

fn tool(kind: NativeTool, settings: &NativeSettings, root: &root::Root) -> Tool {
    let work: Work = match kind {
        NativeTool::Read => files::read(root.clone()),
        NativeTool::Write => files::write(root.clone()),
        NativeTool::Edit => files::edit(root.clone()),
        NativeTool::List => files::list(root.clone()),
        NativeTool::Fetch => fetch::fetch(&settings.hosts),
        NativeTool::Time => Box::new(|_| Box::pin(async { Ok(time()) })),
        NativeTool::Exec => exec::exec(root, &settings.env),
    };
    let definition = definition(kind);
    let id = ToolId::new("openclaw", "core", &definition.name);
    Tool::from_source(id, definition, Arc::new(Native(work)))
}

/// What does the work of `fetch_image`: an image from a host of the list.
pub(crate) fn fetch_image(hosts: &[String]) -> Arc<dyn Invoke> {
    Arc::new(Native(fetch::fetch_image(hosts)))
}

/// What a native tool does with its validated arguments.
type Work = Box<dyn Fn(Map<String, Value>) -> BoxFuture<'static, Result<ToolOutput, ToolError>> + Send + Sync>;

struct Native(Work);

impl Invoke for Native {
    fn invoke(&self, invocation: Invocation) -> BoxFuture<'static, Result<ToolOutput, ToolError>> {
        let id = invocation.tool.id.to_string();
        let work = (self.0)(invocation.args);
        Box::pin(async move {
            tokio::time::timeout(MAX_DURATION, work).await.unwrap_or_else(|_| {
                Err(ToolError::new(
                    ToolErrorCode::ToolTimeout,
                    format!("{id} took longer than {} s", MAX_DURATION.as_secs()),
                ))
            })
        })
    }
}

fn definition(kind: NativeTool) -> ToolDefinition {
    let text = |description: &str| json!({ "type": "string", "description": description });
    let number = |description: &str| json!({ "type": "integer", "minimum": 1, "description": description });
    let path = || text("Path below the root, e.g. notes/today.md.");
    let (name, description, properties, required, read_only, destructive) = match kind {
        NativeTool::Read => (
            "read",
            "Read a text file. Use it to see a file's content, from a line on for a long one. Returns the text; says when there is more.",
            json!({ "path": path(), "offset": number("First line, from 1."), "limit": number("Number of lines.") }),
            json!(["path"]),
            true,
            false,
        ),
        NativeTool::Write => (
            "write",
            "Write a text file, making it or replacing all of it. Use edit to change a part. Returns the number of bytes written.",
            json!({ "path": path(), "content": text("The whole new content.") }),
            json!(["path", "content"]),
            false,
            false,
        ),
        NativeTool::Edit => (
            "edit",
            "Replace a piece of text in a file. Use it for small changes; old must be there exactly once unless all is true. Returns the number of replacements.",
            json!({
                "path": path(),
                "old": text("Text to replace, exactly as it stands in the file."),
                "new": text("Text to put in its place."),
                "all": { "type": "boolean", "description": "Replace every occurrence." },
            }),
            json!(["path", "old", "new"]),
            false,
            false,
        ),
        NativeTool::List => (
            "list",
            "List a folder. Use it to find files. Returns entries with path, type and bytes; says when there are more.",
            json!({ "path": text("Folder below the root; the root itself when left out."), "depth": { "type": "integer", "minimum": 1, "maximum": 8, "description": "Levels of folders to go into; 1 when left out." } }),
            json!([]),
            true,
            false,
        ),
        NativeTool::Fetch => (
            "fetch",
            "Get a text resource by http or https from an allowed host. Use it for pages and APIs that need no login. Returns status, final URL, content type and text.",
            json!({ "url": text("The whole URL.") }),
            json!(["url"]),
            true,
            false,
        ),
        NativeTool::Time => (
            "time",
            "Tell the present time. Use it for anything that depends on today. Returns UTC as ISO text and milliseconds since 1970.",
            json!({}),
            json!([]),
            true,
            false,
        ),
        NativeTool::Exec => (
            "exec",
            "Run a shell command in the root folder. Use it when no other tool fits. Returns exit code, stdout and stderr.",
            json!({ "command": text("Command for /bin/sh."), "stdin": text("Text for its standard input.") }),
            json!(["command"]),
            false,
            true,
        ),
    };
    ToolDefinition {
        name: name.to_owned(),
        description: description.to_owned(),
        input_schema:
            json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false })
                .into(),
        annotations: Annotations {
            read_only_hint: Some(read_only),
            destructive_hint: Some(destructive),
            open_world_hint: Some(matches!(kind, NativeTool::Fetch | NativeTool::Exec)),
            ..Annotations::default()
        },
        direct: true,
        ..ToolDefinition::default()
    }
}

fn time() -> ToolOutput {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let millis = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
    json!({ "utc": crate::telemetry::utc_now(), "epochMs": millis }).into()
}

/// A text argument that the schema has shown to be there.
fn text_argument<'a>(args: &'a Map<String, Value>, name: &str) -> &'a str {
    args.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn number_argument(args: &Map<String, Value>, name: &str) -> Option<usize> {
    args.get(name).and_then(Value::as_u64).map(|number| usize::try_from(number).unwrap_or(usize::MAX))
}

fn failed(message: impl Into<String>) -> ToolError {
    ToolError::new(ToolErrorCode::ToolError, message)
}

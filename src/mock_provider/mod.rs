//! A deterministic stand-in for a model provider, with OpenAI's two HTTP interfaces.
//!
//! It exists so that everything that talks to a model can be shown end to end without one. It plans only from what a request
//! holds: the task from the last user message, the means from the tools that are offered, ids from search answers. Invariant:
//! the same request gets the same answer (ids and numbers of requests apart), and nothing of any catalog is known here. It
//! refuses what a real provider refuses: unanswered tool calls, names and strict schemas that are not allowed.
//!
//! It must never be mistaken for a model: `toolbridge mock-provider` and tests start it, nothing else does.

mod conversation;
mod plan;
mod record;
mod script;
mod server;
mod usage;
mod wire;

use std::{
    collections::HashSet,
    net::SocketAddr,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

pub use record::{End, RecordedRequest};
pub use script::{Act, ScriptedCall, Step, parse_script};
use tokio::{net::TcpListener, sync::watch, task::JoinHandle};

use record::Recorder;
use script::Script;
use usage::TokenCounter;

/// How a mock provider is started.
#[derive(Debug, Clone)]
pub struct MockOptions {
    /// Address and port; port 0 takes a free one.
    pub listen: String,
    /// What it does with the first requests for an answer; afterwards, and without, it plans.
    pub script: Vec<Step>,
    /// A file that every request is appended to as JSON, one a line.
    pub record: Option<PathBuf>,
    /// The bearer token that it takes; any when absent.
    pub key: Option<String>,
    /// Models that it lists; every model's name is answered.
    pub models: Vec<String>,
    /// Whether requests are kept for [`MockProvider::requests`]; their bodies stay in memory.
    pub keep: bool,
    /// Whether usage is counted with the tokenizer; else it is a quarter of the bytes.
    pub exact_usage: bool,
    /// Where requests are passed on to instead of being answered here: an address that ends in `/v1`. What is recorded stays
    /// the same. The script is not used then.
    pub forward_to: Option<String>,
    /// What it searches for instead of a task's words: shows that whatever builds on it depends on search.
    pub search_for: Option<String>,
}

impl Default for MockOptions {
    fn default() -> Self {
        Self {
            listen: "127.0.0.1:0".to_owned(),
            script: Vec::new(),
            record: None,
            key: None,
            models: vec!["mock".to_owned()],
            keep: true,
            exact_usage: true,
            forward_to: None,
            search_for: None,
        }
    }
}

/// Why a mock provider can not be started.
#[derive(Debug, thiserror::Error)]
pub enum MockError {
    /// The address can not be listened on.
    #[error("{address} can not be listened on: {reason}")]
    Listen {
        /// As given.
        address: String,
        /// What the system said.
        reason: String,
    },
    /// The file of requests can not be written.
    #[error("{file} can not be written: {reason}")]
    Record {
        /// As given.
        file: String,
        /// What the system said.
        reason: String,
    },
    /// The address that requests are passed on to is none.
    #[error("requests can not be passed on: {0}")]
    Forward(String),
}

/// A running mock provider; dropping it stops it.
#[derive(Debug)]
pub struct MockProvider {
    address: SocketAddr,
    shared: Arc<Shared>,
    server: JoinHandle<()>,
}

/// What the requests of one provider share.
#[derive(Debug)]
struct Shared {
    recorder: Recorder,
    /// Held for the moment in which a request takes its step.
    script: Mutex<Script>,
    key: Option<String>,
    models: Vec<String>,
    tokens: TokenCounter,
    forward: Option<server::Forward>,
    search_for: Option<String>,
    /// Goes up whenever a request arrives or ends, for whoever waits in [`MockProvider::until`].
    changed: watch::Sender<u64>,
}

impl MockProvider {
    /// Starts one on the current runtime.
    pub async fn start(options: MockOptions) -> Result<Self, MockError> {
        let listen_error = |error: std::io::Error| MockError::Listen {
            address: options.listen.clone(),
            reason: crate::system_error::words_of_listening(&error),
        };
        let listener = TcpListener::bind(&options.listen).await.map_err(listen_error)?;
        let address = listener.local_addr().map_err(listen_error)?;
        let recorder = Recorder::new(options.record.as_deref(), options.keep).map_err(|error| MockError::Record {
            file: options.record.as_ref().map(|file| file.display().to_string()).unwrap_or_default(),
            reason: crate::system_error::words(&error),
        })?;
        let forward = match &options.forward_to {
            Some(base) => Some(server::Forward::new(base).map_err(MockError::Forward)?),
            None => None,
        };
        let shared = Arc::new(Shared {
            recorder,
            script: Mutex::new(Script::new(options.script)),
            key: options.key,
            models: options.models,
            tokens: TokenCounter::new(options.exact_usage),
            forward,
            search_for: options.search_for,
            changed: watch::Sender::new(0),
        });
        let app = server::app(shared.clone());
        let server = tokio::spawn(async move {
            use axum::serve::ListenerExt;
            // Small events must not wait for each other's acknowledgement.
            let listener = listener.tap_io(|stream| {
                let _ = stream.set_nodelay(true);
            });
            // Ends only with the task: a listener that accepts no more is tried again by axum.
            let _ = axum::serve(listener, app).await;
        });
        Ok(Self { address, shared, server })
    }

    /// Its base address, which ends in `/v1`.
    pub fn url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// The requests so far, in the order in which they arrived.
    pub fn requests(&self) -> Vec<Arc<RecordedRequest>> {
        self.shared.recorder.requests()
    }

    /// Requests that asked for an answer (not for the list of models), in order.
    pub fn asked(&self) -> Vec<Arc<RecordedRequest>> {
        self.requests().into_iter().filter(|request| request.is_question()).collect()
    }

    /// Waits until the requests are as wanted; looks whenever one arrives or ends.
    pub async fn until(&self, wanted: impl Fn(&[Arc<RecordedRequest>]) -> bool) {
        let mut changes = self.shared.changed.subscribe();
        while !wanted(&self.requests()) {
            if changes.changed().await.is_err() {
                return;
            }
        }
    }

    /// Puts further steps behind those of the script.
    pub fn then(&self, steps: impl IntoIterator<Item = Step>) {
        self.shared.script.lock().unwrap_or_else(PoisonError::into_inner).extend(steps);
    }

    /// Steps of the script that no request has taken.
    pub fn steps_left(&self) -> u64 {
        self.shared.script.lock().unwrap_or_else(PoisonError::into_inner).left()
    }

    /// Names of the tools that any request has offered so far.
    pub fn offered(&self) -> HashSet<String> {
        self.requests().iter().flat_map(|request| request.offered()).collect()
    }
}

impl Drop for MockProvider {
    fn drop(&mut self) {
        self.server.abort();
    }
}

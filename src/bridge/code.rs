//! What answers `openclaw.tools.{search, describe, call}` of one program.

use std::sync::Arc;

use futures::future::BoxFuture;

use super::lookup::{self, Ids, Queries};
use crate::{
    catalog::View,
    dispatch::{self, CallOrigin, CallRequest, RawArguments, Surface},
    host::{RunOptions, SessionCore},
    protocol::BridgeOp,
    sandbox::{Bridge, BridgeReply, BridgeRequest},
    tool_error::{ToolError, ToolErrorCode},
};

/// The bridge of one run: its session, and the catalog that it keeps until it ends.
pub(crate) struct CodeBridge {
    run: Arc<Run>,
}

struct Run {
    session: Arc<SessionCore>,
    view: Arc<View>,
    id: Arc<str>,
    options: RunOptions,
}

impl CodeBridge {
    /// `options` say who listens to the run's calls and who approves them.
    pub(crate) fn new(session: Arc<SessionCore>, view: Arc<View>, id: Arc<str>, options: RunOptions) -> Self {
        Self { run: Arc::new(Run { session, view, id, options }) }
    }
}

impl Bridge for CodeBridge {
    fn answer(&self, request: BridgeRequest) -> BoxFuture<'static, BridgeReply> {
        let run = self.run.clone();
        Box::pin(async move { run.answer(request).await })
    }
}

impl Run {
    async fn answer(&self, request: BridgeRequest) -> BridgeReply {
        let parent = Some(self.id.clone());
        match request.op {
            BridgeOp::Call => {
                let _listed = self.options.in_flight.begin(&request.tool, &request.trace);
                let origin = CallOrigin {
                    surface: Surface::Code,
                    parent,
                    clock: Some(request.clock),
                    trace: request.trace,
                    progress: self.options.progress.clone(),
                    approver: self.options.approver.clone(),
                    heard: self.options.heard.clone(),
                    tool_timeout: self.options.tool_timeout,
                };
                let args = RawArguments::Text(request.payload);
                let call = CallRequest { selector: request.tool, args, repairs: Vec::new(), origin };
                dispatch::dispatch(&self.session, &self.view, call).await.map(|reply| reply.json)
            }
            BridgeOp::Search => {
                let input = read(&request.payload)?;
                lookup::search(&self.session, &self.view, Queries::read(input)?, parent)
            }
            BridgeOp::Describe => {
                let input = read(&request.payload)?;
                lookup::describe(&self.session, &self.view, &Ids::read(&input)?, parent)
            }
        }
    }
}

fn read(payload: &str) -> Result<serde_json::Value, ToolError> {
    serde_json::from_str(payload).map_err(|_| {
        ToolError::new(
            ToolErrorCode::InvalidArguments,
            "the argument can not be read: it is too deeply nested or not JSON",
        )
    })
}

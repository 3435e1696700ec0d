//! The tools that a client brought, as the catalog takes them.

use tokio::sync::mpsc;

use crate::{
    catalog::{Schema, ToolDefinition},
    host::Session,
    source::client::{self, ClientCall, ClientSource},
};

/// A tool that a client brought.
#[derive(Debug, Clone, PartialEq)]
pub struct ClientTool {
    /// Its name, as the client gave it.
    pub name: String,
    /// What it does.
    pub description: String,
    /// JSON Schema of its arguments.
    pub parameters: Schema,
    /// `strict`, as the client gave it.
    pub strict: Option<bool>,
}

impl ClientTool {
    /// The tool as it joins the catalog.
    fn definition(&self) -> ToolDefinition {
        ToolDefinition {
            name: self.name.clone(),
            description: self.description.clone(),
            input_schema: self.parameters.clone(),
            ..ToolDefinition::default()
        }
    }
}

/// All tools that a client brought. They can be kept for the next request that brings the same: what the catalog learns of them
/// is learned once.
#[derive(Debug, Default)]
pub struct ClientTools {
    list: Vec<ClientTool>,
    source: ClientSource,
}

impl ClientTools {
    /// From a list.
    pub fn new(list: Vec<ClientTool>) -> Self {
        let source = ClientSource::new(list.iter().map(ClientTool::definition).collect());
        Self { list, source }
    }

    /// The tools, as they were given.
    pub fn list(&self) -> &[ClientTool] {
        &self.list
    }

    /// The session with these tools, and the receiver of the calls that it makes of them.
    pub(crate) fn join(&self, session: &Session) -> (Session, mpsc::Receiver<ClientCall>) {
        let (calls, receiver) = client::calls();
        (session.with_client(&self.source, calls), receiver)
    }
}

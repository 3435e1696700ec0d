//! What a session may do on its own.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The three roles; each may do what the one before it may.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Sees and calls tools that change nothing.
    Reader,
    /// Writes too; what is dangerous needs somebody else's approval.
    #[default]
    Operator,
    /// May approve what is dangerous.
    Admin,
}

impl Role {
    /// The role's name in configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Reader => "reader",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }
}

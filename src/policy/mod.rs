//! Who may see and call what: rules, roles, approvals. Pure: no I/O, no clock of its own.
//!
//! Invariant: deny wins over everything, whatever the order; what is not understood (an unknown agent, profile or group, a
//! pattern that does not compile) is an error before anything is decided, never a rule that silently does not match.

mod approval;
mod decision;
mod gate;
mod pattern;
mod role;
mod rule;

pub use approval::{
    ApprovalAnswer, ApprovalRequest, ApprovalSource, Approver, ArgumentPattern, Grant, Grants, Preapproval,
    Preapprovals,
};
pub use decision::{AgentSettings, Decision, Policy, PolicyError, PolicySettings, ProfileSettings, Scope, ScopePolicy};
pub use gate::{Door, Gate, ToolSet};
pub use pattern::{Pattern, Patterns};
pub use role::Role;
pub use rule::{Effect, Match, MatchFields, Matcher, Rule};

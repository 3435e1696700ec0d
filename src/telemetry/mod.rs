//! Session log, redaction, counters.

mod agent_event;
mod clock_text;
mod event;
mod redact;
mod session_log;
mod tokens;

pub use agent_event::{AgentAttempt, AgentEnd, AgentMove, AgentStart, AgentStep, StepKind, TokensUsed};
pub use event::{
    ApprovalEvent, CallDecision, CallEvent, CatalogFigures, Event, ProviderRequestEvent, Row, SCHEMA_VERSION,
    SkillEvent, SourceCount, row_schema,
};
pub use redact::{REDACTED, Redactor};
pub use session_log::{LogLossSink, LogSettings, SessionLog, list_sessions, read_row_file, read_rows};
pub use tokens::count_tokens;

pub(crate) use clock_text::utc_now;
pub(crate) use tokens::can_count_at_once;

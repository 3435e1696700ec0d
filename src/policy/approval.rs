//! Asking a person, and remembering the answer for exactly what was asked.
//!
//! Invariant: a grant holds for one tool with one content (id, description, schemas), one pattern of arguments, a number of
//! calls and a time. Nothing that a program or a source says widens it. Nobody there is a no.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Match, Matcher, Pattern, PolicyError, Role, Scope};
use crate::catalog::{ContentHash, Tool, ToolId};

/// What a person is asked.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ApprovalRequest {
    /// Unique id of the question: the id of the call.
    pub id: String,
    /// The tool's real id.
    pub tool: String,
    /// What the tool says of itself, with secrets redacted.
    pub description: String,
    /// The arguments, with secrets redacted.
    pub args: Value,
    /// Why it is asked.
    pub reason: String,
    /// Which rule or hook asks.
    pub rule: String,
    /// The tool may destroy something: only an admin's yes counts.
    pub danger: bool,
    /// The session that calls.
    pub session: String,
    /// Its agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// How long the answer is waited for, milliseconds.
    pub timeout_ms: u64,
    /// The content of the tool that is asked about; none when it is no call of a tool, which could be made again.
    #[serde(skip)]
    pub fingerprint: Option<ContentHash>,
}

#[cfg(test)]
impl ApprovalRequest {
    /// A question about a call with these arguments, to be changed where a test is about something else.
    pub(crate) fn example(args: Value) -> Self {
        Self {
            id: "1".into(),
            tool: "mcp:a:b".into(),
            description: String::new(),
            args,
            reason: String::new(),
            rule: "danger".into(),
            danger: false,
            session: "s".into(),
            agent: None,
            timeout_ms: 1,
            fingerprint: None,
        }
    }
}

/// What comes back.
#[derive(Debug, Clone, PartialEq)]
pub enum ApprovalAnswer {
    /// Yes, for this much.
    Approved(Grant),
    /// No.
    Denied {
        /// Why, in the person's words.
        reason: Option<String>,
    },
    /// Not yet: the question stays open, and an answer to it holds for the same call when it is made again.
    Pending {
        /// Id of the open question.
        approval: String,
        /// How long it stays open.
        open_for: Duration,
    },
    /// There is nobody to ask.
    Nobody,
}

/// How far a yes reaches.
#[derive(Debug, Clone, PartialEq)]
pub struct Grant {
    /// Role of whoever answered.
    pub role: Role,
    /// For which arguments.
    pub args: ArgumentPattern,
    /// For how many calls, this one included.
    pub count: u32,
    /// For how long.
    pub valid_for: Duration,
}

impl Grant {
    /// Yes to exactly this call.
    pub fn once(role: Role) -> Self {
        Self { role, args: ArgumentPattern::Exact, count: 1, valid_for: Duration::from_mins(1) }
    }
}

/// Which arguments a grant covers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ArgumentPattern {
    /// Exactly the arguments that were asked about.
    Exact,
    /// Any arguments.
    Any,
    /// Arguments of which each named one fits its pattern (numbers and the like as JSON text).
    Fields(BTreeMap<String, String>),
}

/// Who can be asked: the terminal, an MCP client's elicitation, an approvals API.
pub trait Approver: Send + Sync {
    /// Asks. Dropping the future withdraws the question.
    fn ask(&self, request: ApprovalRequest) -> BoxFuture<'static, ApprovalAnswer>;
}

/// A yes given beforehand by whoever started the process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Preapproval {
    /// Which tools.
    pub matches: Match,
    /// For how many calls.
    pub count: u32,
}

/// Where an approval came from, for the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalSource {
    /// Given beforehand.
    Preapproved,
    /// Covered by an answer given earlier.
    Granted,
    /// Asked just now.
    Asked,
}

/// The answers that one session remembers.
#[derive(Debug, Default)]
pub struct Grants {
    /// Held for the length of a look-up, never across an await.
    held: Mutex<Vec<HeldGrant>>,
}

#[derive(Debug)]
struct HeldGrant {
    tool: ToolId,
    fingerprint: ContentHash,
    args: HeldArguments,
    left: u32,
    expires: Instant,
}

#[derive(Debug)]
enum HeldArguments {
    Exact(Map<String, Value>),
    Any,
    Fields(Vec<(String, Pattern)>),
}

impl Grants {
    /// Remembers a yes that has just been given for `args`; the call it was given for counts.
    pub fn remember(&self, tool: &Tool, args: &Map<String, Value>, grant: &Grant) -> Result<(), PolicyError> {
        let left = grant.count.saturating_sub(1);
        if left == 0 {
            return Ok(());
        }
        let held_args = match &grant.args {
            ArgumentPattern::Exact => HeldArguments::Exact(args.clone()),
            ArgumentPattern::Any => HeldArguments::Any,
            ArgumentPattern::Fields(fields) => {
                let compiled = fields.iter().map(|(key, pattern)| Ok((key.clone(), Pattern::new(pattern)?)));
                HeldArguments::Fields(compiled.collect::<Result<_, PolicyError>>()?)
            }
        };
        let expires = Instant::now() + grant.valid_for;
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.push(HeldGrant {
            tool: tool.id.clone(),
            fingerprint: *tool.fingerprint(),
            args: held_args,
            left,
            expires,
        });
        Ok(())
    }

    /// Takes one call from a remembered yes that covers this tool, as it is now, with these arguments.
    pub fn take(&self, tool: &Tool, args: &Map<String, Value>) -> bool {
        let now = Instant::now();
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.retain(|grant| grant.left > 0 && grant.expires > now);
        let covers = |grant: &&mut HeldGrant| {
            grant.tool == tool.id && grant.fingerprint == *tool.fingerprint() && grant.args.cover(args)
        };
        let Some(grant) = held.iter_mut().find(covers) else { return false };
        grant.left -= 1;
        true
    }
}

impl HeldArguments {
    fn cover(&self, args: &Map<String, Value>) -> bool {
        match self {
            Self::Any => true,
            Self::Exact(exact) => exact == args,
            Self::Fields(fields) => fields.iter().all(|(key, pattern)| match args.get(key) {
                Some(Value::String(text)) => pattern.matches(text),
                Some(other) => pattern.matches(&other.to_string()),
                None => false,
            }),
        }
    }
}

/// Approvals given beforehand, with the calls that are left; bound to the content that each tool had when first covered.
#[derive(Debug, Default)]
pub struct Preapprovals {
    rules: Vec<Matcher>,
    /// Held for the length of a look-up, never across an await.
    state: Mutex<PreapprovedState>,
}

#[derive(Debug, Default)]
struct PreapprovedState {
    left: Vec<u32>,
    seen: BTreeMap<ToolId, ContentHash>,
}

impl Preapprovals {
    /// Compiles them; `groups` are `tools.groups`.
    pub fn new(given: &[Preapproval], groups: &BTreeMap<String, Vec<String>>) -> Result<Self, PolicyError> {
        let rules = given.iter().map(|given| Matcher::new(&given.matches, groups)).collect::<Result<_, _>>()?;
        let left = given.iter().map(|given| given.count).collect();
        Ok(Self { rules, state: Mutex::new(PreapprovedState { left, seen: BTreeMap::new() }) })
    }

    /// Takes one call, when one is left for this tool as it is now.
    pub fn take(&self, tool: &Tool, danger: bool, scope: &Scope, role: Role) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = |(index, rule): (usize, &Matcher)| {
            (state.left[index] > 0 && rule.fits(tool, danger, scope, role)).then_some(index)
        };
        let Some(index) = self.rules.iter().enumerate().find_map(fits) else { return false };
        if *state.seen.entry(tool.id.clone()).or_insert(*tool.fingerprint()) != *tool.fingerprint() {
            return false;
        }
        state.left[index] -= 1;
        true
    }
}

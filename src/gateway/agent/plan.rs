//! The plan: an ordered list of steps that any observation may revise.
//!
//! Invariant: at most one step is under way; what is done stays in the list as done, whoever revises the rest.

use std::fmt::Write as _;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::task::cut;

/// Steps of a plan.
pub(super) const MAX_STEPS: usize = 20;
/// Characters of one step.
const MAX_STEP_CHARS: usize = 160;

/// How far a step is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum StepStatus {
    /// Not begun.
    Pending,
    /// Under way.
    Active,
    /// Done.
    Done,
    /// Given up.
    Failed,
}

/// One step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PlanStep {
    /// What is to be done.
    pub text: String,
    /// How far it is.
    pub status: StepStatus,
    /// It was put in to get over a failure.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub recovery: bool,
}

/// The list, and how often it has changed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Plan {
    /// The steps in order.
    pub steps: Vec<PlanStep>,
    /// Number of revisions.
    pub revision: u32,
}

impl Plan {
    /// A plan of these steps, the first of them under way.
    pub fn new(steps: &[String]) -> Self {
        let steps = steps.iter().take(MAX_STEPS).map(|text| PlanStep::new(text)).collect();
        let mut plan = Self { steps, revision: 0 };
        plan.activate();
        plan
    }

    /// Replaces what is not done by these steps, as the model wants it. Steps that it lists again as done are done.
    pub fn replace(&mut self, steps: Vec<(String, StepStatus)>) {
        let mut kept: Vec<PlanStep> =
            self.steps.iter().filter(|step| step.status == StepStatus::Done).cloned().collect();
        for (text, status) in steps {
            let mut step = PlanStep::new(&text);
            step.status = status;
            let known = kept.iter().position(|known| known.text == step.text);
            match known {
                Some(at) if kept[at].status == StepStatus::Done => {}
                Some(at) => kept[at].status = status,
                None if !step.text.is_empty() && kept.len() < MAX_STEPS => kept.push(step),
                None => {}
            }
        }
        self.steps = kept;
        self.revision += 1;
        self.activate();
    }

    /// A call failed in a way that can be got over: that comes first. Gives whether the plan changed.
    pub fn recover(&mut self, what: &str) -> bool {
        let text = cut(what, MAX_STEP_CHARS);
        let open = |step: &PlanStep| step.recovery && step.status == StepStatus::Active;
        if let Some(step) = self.steps.iter_mut().find(|step| open(step)) {
            if step.text == text {
                return false;
            }
            step.text = text;
        } else {
            let at = self.steps.iter().position(|step| step.status == StepStatus::Active).unwrap_or(self.steps.len());
            if let Some(active) = self.steps.get_mut(at) {
                active.status = StepStatus::Pending;
            }
            self.steps.insert(at, PlanStep { text, status: StepStatus::Active, recovery: true });
        }
        self.revision += 1;
        true
    }

    /// A call went well: whatever had to be got over is. Gives whether the plan changed.
    pub fn succeed(&mut self) -> bool {
        let before = self.steps.len();
        self.steps.retain(|step| !step.recovery);
        let changed = self.steps.len() != before;
        if changed {
            self.revision += 1;
            self.activate();
        }
        changed
    }

    /// The task is done, or given up.
    pub fn close(&mut self, done: bool) {
        let status = if done { StepStatus::Done } else { StepStatus::Failed };
        for step in &mut self.steps {
            if matches!(step.status, StepStatus::Active) || (done && step.status == StepStatus::Pending) {
                step.status = status;
            }
        }
    }

    /// The plan as a model reads it.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for (index, step) in self.steps.iter().enumerate() {
            let mark = match step.status {
                StepStatus::Pending => " ",
                StepStatus::Active => ">",
                StepStatus::Done => "x",
                StepStatus::Failed => "!",
            };
            let _ = writeln!(text, "{}. [{mark}] {}", index + 1, step.text);
        }
        text
    }

    /// The first open step is under way, and no other.
    fn activate(&mut self) {
        let mut found = false;
        for step in &mut self.steps {
            if matches!(step.status, StepStatus::Active | StepStatus::Pending) {
                step.status = if found { StepStatus::Pending } else { StepStatus::Active };
                found = true;
            }
        }
    }
}

impl PlanStep {
    fn new(text: &str) -> Self {
        Self { text: cut(text, MAX_STEP_CHARS), status: StepStatus::Pending, recovery: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> Plan {
        Plan::new(&["find it".into(), "send it".into()])
    }

    #[test]
    fn a_failure_comes_first_and_goes_with_the_next_success() {
        let mut plan = plan();
        assert!(plan.recover("find failed (tool_error): use another name"));
        assert_eq!(plan.text(), "1. [>] find failed (tool_error): use another name\n2. [ ] find it\n3. [ ] send it\n");
        assert!(!plan.recover("find failed (tool_error): use another name"), "the same again changes nothing");
        assert!(plan.recover("something else"));
        assert_eq!(plan.steps.len(), 3, "one thing at a time is got over");
        assert!(plan.succeed());
        assert_eq!((plan.text().as_str(), plan.revision), ("1. [>] find it\n2. [ ] send it\n", 3));
        assert!(!plan.succeed());
    }

    #[test]
    fn the_model_revises_and_what_is_done_stays() {
        let mut plan = plan();
        plan.replace(vec![("find it".into(), StepStatus::Done), ("ask first".into(), StepStatus::Pending)]);
        assert_eq!(plan.text(), "1. [x] find it\n2. [>] ask first\n");
        plan.replace(vec![("send it".into(), StepStatus::Active), ("tell".into(), StepStatus::Active)]);
        assert_eq!(plan.text(), "1. [x] find it\n2. [>] send it\n3. [ ] tell\n");
        plan.close(true);
        assert_eq!(plan.text(), "1. [x] find it\n2. [x] send it\n3. [x] tell\n");
    }

    #[test]
    fn a_plan_is_bounded() {
        let many: Vec<String> = (0..100).map(|n| format!("step {n} {}", "x".repeat(1_000))).collect();
        let plan = Plan::new(&many);
        assert_eq!(plan.steps.len(), MAX_STEPS);
        assert!(plan.steps.iter().all(|step| step.text.chars().count() <= MAX_STEP_CHARS));
    }
}

//! Sections of the configuration that are features of their own: each as written, as settled, and the way from one to the other.

mod agent;
mod gateway;
mod skills;

pub use agent::AgentLoopSettings;
pub(super) use agent::RawAgentLoop;
pub(super) use gateway::RawGateway;
pub use gateway::{Approves, GatewayKey, GatewaySettings, ModelSettings, ProviderSettings};
pub(super) use skills::RawSkills;
pub use skills::{AllowedTools, PlanSettings, SkillFolder, SkillState, SkillStates, SkillsSettings};

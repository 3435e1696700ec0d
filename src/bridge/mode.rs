//! Which surface a model sees: every schema, one tool that takes a program, or three structured tools.
//!
//! Pure: the same figures give the same choice. The choice is made before anything is compacted; a worker that can not be
//! started later is an error of its run, never another mode in mid-session.

use serde::Serialize;

use crate::{
    config::{BridgeMode, Enabled},
    policy::Pattern,
};

/// What a model sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Every schema, as without us.
    Direct,
    /// `tool_search_code`.
    Code,
    /// `tool_search`, `tool_describe`, `tool_call`.
    Tools,
}

impl Mode {
    /// As it is written in configuration and telemetry.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Code => "code",
            Self::Tools => "tools",
        }
    }
}

/// What the choice depends on.
#[derive(Debug, Clone)]
pub struct ModeInput<'a> {
    /// `enabled`: on, off or by size.
    pub enabled: Enabled,
    /// `mode`: what is wanted when it is on.
    pub wanted: BridgeMode,
    /// `thresholdPct`: share of the context window, percent.
    pub threshold_pct: f64,
    /// The model's context window in tokens.
    pub context_window: u64,
    /// Tokens (o200k_base) of all schemas.
    pub direct_tokens: u64,
    /// Name that the client gives itself.
    pub client: Option<&'a str>,
    /// Clients that search tools by themselves.
    pub direct_clients: &'a [Pattern],
    /// Why no program can run on this machine, if so.
    pub no_sandbox: Option<&'a str>,
    /// A control tool of the mode that policy removes, if any.
    pub removed: Option<&'a str>,
}

/// What was chosen, and the figures behind it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ModeChoice {
    /// What the model sees.
    pub mode: Mode,
    /// Why it is not what was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fallback_reason: Option<String>,
    /// Tokens of all schemas.
    pub direct_tokens: u64,
    /// Tokens from which `auto` turns the bridge on.
    pub threshold_tokens: u64,
}

/// Chooses. At exactly the threshold the bridge is on.
pub fn choose(input: &ModeInput<'_>) -> ModeChoice {
    #[expect(clippy::cast_precision_loss, reason = "context windows are far below 2^52 tokens")]
    let threshold = (input.context_window as f64 * input.threshold_pct / 100.0).ceil();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a context window")]
    let threshold_tokens = threshold.max(0.0) as u64;
    let choice = |mode, fallback_reason: Option<String>| ModeChoice {
        mode,
        fallback_reason,
        direct_tokens: input.direct_tokens,
        threshold_tokens,
    };
    let searches_itself = input.client.is_some_and(|client| {
        let client = client.to_lowercase();
        input.direct_clients.iter().any(|pattern| pattern.matches(&client))
    });
    let on = match input.enabled {
        Enabled::Off => false,
        Enabled::On => true,
        Enabled::Auto => !searches_itself && input.direct_tokens >= threshold_tokens,
    };
    if !on {
        return choice(Mode::Direct, None);
    }
    if let Some(removed) = input.removed {
        return choice(
            Mode::Direct,
            Some(format!("policy removes {removed}, without which the other tools can not be reached")),
        );
    }
    match (input.wanted, input.no_sandbox) {
        (BridgeMode::Tools, _) => choice(Mode::Tools, None),
        (BridgeMode::Code, None) => choice(Mode::Code, None),
        (BridgeMode::Code, Some(reason)) => choice(Mode::Tools, Some(reason.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input() -> ModeInput<'static> {
        ModeInput {
            enabled: Enabled::Auto,
            wanted: BridgeMode::Code,
            threshold_pct: 10.0,
            context_window: 200_000,
            direct_tokens: 20_000,
            client: None,
            direct_clients: &[],
            no_sandbox: None,
            removed: None,
        }
    }

    #[test]
    fn auto_turns_on_at_exactly_the_threshold() {
        for (direct_tokens, mode) in
            [(0, Mode::Direct), (19_999, Mode::Direct), (20_000, Mode::Code), (20_001, Mode::Code)]
        {
            assert_eq!(choose(&ModeInput { direct_tokens, ..input() }).mode, mode, "{direct_tokens}");
        }
        let odd = ModeInput { context_window: 1_005, direct_tokens: 100, ..input() };
        assert_eq!(choose(&odd).mode, Mode::Direct, "100 is less than 10 % of 1005");
        assert_eq!(choose(&ModeInput { direct_tokens: 101, ..odd }).mode, Mode::Code);
    }

    #[test]
    fn on_and_off_do_not_count() {
        assert_eq!(choose(&ModeInput { enabled: Enabled::Off, direct_tokens: u64::MAX, ..input() }).mode, Mode::Direct);
        assert_eq!(choose(&ModeInput { enabled: Enabled::On, direct_tokens: 0, ..input() }).mode, Mode::Code);
        let tools = ModeInput { enabled: Enabled::On, wanted: BridgeMode::Tools, ..input() };
        assert_eq!(choose(&tools).mode, Mode::Tools);
    }

    #[test]
    fn clients_with_a_search_of_their_own_stay_direct_under_auto_only() {
        let patterns = [Pattern::new("codex*").unwrap()];
        let codex = ModeInput { client: Some("Codex-mcp-client"), direct_clients: &patterns, ..input() };
        assert_eq!(choose(&codex).mode, Mode::Direct);
        assert_eq!(choose(&ModeInput { enabled: Enabled::On, ..codex }).mode, Mode::Code);
    }

    #[test]
    fn what_can_not_be_had_falls_back_with_its_reason() {
        let without = choose(&ModeInput { no_sandbox: Some("no user namespaces"), ..input() });
        assert_eq!((without.mode, without.fallback_reason.as_deref()), (Mode::Tools, Some("no user namespaces")));
        let removed = choose(&ModeInput { removed: Some("tool_search_code"), ..input() });
        assert_eq!(removed.mode, Mode::Direct);
        assert!(removed.fallback_reason.is_some_and(|reason| reason.contains("tool_search_code")));
    }
}

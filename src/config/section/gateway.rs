//! `gateway`: where it listens, who may use it, and the providers of models behind it.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::{
    Secret,
    raw::Amount,
    validate::{CONTEXT_WINDOW, Validator},
};

/// The OpenAI-compatible gateway.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
#[schemars(rename = "Gateway")]
pub(in crate::config) struct RawGateway {
    /// Address and port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listen: Option<String>,
    /// Model providers by name.
    pub providers: BTreeMap<String, RawProvider>,
    /// Who may use it.
    pub keys: Vec<RawGatewayKey>,
}

/// One provider of models.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
#[schemars(rename = "Provider")]
pub(in crate::config) struct RawProvider {
    /// Address that ends in `/v1`.
    pub base_url: String,
    /// Its key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_key: Option<String>,
    /// Its models by name.
    pub models: BTreeMap<String, RawModel>,
}

/// What is known of a model.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
#[schemars(rename = "Model")]
pub(in crate::config) struct RawModel {
    /// Context window in tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context_window: Option<Amount>,
}

/// One key of the gateway and the agent it stands for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "GatewayKey")]
pub(in crate::config) struct RawGatewayKey {
    /// The key.
    pub key: String,
    /// Name in `agents`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
}

/// The gateway.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct GatewaySettings {
    /// Address and port.
    pub listen: Option<String>,
    /// Providers of models by name.
    pub providers: BTreeMap<String, ProviderSettings>,
    /// Who may use it.
    pub keys: Vec<GatewayKey>,
}

/// One provider of models.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ProviderSettings {
    /// Address that ends in `/v1`.
    pub base_url: String,
    /// Its key.
    pub api_key: Option<Secret>,
    /// Context windows in tokens by model.
    pub context_windows: BTreeMap<String, u64>,
}

/// One key of the gateway and the agent it stands for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct GatewayKey {
    /// The key.
    pub key: Secret,
    /// Name in `agents`.
    pub agent: Option<String>,
}

impl Validator<'_> {
    pub(in crate::config) fn gateway(&mut self, raw: &RawGateway) -> GatewaySettings {
        let mut expand = |place: String, text: &str| match self.variables.expand(text) {
            Ok(value) => Some(Secret::new(value)),
            Err(reason) => {
                self.warnings.push(format!("{place} is left out: {reason}"));
                None
            }
        };
        let keys = raw.keys.iter().enumerate().filter_map(|(index, key)| {
            let secret = expand(format!("gateway.keys[{index}]"), &key.key)?;
            Some(GatewayKey { key: secret, agent: key.agent.clone() })
        });
        let keys: Vec<GatewayKey> = keys.collect();
        let api_keys: Vec<Option<Secret>> = raw
            .providers
            .iter()
            .map(|(name, provider)| {
                let key = provider.api_key.as_ref()?;
                expand(format!("gateway.providers.{name}.apiKey"), key)
            })
            .collect();
        let providers = raw.providers.iter().zip(api_keys).map(|((name, provider), api_key)| {
            let context_windows = provider.models.iter().filter_map(|(model, known)| {
                let window = known.context_window?;
                let place = format!("gateway.providers.{name}.models.{model}");
                Some((model.clone(), self.amount(&CONTEXT_WINDOW, Some(window), &place)))
            });
            let context_windows = context_windows.collect();
            (name.clone(), ProviderSettings { base_url: provider.base_url.clone(), api_key, context_windows })
        });
        GatewaySettings { listen: raw.listen.clone(), providers: providers.collect(), keys }
    }
}

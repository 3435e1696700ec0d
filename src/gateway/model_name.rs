//! The name that a client gives for a model: the model itself, and what is asked of the gateway behind a mark.
//!
//! `gpt-x:code` is the model `gpt-x` in mode `code`, `gpt-x+agent` the model `gpt-x` at work in the agent loop, and
//! `gpt-x:code+agent` is both. A name that is configured as it stands is never taken apart.

use super::{provider::Providers, turn::ModeWish};

/// A name taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ModelName {
    pub(crate) model: String,
    pub(crate) mode: Option<ModeWish>,
    /// Whether the agent loop is to work.
    pub(crate) agent: bool,
}

/// What asks for the agent loop.
const AGENT_SUFFIX: &str = "+agent";

impl ModelName {
    pub(crate) fn read(name: &str, providers: &Providers) -> Self {
        let mut read = Self { model: name.to_owned(), mode: None, agent: false };
        // Either may come first, each once.
        while !providers.lists(&read.model) {
            let (rest, mode, agent) = if let Some(rest) = read.model.strip_suffix(AGENT_SUFFIX).filter(|_| !read.agent)
            {
                (rest, None, true)
            } else if let Some((rest, suffix)) = read.model.rsplit_once(':').filter(|_| read.mode.is_none())
                && let Some(mode) = ModeWish::parse(suffix)
            {
                (rest, Some(mode), false)
            } else {
                break;
            };
            if rest.is_empty() {
                break;
            }
            read = Self { model: rest.to_owned(), mode: mode.or(read.mode), agent: agent || read.agent };
        }
        read
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{GatewaySettings, ModelSettings, ProviderSettings};

    #[test]
    fn a_mode_is_read_off_unless_the_name_is_a_models_own() {
        let mut settings = GatewaySettings::default();
        let mut provider = ProviderSettings::new("http://127.0.0.1:1/v1");
        provider.models.insert("odd:code".to_owned(), ModelSettings::default());
        settings.providers.insert("one".to_owned(), provider);
        let providers = Providers::from_settings(&settings).unwrap();
        for (name, model, mode, agent) in [
            ("gpt-x", "gpt-x", None, false),
            ("gpt-x:code", "gpt-x", Some(ModeWish::Code), false),
            ("llama:8b:tools", "llama:8b", Some(ModeWish::Tools), false),
            ("llama:8b", "llama:8b", None, false),
            ("odd:code", "odd:code", None, false),
            (":code", ":code", None, false),
            ("gpt-x+agent", "gpt-x", None, true),
            ("gpt-x:tools+agent", "gpt-x", Some(ModeWish::Tools), true),
            ("gpt-x+agent:tools", "gpt-x", Some(ModeWish::Tools), true),
            ("odd:code+agent", "odd:code", None, true),
            ("x+agent+agent", "x+agent", None, true),
            ("+agent", "+agent", None, false),
        ] {
            assert_eq!(ModelName::read(name, &providers), ModelName { model: model.to_owned(), mode, agent }, "{name}");
        }
    }
}

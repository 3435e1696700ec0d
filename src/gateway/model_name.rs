//! The name that a client gives for a model: the model itself, and what is asked of the gateway behind a mark.
//!
//! `gpt-x:code` is the model `gpt-x` in mode `code`. A name that is configured as it stands is never taken apart.

use super::{provider::Providers, turn::ModeWish};

/// A name taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ModelName {
    pub(crate) model: String,
    pub(crate) mode: Option<ModeWish>,
}

impl ModelName {
    pub(crate) fn read(name: &str, providers: &Providers) -> Self {
        let whole = Self { model: name.to_owned(), mode: None };
        if providers.lists(name) {
            return whole;
        }
        match name.rsplit_once(':') {
            Some((model, suffix)) if !model.is_empty() => match ModeWish::parse(suffix) {
                Some(mode) => Self { model: model.to_owned(), mode: Some(mode) },
                None => whole,
            },
            _ => whole,
        }
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
        for (name, model, mode) in [
            ("gpt-x", "gpt-x", None),
            ("gpt-x:code", "gpt-x", Some(ModeWish::Code)),
            ("llama:8b:tools", "llama:8b", Some(ModeWish::Tools)),
            ("llama:8b", "llama:8b", None),
            ("odd:code", "odd:code", None),
            (":code", ":code", None),
        ] {
            assert_eq!(ModelName::read(name, &providers), ModelName { model: model.to_owned(), mode }, "{name}");
        }
    }
}

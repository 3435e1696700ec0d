//! `--mode`: what a model or client sees, the same words for every verb.

use clap::ValueEnum;

use crate::{
    config::{BridgeMode, Enabled, ToolSearchSettings},
    gateway::turn::ModeWish,
};

/// A mode on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ModeArg {
    Code,
    Tools,
    Direct,
    Auto,
}

impl ModeArg {
    /// The settings with this mode in the place of the configured one.
    pub(crate) fn over(mode: Option<Self>, settings: &ToolSearchSettings) -> ToolSearchSettings {
        let mut settings = settings.clone();
        match mode {
            None => {}
            Some(Self::Code) => (settings.enabled, settings.mode) = (Enabled::On, BridgeMode::Code),
            Some(Self::Tools) => (settings.enabled, settings.mode) = (Enabled::On, BridgeMode::Tools),
            Some(Self::Direct) => settings.enabled = Enabled::Off,
            Some(Self::Auto) => settings.enabled = Enabled::Auto,
        }
        settings
    }
}

impl From<ModeArg> for ModeWish {
    fn from(mode: ModeArg) -> Self {
        match mode {
            ModeArg::Direct => Self::Direct,
            ModeArg::Code => Self::Code,
            ModeArg::Tools => Self::Tools,
            ModeArg::Auto => Self::Auto,
        }
    }
}

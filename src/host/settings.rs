//! From validated settings to a host: what configuration says becomes what the builder is given.

use std::{collections::BTreeMap, ffi::OsString, sync::Arc};

use super::{HostBuilder, HostError};
use crate::{
    config::{HookSettings, Settings},
    dispatch::{CommandHook, Hook},
    policy::Matcher,
    search::SearchLimits,
    source::{Source, mcp::McpServers, plugin::Plugins},
    telemetry::LogSettings,
};

impl HostBuilder {
    /// With everything that a configuration says but its MCP servers, which have to be started ([`HostBuilder::servers`]).
    pub fn settings(mut self, settings: &Settings) -> Result<Self, HostError> {
        let groups = &settings.tools.groups;
        for hook in &settings.hooks.before_tool_call {
            self = self.before_tool_call(command_hook(hook, groups)?);
        }
        for hook in &settings.hooks.after_tool_call {
            self = self.after_tool_call(command_hook(hook, groups)?);
        }
        if let Some(dir) = &settings.log.dir {
            self = self.log(LogSettings { dir: dir.clone(), retention_days: settings.log.retention_days });
        }
        if let Some(native) = crate::source::native::source(&settings.native) {
            self = self.source(Arc::new(native));
        }
        let search = &settings.tools.tool_search;
        let limits = SearchLimits { default: search.search_default_limit, max: search.max_search_limit };
        Ok(self
            .skills(settings.skills.clone(), settings.native.hosts.clone())
            .policy(settings.policy())
            .secrets(settings.secrets().iter().map(|secret| secret.expose().to_owned()))
            .limits(settings.limits.clone())
            .search_limits(limits))
    }

    /// With the tools of these plugins.
    #[must_use]
    pub fn plugins(self, plugins: &Plugins) -> Self {
        let secrets = plugins.secrets.iter().map(|secret| secret.expose().to_owned());
        plugins.sources.iter().cloned().fold(self.secrets(secrets), HostBuilder::source)
    }

    /// With the tools of these MCP servers.
    #[must_use]
    pub fn servers(self, servers: &McpServers) -> Self {
        servers.sources().iter().fold(self, |builder, server| builder.source(server.clone() as Arc<dyn Source>))
    }
}

fn command_hook(hook: &HookSettings, groups: &BTreeMap<String, Vec<String>>) -> Result<Arc<dyn Hook>, HostError> {
    let matches = Matcher::new(&hook.matches, groups)?;
    let command = hook.command.iter().map(OsString::from).collect();
    let environment = hook.env.iter().map(|(name, value)| (name.into(), value.expose().into())).collect();
    Ok(Arc::new(CommandHook::new(matches, command, hook.timeout, environment).in_folder(hook.cwd.clone())))
}

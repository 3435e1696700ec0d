//! From what is written to what holds: variables replaced, paths made absolute, numbers brought into range with a warning
//! for each that was not, defaults filled in. One unusable server never makes its neighbours unusable.

use std::{
    collections::BTreeMap,
    path::{Component, Path, PathBuf},
    time::Duration,
};

use super::{
    Environment,
    raw::{Amount, RawConfig, RawHook, RawNative, RawServer, RawToolSearchFields, RawToolSearchSnake},
    settings::{
        HookSettings, HooksSettings, HttpSettings, LogSettings, NativeSettings, OAuthSettings, PluginSettings,
        SandboxSettings, Secret, ServerSettings, ServerTransport, Settings, StdioSettings, ToolSearchSettings,
        ToolsSettings,
    },
    variables::Variables,
};
use crate::{
    policy::{Matcher, Policy},
    sandbox::{self, Limits, Range},
};

const SERVER_TIMEOUT_MS: Range = Range { name: "timeout", ..sandbox::TOOL_TIMEOUT_MS };
const STARTUP_TIMEOUT_MS: Range = Range { name: "startupTimeout", default: 30_000, min: 100, max: 600_000 };
pub(super) const CONTEXT_WINDOW: Range =
    Range { name: "contextWindow", default: 200_000, min: 1_000, max: 100_000_000 };
const SEARCH_DEFAULT_LIMIT: Range = Range { name: "searchDefaultLimit", default: 8, min: 1, max: 50 };
const MAX_SEARCH_LIMIT: Range = Range { name: "maxSearchLimit", default: 20, min: 1, max: 50 };
const YIELD_MS: Range = Range { name: "yieldMs", default: 1_000, min: 10, max: 600_000 };
const MAX_SUSPENDED_RUNS: Range = Range { name: "maxSuspendedRuns", default: 64, min: 1, max: 1_024 };
const MAX_RUN_MS: Range = Range { name: "maxRunMs", default: 600_000, min: 100, max: 86_400_000 };
const HOOK_TIMEOUT_MS: Range = Range { name: "timeoutMs", default: 5_000, min: 10, max: 600_000 };
const RETENTION_DAYS: Range = Range { name: "retentionDays", default: 30, min: 1, max: 36_500 };

/// The program's own name: an entry that starts it would call itself.
const OWN_NAME: &str = "toolbridge";

/// What validation works with, and where its warnings go.
#[derive(Debug)]
pub(super) struct Validator<'a> {
    pub(super) variables: Variables<'a>,
    /// The folder that relative paths mean.
    pub(super) base: &'a Path,
    pub(super) warnings: Vec<String>,
}

impl Validator<'_> {
    pub(super) fn environment(&self) -> &Environment {
        self.variables.environment
    }

    /// Everything but the servers, whose form depends on whose file it is.
    pub(super) fn settings(&mut self, raw: &RawConfig) -> Result<Settings, String> {
        let search = raw.tools.tool_search.as_ref().map(|search| search.0.clone()).unwrap_or_default();
        let search = with_snake(search, raw.tools.tool_search_snake.as_ref());
        let limits = self.limits(raw, &search);
        let inherited: BTreeMap<String, Secret> =
            self.environment().inherited().into_iter().map(|(name, value)| (name, Secret::new(value))).collect();
        let settings = Settings {
            mcp_servers: Vec::new(),
            plugins: self.plugins(&raw.plugins.paths, &inherited),
            native: self.native(&raw.native, &inherited),
            tools: ToolsSettings {
                tool_search: self.tool_search(&search),
                policy: raw.tools.policy.clone(),
                groups: raw.tools.groups.clone(),
                sequential: raw.tools.sequential.clone(),
                direct: raw.tools.direct.clone(),
                danger: raw.tools.danger.clone(),
                owner_only: raw.tools.owner_only.clone(),
            },
            profiles: raw.profiles.clone(),
            default_role: raw.roles.default,
            owner: raw.owner.clone(),
            agents: raw.agents.clone(),
            hooks: HooksSettings {
                before_tool_call: self.hooks(&raw.hooks.before_tool_call, "before_tool_call", &inherited)?,
                after_tool_call: self.hooks(&raw.hooks.after_tool_call, "after_tool_call", &inherited)?,
            },
            sandbox: SandboxSettings { level: raw.sandbox.level, jit: raw.sandbox.jit },
            limits,
            skills: self.skills(raw.skills.as_ref())?,
            gateway: self.gateway(&raw.gateway),
            agent: self.agent(&raw.agent),
            log: LogSettings {
                dir: match &raw.log.dir {
                    Some(dir) => Some(self.path(dir)),
                    None => self.environment().state_dir().map(|dir| dir.join("sessions")),
                },
                redact: raw.log.redact.iter().map(|text| Secret::new(text.as_str())).collect(),
                retention_days: self.count(&RETENTION_DAYS, raw.log.retention_days, "log"),
            },
            otlp: raw.telemetry.otlp.clone(),
        };
        // Rules that can not be compiled would silently not hold.
        Policy::new(&settings.policy()).map_err(|error| error.to_string())?;
        let hooks = [("before", &settings.hooks.before_tool_call), ("after", &settings.hooks.after_tool_call)];
        for (event, hooks) in hooks {
            for (index, hook) in hooks.iter().enumerate() {
                Matcher::new(&hook.matches, &settings.tools.groups)
                    .map_err(|error| format!("hooks.{event}_tool_call[{index}]: {error}"))?;
            }
        }
        Ok(settings)
    }

    fn limits(&mut self, raw: &RawConfig, search: &RawToolSearchFields) -> Limits {
        let place = "tools.toolSearch";
        let code_timeout = self.duration(&sandbox::CODE_TIMEOUT_MS, search.code_timeout_ms, place);
        let cpu_timeout = match search.cpu_timeout_ms {
            Some(_) => self.duration(&sandbox::CPU_TIMEOUT_MS, search.cpu_timeout_ms, place),
            None => code_timeout,
        };
        let bytes = |this: &mut Self, range, amount, place| {
            usize::try_from(this.amount(range, amount, place)).unwrap_or(usize::MAX)
        };
        Limits {
            code_timeout,
            cpu_timeout,
            max_heap_bytes: self.amount(&sandbox::MAX_HEAP_BYTES, raw.sandbox.max_heap_bytes, "sandbox"),
            max_memory_bytes: self.amount(&sandbox::MAX_MEMORY_BYTES, raw.sandbox.max_memory_bytes, "sandbox"),
            max_code_bytes: bytes(self, &sandbox::MAX_CODE_BYTES, search.max_code_bytes, place),
            max_output_bytes: bytes(self, &sandbox::MAX_OUTPUT_BYTES, search.max_output_bytes, place),
            max_log_bytes: bytes(self, &sandbox::MAX_LOG_BYTES, search.max_log_bytes, place),
            max_calls: self.count(&sandbox::MAX_CALLS, search.max_calls, place),
            max_concurrent_calls: bytes(self, &sandbox::MAX_CONCURRENT_CALLS, search.max_concurrent_calls, place),
            tool_timeout: self.duration(&sandbox::TOOL_TIMEOUT_MS, search.tool_timeout_ms, place),
            approval_timeout: self.duration(
                &Range { name: "timeoutMs", ..sandbox::APPROVAL_TIMEOUT_MS },
                raw.approvals.timeout_ms,
                "approvals",
            ),
            client_timeout: self.duration(&sandbox::CLIENT_TIMEOUT_MS, search.client_timeout_ms, place),
            max_frame_bytes: bytes(self, &sandbox::MAX_FRAME_BYTES, search.max_frame_bytes, place),
        }
    }

    fn tool_search(&mut self, raw: &RawToolSearchFields) -> ToolSearchSettings {
        let place = "tools.toolSearch";
        let defaults = ToolSearchSettings::default();
        let max_search_limit = self.amount(&MAX_SEARCH_LIMIT, raw.max_search_limit, place);
        let limit = Range { max: max_search_limit, ..SEARCH_DEFAULT_LIMIT };
        let search_default_limit = match raw.search_default_limit {
            Some(_) => self.amount(&limit, raw.search_default_limit, place),
            None => SEARCH_DEFAULT_LIMIT.default.min(max_search_limit),
        };
        let small = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        let threshold = raw.threshold_pct.map_or(defaults.threshold_pct, |Amount(percent)| percent);
        if !(0.0..=100.0).contains(&threshold) {
            let used = threshold.clamp(0.0, 100.0);
            self.warnings.push(format!("{place}.thresholdPct {threshold} is outside 0–100; {used} is used"));
        }
        ToolSearchSettings {
            enabled: raw.enabled.unwrap_or(defaults.enabled),
            mode: raw.mode.unwrap_or(defaults.mode),
            threshold_pct: threshold.clamp(0.0, 100.0),
            context_window: self.amount(&CONTEXT_WINDOW, raw.context_window, place),
            search_default_limit: small(search_default_limit),
            max_search_limit: small(max_search_limit),
            yield_after: raw.yield_ms.map(|_| self.duration(&YIELD_MS, raw.yield_ms, place)),
            max_suspended_runs: small(self.amount(&MAX_SUSPENDED_RUNS, raw.max_suspended_runs, place)),
            max_run: self.duration(&MAX_RUN_MS, raw.max_run_ms, place),
            direct_clients: raw.direct_clients.clone().unwrap_or(defaults.direct_clients),
        }
    }

    fn plugins(&self, paths: &[String], inherited: &BTreeMap<String, Secret>) -> PluginSettings {
        // The working folder's own plugins come with its own configuration: what stands in a folder that was only walked into
        // runs nothing.
        let own = self.base == self.variables.workspace;
        let mut folders: Vec<PathBuf> = own.then(|| self.base.join(".toolbridge/plugins")).into_iter().collect();
        folders.extend(self.environment().config_dir().map(|dir| dir.join("plugins")));
        folders.extend(paths.iter().map(|path| self.path(path)));
        PluginSettings { paths: folders, env: inherited.clone() }
    }

    fn native(&self, raw: &RawNative, inherited: &BTreeMap<String, Secret>) -> NativeSettings {
        let root = raw.root.as_deref().map_or_else(|| self.base.to_path_buf(), |root| self.path(root));
        NativeSettings { allow: raw.allow.clone(), root, hosts: raw.hosts.clone(), env: inherited.clone() }
    }

    fn hooks(
        &mut self,
        hooks: &[RawHook],
        event: &str,
        env: &BTreeMap<String, Secret>,
    ) -> Result<Vec<HookSettings>, String> {
        hooks
            .iter()
            .enumerate()
            .map(|(index, hook)| {
                let place = format!("hooks.{event}[{index}]");
                if hook.command.first().is_none_or(|program| program.trim().is_empty()) {
                    return Err(format!("{place}.command names no program"));
                }
                let command = hook.command.iter().map(|part| self.variables.expand(part));
                let command: Vec<String> =
                    command.collect::<Result<_, _>>().map_err(|reason| format!("{place}: {reason}"))?;
                Ok(HookSettings {
                    matches: hook.matches.clone(),
                    command,
                    cwd: self.base.to_path_buf(),
                    env: env.clone(),
                    timeout: self.duration(&HOOK_TIMEOUT_MS, hook.timeout_ms, &place),
                })
            })
            .collect()
    }

    /// One server, or none when it is switched off or would be toolbridge itself.
    pub(super) fn server(&mut self, name: &str, raw: &RawServer) -> Option<ServerSettings> {
        let place = format!("mcpServers.{name}");
        if raw.disabled {
            return None;
        }
        if name.is_empty() {
            self.warnings.push("a server without a name is left out".to_owned());
            return None;
        }
        if starts_ourselves(raw) {
            self.warnings.push(format!("{place} starts toolbridge itself and is left out"));
            return None;
        }
        let mut settings = match self.transport(raw) {
            Ok(transport) => ServerSettings::new(name, transport),
            Err(problem) => Self::broken_server(name, problem),
        };
        settings.call_timeout = raw.timeout.map(|_| self.duration(&SERVER_TIMEOUT_MS, raw.timeout, &place));
        settings.startup_timeout = self.duration(&STARTUP_TIMEOUT_MS, raw.startup_timeout, &place);
        Some(settings)
    }

    /// A server that is named, and said to be unusable.
    pub(super) fn broken_server(name: &str, problem: String) -> ServerSettings {
        let mut settings = ServerSettings::stdio(name, "", []);
        settings.problem = Some(problem);
        settings
    }

    fn transport(&self, raw: &RawServer) -> Result<ServerTransport, String> {
        let kind = raw.kind.as_deref().map(|kind| kind.to_lowercase().replace(['-', '_'], ""));
        match (kind.as_deref(), &raw.command, &raw.url) {
            (Some("sse"), ..) => Err("it speaks the HTTP+SSE transport of 2024, which is not supported; most servers \
                 offer Streamable HTTP too: give its address with `type: \"http\"`"
                .to_owned()),
            (Some("stdio" | "local") | None, Some(command), _) => self.stdio(raw, command).map(ServerTransport::Stdio),
            (Some("http" | "streamablehttp" | "remote") | None, _, Some(url)) => {
                self.http(raw, url).map(ServerTransport::Http)
            }
            (Some("stdio" | "local"), None, _) => Err("it has `type: \"stdio\"` and no `command`".to_owned()),
            (Some("http" | "streamablehttp" | "remote"), _, None) => {
                Err("it has `type: \"http\"` and no `url`".to_owned())
            }
            (Some(_), ..) => {
                let kind = raw.kind.as_deref().unwrap_or_default();
                Err(format!("its type \"{kind}\" is not known; stdio and http are"))
            }
            (None, None, None) => Err("it has neither `command` nor `url`".to_owned()),
        }
    }

    fn stdio(&self, raw: &RawServer, command: &str) -> Result<StdioSettings, String> {
        let expand = |text: &str| self.variables.expand(text);
        let command = expand(command)?;
        if command.trim().is_empty() {
            return Err("its `command` is empty".to_owned());
        }
        let cwd = match &raw.cwd {
            Some(cwd) => self.path(&expand(cwd)?),
            None => self.variables.workspace.to_path_buf(),
        };
        let mut env = self.environment().inherited();
        if let Some(file) = &raw.env_file {
            let file = self.path(&expand(file)?);
            let shown = raw.env_file.as_deref().unwrap_or_default();
            let text = super::document::read(&file).map_err(|_| format!("its envFile {shown} can not be read"))?;
            env.extend(env_file(&text));
        }
        for (name, value) in &raw.env {
            env.insert(name.clone(), expand(&value.0)?);
        }
        // A path is meant from the server's folder, a bare name is looked up in its PATH.
        let command = if command.contains('/') {
            join(&cwd, &self.tilde(&command)).to_string_lossy().into_owned()
        } else {
            command
        };
        Ok(StdioSettings {
            command,
            args: raw.args.iter().map(|arg| expand(arg)).collect::<Result<_, _>>()?,
            env: env.into_iter().map(|(name, value)| (name, Secret::new(value))).collect(),
            cwd: Some(cwd),
        })
    }

    fn http(&self, raw: &RawServer, url: &str) -> Result<HttpSettings, String> {
        let url = self.variables.expand(url)?;
        if !url.starts_with("http://") && !url.starts_with("https://") {
            return Err("its `url` does not begin with http:// or https://".to_owned());
        }
        let headers = raw.headers.iter().map(|(name, value)| {
            let value = self.variables.expand(value)?;
            Ok((name.clone(), Secret::new(value)))
        });
        let oauth = raw.oauth.as_ref().map(|oauth| {
            Ok::<_, String>(OAuthSettings {
                client_id: oauth.client_id.as_deref().map(|id| self.variables.expand(id)).transpose()?,
                client_secret: match &oauth.client_secret {
                    Some(secret) => Some(Secret::new(self.variables.expand(secret)?)),
                    None => None,
                },
                scopes: oauth.scopes.clone(),
                redirect_port: oauth.redirect_port,
            })
        });
        // One sign-in serves every configuration that names the same address.
        let name = format!("{}.json", super::trust::hash(&url));
        let token_file = self.environment().state_dir().map(|dir| dir.join("oauth").join(name));
        Ok(HttpSettings {
            url: Secret::new(url),
            headers: headers.collect::<Result<_, String>>()?,
            oauth: oauth.transpose()?,
            token_file,
        })
    }

    pub(super) fn path(&self, path: &str) -> PathBuf {
        join(self.base, &self.tilde(path))
    }

    fn tilde(&self, path: &str) -> PathBuf {
        match (path.strip_prefix("~/"), self.environment().home()) {
            (Some(rest), Some(home)) => home.join(rest),
            (None, Some(home)) if path == "~" => home,
            _ => PathBuf::from(path),
        }
    }

    /// A file of what is remembered between runs.
    pub(super) fn state_file(&self, name: &str) -> Option<PathBuf> {
        self.environment().state_dir().map(|dir| dir.join(name))
    }

    pub(super) fn amount(&mut self, range: &Range, amount: Option<Amount>, place: &str) -> u64 {
        let Some(Amount(number)) = amount else { return range.default };
        // Saturating: beyond u64 and below zero become the ends, which the range then cuts.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let whole = number.trunc() as u64;
        let clamped = whole.clamp(range.min, range.max);
        #[allow(clippy::cast_precision_loss)] // ranges are far below 2^53
        if (clamped as f64 - number).abs() > f64::EPSILON {
            let Range { name, min, max, .. } = range;
            let why = if number.fract() != 0.0 && whole == clamped { "is not a whole number" } else { "is outside" };
            let bounds = if why == "is outside" { format!(" {min}–{max}") } else { String::new() };
            self.warnings.push(format!("{place}.{name} {number} {why}{bounds}; {clamped} is used"));
        }
        clamped
    }

    pub(super) fn duration(&mut self, range: &Range, amount: Option<Amount>, place: &str) -> Duration {
        Duration::from_millis(self.amount(range, amount, place))
    }

    pub(super) fn count(&mut self, range: &Range, amount: Option<Amount>, place: &str) -> u32 {
        u32::try_from(self.amount(range, amount, place)).unwrap_or(u32::MAX)
    }
}

/// The snake_case form fills what the other leaves open.
fn with_snake(mut fields: RawToolSearchFields, snake: Option<&RawToolSearchSnake>) -> RawToolSearchFields {
    if let Some(snake) = snake {
        fields.enabled = fields.enabled.or(snake.enabled);
        fields.threshold_pct = fields.threshold_pct.or(snake.threshold_pct);
        fields.search_default_limit = fields.search_default_limit.or(snake.search_default_limit);
        fields.max_search_limit = fields.max_search_limit.or(snake.max_search_limit);
    }
    fields
}

/// `base/path` without `.` and without `x/..`, so that messages stay readable; symlinks are not looked at.
fn join(base: &Path, path: &Path) -> PathBuf {
    let mut joined = PathBuf::new();
    for component in base.join(path).components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir if joined.file_name().is_some() => {
                joined.pop();
            }
            other => joined.push(other),
        }
    }
    joined
}

/// Whether an entry would start this program again: by its own name, or handed to a package runner or a shell.
fn starts_ourselves(raw: &RawServer) -> bool {
    const RUNNERS: [&str; 8] = ["npx", "bunx", "uvx", "pipx", "pnpm", "env", "nohup", "exec"];
    const SUBCOMMANDS: [&str; 4] = ["dlx", "exec", "run", "x"];
    const SHELLS: [&str; 4] = ["sh", "bash", "zsh", "dash"];
    let Some(command) = raw.command.as_deref() else { return false };
    let is_own = |word: &str| {
        let name = word.rsplit(['/', '\\']).next().unwrap_or(word);
        let name = name.strip_suffix(".exe").unwrap_or(name);
        let name = name.split_once('@').map_or(name, |(name, _)| name);
        name == OWN_NAME
    };
    if is_own(command) {
        return true;
    }
    let name = command.rsplit('/').next().unwrap_or(command);
    if RUNNERS.contains(&name) {
        let words = raw.args.iter().map(String::as_str).filter(|arg| !arg.starts_with('-') && !arg.contains('='));
        return words.skip_while(|word| SUBCOMMANDS.contains(word)).take(1).any(is_own);
    }
    if SHELLS.contains(&name) {
        let script = raw.args.iter().skip_while(|arg| !arg.ends_with('c') || !arg.starts_with('-')).nth(1);
        return script.is_some_and(|script| {
            let mut words = script.split_whitespace().skip_while(|word| *word == "exec" || word.contains('='));
            words.next().is_some_and(is_own)
        });
    }
    false
}

/// `NAME=value` lines; `export`, quotes, blank lines and `#` comments as in common use.
fn env_file(text: &str) -> BTreeMap<String, String> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .filter_map(|line| {
            let (name, value) = line.strip_prefix("export ").unwrap_or(line).split_once('=')?;
            let value = value.trim();
            let value = match value.chars().next() {
                Some(quote @ ('"' | '\'')) => match value[1..].split_once(quote) {
                    Some((inside, _)) if quote == '"' => inside.replace("\\n", "\n"),
                    Some((inside, _)) => inside.to_owned(),
                    None => value.to_owned(),
                },
                _ => value.split(" #").next().unwrap_or_default().trim_end().to_owned(),
            };
            Some((name.trim().to_owned(), value))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(command: &str, args: &[&str]) -> RawServer {
        let args = args.iter().map(|arg| (*arg).to_owned()).collect();
        RawServer { command: Some(command.to_owned()), args, ..Default::default() }
    }

    #[test]
    fn an_entry_that_starts_toolbridge_is_known_in_every_dress() {
        for (command, args) in [
            ("toolbridge", vec!["serve"]),
            ("/usr/local/bin/toolbridge", vec!["serve"]),
            ("npx", vec!["-y", "toolbridge@1.2", "serve"]),
            ("pnpm", vec!["dlx", "toolbridge"]),
            ("sh", vec!["-c", "exec toolbridge serve"]),
            ("bash", vec!["-lc", "A=1 /opt/toolbridge serve"]),
            ("env", vec!["A=1", "toolbridge", "serve"]),
        ] {
            assert!(starts_ourselves(&entry(command, &args)), "{command} {args:?}");
        }
        for (command, args) in [
            ("npx", vec!["-y", "@acme/server", "--name", "toolbridge"]),
            ("toolbridge-helper", vec![]),
            ("node", vec!["toolbridge.js"]),
            ("sh", vec!["-c", "echo toolbridge"]),
        ] {
            assert!(!starts_ourselves(&entry(command, &args)), "{command} {args:?}");
        }
    }

    #[test]
    fn an_env_file_is_read_as_people_write_it() {
        let text = "# c\nexport A=1\nB = two words # c\nC=\"q # no \\n x\" # c\nD='s'\n\nE=\nnonsense\nF=a=b\n";
        let read: Vec<(String, String)> = env_file(text).into_iter().collect();
        let expected = [("A", "1"), ("B", "two words"), ("C", "q # no \n x"), ("D", "s"), ("E", ""), ("F", "a=b")];
        assert_eq!(read, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }
}

//! The environment and the user's folders, read once. Nothing else in the crate asks the process for them, so a test (or an
//! embedder) decides what configuration sees.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

/// Variables that every server gets beside those that its entry names.
pub(super) const INHERITED: [&str; 5] = ["PATH", "HOME", "USER", "LANG", "TMPDIR"];

/// A snapshot of environment variables.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Environment(BTreeMap<String, String>);

impl Environment {
    /// Of this process; values that are not Unicode are left out.
    #[expect(clippy::disallowed_methods, reason = "the one place where the environment is read")]
    pub fn of_process() -> Self {
        std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect()
    }

    /// The value of a variable; an empty one counts as unset, as in a shell's `${VAR:-default}`.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// The same environment with one more variable.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.0.insert(name.into(), value.into());
        self
    }

    /// The user's home folder.
    pub(super) fn home(&self) -> Option<PathBuf> {
        self.get("HOME").map(PathBuf::from)
    }

    /// The folder of the user's configuration: `$XDG_CONFIG_HOME/toolbridge` or `~/.config/toolbridge`.
    pub(super) fn config_dir(&self) -> Option<PathBuf> {
        self.xdg("XDG_CONFIG_HOME", ".config")
    }

    /// The folder of what is remembered between runs: `$XDG_STATE_HOME/toolbridge` or `~/.local/state/toolbridge`.
    pub(super) fn state_dir(&self) -> Option<PathBuf> {
        self.xdg("XDG_STATE_HOME", ".local/state")
    }

    fn xdg(&self, variable: &str, fallback: &str) -> Option<PathBuf> {
        let base = self.get(variable).map(Path::new).filter(|path| path.is_absolute()).map(Path::to_path_buf);
        base.or_else(|| Some(self.home()?.join(fallback))).map(|base| base.join("toolbridge"))
    }

    /// What every server inherits.
    pub(super) fn inherited(&self) -> BTreeMap<String, String> {
        INHERITED.iter().filter_map(|name| Some(((*name).to_owned(), self.0.get(*name)?.clone()))).collect()
    }
}

impl std::fmt::Debug for Environment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl<N: Into<String>, V: Into<String>> FromIterator<(N, V)> for Environment {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(variables: I) -> Self {
        Self(variables.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
    }
}

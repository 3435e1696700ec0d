//! Skills as doors to tools.

mod doors;
mod faults;
mod format;
mod platform;
mod session;

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use serde_json::{Value, json};
use tempfile::TempDir;
use toolbridge::{
    catalog::{Tool, ToolOutput},
    config::SkillsSettings,
    dispatch::RawArguments,
    host::{CallOptions, Host, HostBuilder, Session},
    policy::{PolicySettings, ProfileSettings, Scope},
    telemetry::{LogSettings, read_rows},
    tool_error::ToolError,
};

/// A folder of skills, profiles over tools that only answer, and a log.
pub(crate) struct Lab {
    folder: TempDir,
    pub(crate) policy: PolicySettings,
    pub(crate) settings: SkillsSettings,
    tools: Vec<(&'static str, &'static str)>,
}

impl Lab {
    /// Three skills: docs and mail open a profile each, poems none.
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let settings = SkillsSettings::of_folders([folder.path().join("skills")]);
        let mut lab = Self { folder, policy: PolicySettings::default(), settings, tools: Vec::new() };
        lab.skill(
            "docs",
            "Writes documents. Use when a report is wanted.",
            "toolbridge.profiles: docs",
            "Use docs_write.",
        );
        lab.skill(
            "mail",
            "Sends mail. Use when somebody is to be told.",
            "toolbridge.profiles: mail",
            "Use mail_send.",
        );
        lab.skill("poems", "Writes poems. Use when verses are wanted.", "author: me", "Rhyme.");
        lab.profile("docs", &["openclaw:docs:*"]);
        lab.profile("mail", &["mail_send"]);
        lab.tools.extend([
            ("docs", "docs_write"),
            ("docs", "docs_read"),
            ("mail", "mail_send"),
            ("mail", "mail_delete"),
        ]);
        lab
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Writes a skill; `metadata` is one line.
    pub(crate) fn skill(&self, name: &str, description: &str, metadata: &str, body: &str) -> PathBuf {
        let text = format!("---\nname: {name}\ndescription: {description}\nmetadata:\n  {metadata}\n---\n\n{body}\n");
        write_skill(&self.path().join("skills"), name, &text)
    }

    pub(crate) fn profile(&mut self, name: &str, tools: &[&str]) {
        let tools = tools.iter().map(ToString::to_string).collect();
        self.policy.profiles.insert(name.to_owned(), ProfileSettings { tools, ..ProfileSettings::default() });
    }

    pub(crate) fn builder(&self) -> HostBuilder {
        let log = LogSettings { dir: self.path().join("log"), retention_days: 0 };
        let builder = Host::builder().policy(self.policy.clone()).skills(self.settings.clone(), Vec::new()).log(log);
        self.tools.iter().fold(builder, |builder, (owner, name)| builder.tool(tool(owner, name)))
    }

    pub(crate) fn host(&self) -> Host {
        self.builder().build().unwrap()
    }

    pub(crate) fn session(&self) -> Session {
        self.host().session(Scope::default()).unwrap()
    }

    /// The log's rows of a session.
    pub(crate) fn rows(&self, session: &Session) -> Vec<Value> {
        let (rows, _) = read_rows(&self.path().join("log"), session.id()).unwrap();
        rows.into_iter().map(|row| serde_json::to_value(row).unwrap()).collect()
    }
}

pub(crate) fn write_skill(folder: &Path, name: &str, text: &str) -> PathBuf {
    let folder = folder.join(name);
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("SKILL.md"), text).unwrap();
    folder
}

pub(crate) fn tool(owner: &str, name: &str) -> Tool {
    let called = name.to_owned();
    let run = move |_| {
        let called = called.clone();
        async move { Ok::<ToolOutput, String>(json!({ "called": called }).into()) }
    };
    Tool::new(name, json!({ "type": "object" }), run).owner(owner).description(format!("Does {name}."))
}

/// What a session has, by id.
pub(crate) fn seen(session: &Session) -> Vec<String> {
    session.catalog().tools().map(|(entry, _)| entry.tool.id.to_string()).collect()
}

pub(crate) async fn call(session: &Session, tool: &str, args: Value) -> Result<Value, ToolError> {
    let reply = session.call(tool, RawArguments::Value(args), CallOptions::default()).await?;
    Ok(serde_json::from_str::<Value>(&reply.json).unwrap()["result"]["details"].clone())
}

pub(crate) async fn load(session: &Session, skill: &str) -> Result<Value, ToolError> {
    call(session, "load_skill", json!({ "name": skill })).await
}

/// The skills of a session.
pub(crate) fn skills(session: &Session) -> &Arc<toolbridge::skills::SkillSession> {
    session.skills().expect("the configuration has skills")
}

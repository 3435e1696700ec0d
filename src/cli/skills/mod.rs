//! `toolbridge skills`: what skills there are, what is wrong with them, what they cost, and how well a task finds its own.

mod check;
mod eval;
mod measure;
mod trace;

use std::{path::PathBuf, process::ExitCode, sync::Arc};

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::{
    CliError,
    host::{Connected, HostArgs},
    printer,
};
use crate::{
    catalog::Catalog,
    config::{self, LoadOptions, Loaded, SkillsSettings},
    host::Session,
    skills::{Finding, SkillSession, SkillSet, SkillState, SkillStore, Skills, skill},
};

/// Skills: instructions that are loaded when they are needed, and open the tools they name.
#[derive(Debug, Args)]
pub(crate) struct SkillsArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// The skills with their state, and why one is hidden.
    List {
        /// Print as JSON
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        host: HostArgs,
    },
    /// One skill: what a model would get.
    Show {
        /// Its slug.
        slug: String,
        /// Print as JSON
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        host: HostArgs,
    },
    Check(check::CheckArgs),
    Measure(measure::MeasureArgs),
    Eval(eval::EvalArgs),
    Trace(trace::TraceArgs),
    /// Approve a skill of a folder that is not trusted, as it is now: loading it may open profiles.
    Trust {
        /// Its slug.
        slug: String,
        #[command(flatten)]
        host: HostArgs,
    },
}

pub(crate) fn run(args: &SkillsArgs) -> Result<ExitCode, CliError> {
    match &args.what {
        What::List { json, host } => with_skills(host, |world| list(world, *json)),
        What::Show { slug, json, host } => with_skills(host, |world| show(world, slug, *json)),
        What::Check(args) => check::run(args),
        What::Measure(args) => measure::run(args),
        What::Eval(args) => eval::run(args),
        What::Trace(args) => trace::run(args),
        What::Trust { slug, host } => trust(host, slug),
    }
}

/// A host with skills, and a session that is made to look at them.
struct World<'a> {
    skills: &'a Arc<Skills>,
    session: &'a Session,
    own: &'a Arc<SkillSession>,
    catalog: Arc<Catalog>,
}

/// Starts what the configuration names, and works with its skills.
fn with_skills<T>(args: &HostArgs, work: impl FnOnce(&World<'_>) -> Result<T, CliError>) -> Result<T, CliError> {
    let loaded = args.load()?;
    with_loaded(args, &loaded, work)
}

fn with_loaded<T>(
    args: &HostArgs,
    loaded: &Loaded,
    work: impl FnOnce(&World<'_>) -> Result<T, CliError>,
) -> Result<T, CliError> {
    super::block_on(async {
        // Looking at skills is no conversation and leaves no log.
        let connected = args.connect_to_look(loaded).await?;
        connected.warn();
        let done = (|| {
            let session = connected.session(args)?;
            let (Some(skills), Some(own)) = (connected.host.skills(), session.skills()) else {
                return Err(no_skills());
            };
            work(&World { skills, session: &session, own, catalog: connected.host.catalog() })
        })();
        shutdown(connected).await;
        done
    })?
}

async fn shutdown(connected: Connected) {
    connected.shutdown().await;
}

fn no_skills() -> CliError {
    CliError::Usage("the configuration has no section skills; add skills: { paths: [\"./skills\"] }".to_owned())
}

/// The skills of single folders, or of folders that hold some.
fn set_of(folders: &[PathBuf]) -> Result<Arc<SkillSet>, CliError> {
    for folder in folders {
        if !folder.is_dir() {
            let problem = "is no folder".to_owned();
            return Err(CliError::Input { file: folder.display().to_string(), problem });
        }
    }
    // The name of a folder is part of what is checked, and `.` has none.
    let whole = |folder: &PathBuf| std::fs::canonicalize(folder).unwrap_or_else(|_| folder.clone());
    let settings = SkillsSettings::of_folders(folders.iter().map(whole));
    Ok(SkillStore::new(settings.folders, settings.approved).current())
}

fn list(world: &World<'_>, json: bool) -> Result<ExitCode, CliError> {
    let resolved = world.own.resolved();
    let row = |skill: &Arc<crate::skills::Skill>, state: SkillState, hidden: Option<String>| {
        json!({
            "skill": skill.slug, "state": state, "hidden": hidden, "profiles": skill.profiles, "trusted": skill.trusted,
            "version": skill.version, "description": skill.description,
        })
    };
    let mut rows: Vec<Value> = resolved.always.iter().map(|skill| row(skill, SkillState::Always, None)).collect();
    rows.extend(resolved.available.iter().map(|skill| row(skill, SkillState::Available, None)));
    rows.extend(resolved.hidden.iter().map(|(skill, why)| row(skill, SkillState::Never, Some(why.to_string()))));
    rows.sort_by(|a, b| a["skill"].as_str().cmp(&b["skill"].as_str()));
    if json {
        printer::data(&rows)?;
        return Ok(ExitCode::SUCCESS);
    }
    for row in &rows {
        let text = |key: &str| row[key].as_str().unwrap_or_default().to_owned();
        let state = if row["hidden"].is_null() { text("state") } else { "hidden".to_owned() };
        let profiles: Vec<&str> = row["profiles"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let opens = if profiles.is_empty() { String::new() } else { format!("  opens {}", profiles.join(", ")) };
        let trust = if row["trusted"] == true { "" } else { "  not trusted" };
        let why = row["hidden"].as_str().map(|why| format!("  ({why})")).unwrap_or_default();
        printer::lines(&format!("{:<24} {state:<9}{opens}{trust}{why}\n", text("skill")))?;
    }
    let set = world.skills.store.current();
    for (folder, Finding { message, .. }) in
        set.findings().iter().filter(|(_, finding)| finding.check == "shadowed" || finding.check == "count")
    {
        printer::note(&format!("{}: {message}", folder.display()));
    }
    for (folder, Finding { message, .. }) in set.unusable() {
        printer::warn(&format!("{} is no skill that can be used: {message}", folder.display()));
    }
    Ok(ExitCode::SUCCESS)
}

fn show(world: &World<'_>, slug: &str, json: bool) -> Result<ExitCode, CliError> {
    let set = world.skills.store.current();
    let Some(skill) = set.get(slug) else {
        return Err(absent(&set, slug));
    };
    let doors = world.skills.doors(skill);
    let tools: Vec<&str> = world
        .catalog
        .entries()
        .iter()
        .map(|entry| &entry.tool)
        .filter(|tool| doors.iter().any(|door| door.holds(tool)))
        .map(|tool| tool.id.as_str())
        .collect();
    if json {
        printer::data(&json!({
            "skill": skill.slug, "name": skill.name, "description": skill.description, "version": skill.version,
            "mode": skill.mode, "license": skill.license, "compatibility": skill.compatibility, "trusted": skill.trusted,
            "profiles": skill.profiles, "integrations": skill.integrations, "capabilities": skill.capabilities,
            "allowedTools": skill.allowed_tools, "tools": tools, "instructions": skill.body,
        }))?;
        return Ok(ExitCode::SUCCESS);
    }
    printer::note(&format!("{} {} in {}", skill.slug, skill.version, skill.folder.display()));
    printer::note(&if skill.profiles.is_empty() {
        "opens no profile".to_owned()
    } else {
        format!("opens {} ({} tools)", skill.profiles.join(", "), tools.len())
    });
    printer::lines(&format!("{}\n\n{}\n", skill.description, skill.body))?;
    Ok(ExitCode::SUCCESS)
}

/// Why a skill is not there: its file can not be used, or there is none.
fn absent(set: &SkillSet, slug: &str) -> CliError {
    let named = |folder: &std::path::Path| folder.file_name().is_some_and(|name| name == slug);
    if let Some((folder, finding)) = set.unusable().find(|(folder, _)| named(folder)) {
        return CliError::Input { file: folder.display().to_string(), problem: finding.message.clone() };
    }
    let known: Vec<&str> = set.skills().iter().map(|skill| &*skill.slug).take(20).collect();
    let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
    CliError::Usage(format!("there is no skill \"{slug}\"; there are {known}"))
}

fn trust(args: &HostArgs, slug: &str) -> Result<ExitCode, CliError> {
    let loaded = args.load()?;
    if !loaded.settings.skills.enabled {
        return Err(no_skills());
    }
    let settings = loaded.settings.skills;
    let set = SkillStore::new(settings.folders, settings.approved).current();
    let found = set.get(slug).ok_or_else(|| absent(&set, slug))?;
    if found.trusted {
        printer::note(&format!("{slug} is trusted already"));
        return Ok(ExitCode::SUCCESS);
    }
    let file =
        skill::skill_file(&found.folder).ok_or_else(|| CliError::Usage(format!("the file of {slug} is gone")))?;
    config::trust_skill(&LoadOptions::of_process().file(args.config.clone()), &file)?;
    printer::note(&format!("{slug} is trusted as it is now; loading it may open {}", found.profiles.join(", ")));
    Ok(ExitCode::SUCCESS)
}

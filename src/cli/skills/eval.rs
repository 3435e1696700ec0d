//! `toolbridge skills eval`: whether a task finds its skill, without a model.

use std::{collections::BTreeMap, path::PathBuf, process::ExitCode, sync::Arc};

use clap::Args;
use serde::{Deserialize, Serialize};

use super::super::{CliError, host::HostArgs, number, printer, run::read_text};
use crate::skills::{
    Skill,
    routing::{Choice, Router, Thresholds},
};

/// Confused pairs that the text names.
const MAX_PAIRS: usize = 10;

/// Test the routing from tasks to skills offline: recall, confused pairs, and when to ask the user.
#[derive(Debug, Args)]
#[command(after_help = "\
A line of FILE is {\"task\": \"…\", \"skill\": \"slug\"}. Without skill (or with null) no skill is right; with \"skills\": [\"a\", \"b\"]
the task is ambiguous and the user is to be asked.")]
pub(crate) struct EvalArgs {
    /// Tasks with their skills, JSON lines; `-` for stdin.
    file: PathBuf,
    /// Folders of skills instead of the configuration's
    #[arg(long = "skills-from", value_name = "DIR")]
    folders: Vec<PathBuf>,
    /// Ask the user when the second skill comes this near to the first, as a share of its score
    #[arg(long, value_name = "SHARE", allow_negative_numbers = true, value_parser = number::share)]
    margin: Option<f64>,
    /// Take no skill that covers less than this share of a task's words
    #[arg(long, value_name = "SHARE", allow_negative_numbers = true, value_parser = number::share)]
    coverage: Option<f64>,
    /// Print as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    host: HostArgs,
}

/// One labelled task.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Labelled {
    task: String,
    #[serde(default)]
    skill: Option<String>,
    #[serde(default)]
    skills: Vec<String>,
}

/// The whole report.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    tasks: usize,
    /// Tasks with exactly one right skill.
    routed: usize,
    recall_at1: f64,
    recall_at3: f64,
    mrr: f64,
    /// Of the tasks with one right skill: chosen rightly, wrongly, asked about, not served.
    chosen: usize,
    wrong: usize,
    asked: usize,
    none: usize,
    /// Ambiguous tasks, and those of them about which the user would be asked.
    ambiguous: usize,
    ambiguous_asked: usize,
    /// Tasks for no skill, and those of them for which none was chosen.
    outside: usize,
    outside_abstained: usize,
    thresholds: Option<Thresholds>,
    /// The margin at which most tasks end rightly, found on these tasks.
    best_margin: f64,
    confused: Vec<Confused>,
}

/// A skill that was taken for another.
#[derive(Debug, Serialize)]
struct Confused {
    right: String,
    taken: String,
    tasks: usize,
}

pub(super) fn run(args: &EvalArgs) -> Result<ExitCode, CliError> {
    let tasks = read(args)?;
    let skills: Vec<Arc<Skill>> = if args.folders.is_empty() {
        super::with_skills(&args.host, |world| Ok(world.own.resolved().available.clone()))?
    } else {
        super::set_of(&args.folders)?.skills().to_vec()
    };
    for slug in tasks.iter().flat_map(|task| task.skill.iter().chain(&task.skills)) {
        if !skills.iter().any(|skill| *skill.slug == **slug) {
            let problem = format!("names the skill \"{slug}\", which is not visible");
            return Err(CliError::Input { file: args.file.display().to_string(), problem });
        }
    }
    let defaults = Thresholds::default();
    let thresholds = Thresholds {
        margin: args.margin.unwrap_or(defaults.margin),
        coverage: args.coverage.unwrap_or(defaults.coverage),
    };
    let report = evaluate(&Router::new(&skills), &tasks, thresholds);
    if args.json {
        printer::data(&report)?;
    } else {
        text(&report)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn read(args: &EvalArgs) -> Result<Vec<Labelled>, CliError> {
    let text = read_text(&args.file, 64 * 1024 * 1024)?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let tasks = lines.map(|(number, line)| {
        serde_json::from_str(line).map_err(|error| CliError::Input {
            file: args.file.display().to_string(),
            problem: format!("line {} is no task: {error}", number + 1),
        })
    });
    let tasks: Vec<Labelled> = tasks.collect::<Result<_, _>>()?;
    if tasks.is_empty() {
        return Err(CliError::Input { file: args.file.display().to_string(), problem: "holds no tasks".to_owned() });
    }
    Ok(tasks)
}

fn evaluate(router: &Router, tasks: &[Labelled], thresholds: Thresholds) -> Report {
    let mut report = Report { tasks: tasks.len(), thresholds: Some(thresholds), ..Report::default() };
    let mut confused: BTreeMap<(String, String), usize> = BTreeMap::new();
    let (mut at_first, mut in_three, mut reciprocal) = (0.0, 0.0, 0.0);
    let mut rankings = Vec::new();
    for task in tasks {
        let (choice, ranked) = router.choose(&task.task, thresholds);
        if task.skills.len() > 1 {
            report.ambiguous += 1;
            report.ambiguous_asked += usize::from(matches!(choice, Choice::Clarify { .. }));
        } else if let Some(right) = task.skill.as_ref().or(task.skills.first()) {
            report.routed += 1;
            let rank = ranked.iter().position(|ranked| *ranked.slug == **right);
            at_first += f64::from(u8::from(rank == Some(0)));
            in_three += f64::from(u8::from(rank.is_some_and(|rank| rank < 3)));
            #[expect(clippy::cast_precision_loss, reason = "at most fifty")]
            let share = rank.map_or(0.0, |rank| 1.0 / (rank as f64 + 1.0));
            reciprocal += share;
            match &choice {
                Choice::Skill { slug } if **slug == **right => report.chosen += 1,
                Choice::Skill { slug } => {
                    report.wrong += 1;
                    *confused.entry((right.clone(), slug.to_string())).or_default() += 1;
                }
                Choice::Clarify { .. } => report.asked += 1,
                Choice::None => report.none += 1,
            }
        } else {
            report.outside += 1;
            report.outside_abstained += usize::from(!matches!(choice, Choice::Skill { .. }));
        }
        rankings.push(ranked);
    }
    #[expect(clippy::cast_precision_loss, reason = "numbers of tasks")]
    let count = report.routed.max(1) as f64;
    (report.recall_at1, report.recall_at3, report.mrr) = (at_first / count, in_three / count, reciprocal / count);
    let right_at = |margin: f64| {
        let thresholds = Thresholds { margin, ..thresholds };
        let ends = |(task, ranked): &(&Labelled, &Vec<_>)| {
            let choice = crate::skills::routing::choose(ranked, thresholds);
            let one = task.skill.as_ref().or(task.skills.first()).filter(|_| task.skills.len() < 2);
            match (one, choice) {
                (Some(right), Choice::Skill { slug }) => **right == *slug,
                (Some(_), _) => false,
                (None, choice) => !matches!(choice, Choice::Skill { .. }),
            }
        };
        tasks.iter().zip(&rankings).filter(ends).count()
    };
    let margins = (0..=50_u32).map(|step| f64::from(step) / 100.0);
    report.best_margin = margins
        .fold((0, 0.0), |best, margin| {
            let right = right_at(margin);
            if right > best.0 { (right, margin) } else { best }
        })
        .1;
    report.confused = confused.into_iter().map(|((right, taken), tasks)| Confused { right, taken, tasks }).collect();
    report.confused.sort_by(|a, b| b.tasks.cmp(&a.tasks).then_with(|| a.right.cmp(&b.right)));
    report
}

fn text(report: &Report) -> Result<(), CliError> {
    let r = report;
    printer::lines(&format!(
        "tasks      {} ({} for one skill, {} ambiguous, {} for none)\nrecall@1   {:.1} %\nrecall@3   {:.1} %\nMRR        {:.3}\n\
         chosen     {} rightly, {} wrongly, {} asked about, {} left without\nambiguous  {} of {} asked about\n\
         no skill   {} of {} left alone\nmargin     {} (on these tasks {} would be best)\n",
        r.tasks,
        r.routed,
        r.ambiguous,
        r.outside,
        r.recall_at1 * 100.0,
        r.recall_at3 * 100.0,
        r.mrr,
        r.chosen,
        r.wrong,
        r.asked,
        r.none,
        r.ambiguous_asked,
        r.ambiguous,
        r.outside_abstained,
        r.outside,
        r.thresholds.map_or(0.0, |thresholds| thresholds.margin),
        r.best_margin,
    ))?;
    for pair in r.confused.iter().take(MAX_PAIRS) {
        printer::lines(&format!("confused   {} was taken for {} in {} tasks\n", pair.right, pair.taken, pair.tasks))?;
    }
    Ok(())
}

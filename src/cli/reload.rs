//! A server that goes on running takes over a changed configuration: sources, policy, hooks.
//!
//! Invariant: what can not be read, is not trusted or does not fit changes nothing, and stderr and the log say why. What is
//! taken over is taken over whole.

use std::{convert::Infallible, time::Duration};

use tokio::{
    signal::unix::{SignalKind, signal},
    time::{Instant, MissedTickBehavior, interval_at},
};

use super::{
    host::{Connected, HostArgs},
    printer,
};
use crate::{
    config::{ConfigError, Loaded, Settings, Watch},
    host::Session,
    policy::Policy,
    telemetry::Event,
};

/// How often the file is looked at.
const EVERY: Duration = Duration::from_secs(1);

/// Follows the configuration file for as long as it is polled.
pub(super) struct Reload<'a> {
    pub(super) args: &'a HostArgs,
    pub(super) watch: Watch,
    /// What holds now.
    pub(super) settings: Settings,
    /// The operator's own session, for its log.
    pub(super) session: Session,
}

impl Reload<'_> {
    /// Never ends: looks once a second, and at once on SIGHUP.
    pub(super) async fn follow(mut self, connected: &mut Connected) -> Infallible {
        let mut hang_up = signal(SignalKind::hangup()).ok();
        let mut ticks = interval_at(Instant::now() + EVERY, EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let asked = async {
                match &mut hang_up {
                    Some(hang_up) => hang_up.recv().await,
                    None => std::future::pending().await,
                }
            };
            let read = tokio::select! {
                _ = asked => Some(self.watch.load()),
                _ = ticks.tick() => self.watch.changed(),
            };
            if let Some(read) = read {
                self.take_over(read, connected);
            }
        }
    }

    fn take_over(&mut self, read: Result<Loaded, ConfigError>, connected: &mut Connected) {
        match self.taken_over(read, connected) {
            Ok(note) => {
                printer::note(&note);
                self.session.record(Event::Configuration { loaded: true, reason: None });
            }
            Err(reason) => {
                printer::warn(&format!("the configuration stays as it was: {reason}"));
                self.session.record(Event::Configuration { loaded: false, reason: Some(reason) });
            }
        }
    }

    /// What to tell, or why nothing changes.
    fn taken_over(&mut self, read: Result<Loaded, ConfigError>, connected: &mut Connected) -> Result<String, String> {
        let loaded = read.map_err(|error| error.to_string())?;
        if loaded.untrusted {
            return Err("the file has changed and is not trusted; look at it, then run `toolbridge trust`".to_owned());
        }
        if loaded.settings == self.settings {
            return Ok("the configuration was read again and says the same".to_owned());
        }
        let policy = Policy::new(&loaded.settings.policy()).map_err(|error| error.to_string())?;
        policy.scoped(self.args.scope()).map_err(|error| error.to_string())?;
        connected.reload(self.args, &loaded).map_err(|error| error.to_string())?;
        loaded.warnings.iter().for_each(|warning| printer::warn(warning));
        let later = later(&self.settings, &loaded.settings);
        self.settings = loaded.settings;
        let note = "the changed configuration holds from now on";
        Ok(if later.is_empty() {
            note.to_owned()
        } else {
            format!("{note}, but for {}, which need a restart", later.join(", "))
        })
    }
}

/// Sections that changed and are only read at the start.
fn later(old: &Settings, new: &Settings) -> Vec<&'static str> {
    let differs = [
        ("tools.toolSearch", old.tools.tool_search != new.tools.tool_search),
        ("limits", old.limits != new.limits),
        ("owner", old.owner != new.owner),
        ("sandbox", old.sandbox != new.sandbox),
        ("skills", old.skills != new.skills),
        ("gateway", old.gateway != new.gateway),
        ("agent", old.agent != new.agent),
        ("log", old.log != new.log),
        ("telemetry", old.otlp != new.otlp),
    ];
    differs.into_iter().filter(|(_, differs)| *differs).map(|(section, _)| section).collect()
}

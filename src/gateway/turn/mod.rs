//! The tools of one turn, apart from HTTP: what a model is offered, and what its calls mean.
//!
//! [`Turns::tools`] decides the mode and gives the declarations; [`Execution`] runs the calls of one assistant message. The
//! gateway's routes and the agent loop use the same two pieces. Invariant: whatever a model calls goes through its session,
//! and so through the one dispatch path; nothing here calls a tool. A name that nobody declared is answered as a tool error.

mod brought;
mod declare;
mod execute;
mod extras;
mod offer;
mod strict;

use std::{collections::HashSet, sync::Arc};

use offer::Offers;
use sha2::{Digest, Sha256};

pub use brought::{ClientTool, ClientTools};
pub use declare::Declared;
pub use execute::{Execution, ModelCall, Step, ToolAnswer};
pub use extras::{ExtraTool, ExtraWork, Extras};
pub(crate) use offer::{Offer, OfferText};

use crate::{
    bridge::{
        self, CODE_TOOL, CONTROL_NAMES, Mode, ModeChoice, ModeInput, Names, SchemaTokens, code_tool_description,
        code_tool_input, structured_tools,
    },
    catalog::{ContentHash, Selected, Tool, ToolId, View},
    config::{BridgeMode, Enabled, ToolSearchSettings},
    host::Session,
};

/// Put before a bridge tool's name when the client has a tool that is called the same.
const OWN_PREFIX: &str = "toolbridge_";

/// What the choice of mode depends on beside the request; made once.
#[derive(Debug)]
pub struct Turns {
    enabled: Enabled,
    wanted: BridgeMode,
    threshold_pct: f64,
    context_window: u64,
    no_sandbox: Option<String>,
    tokens: SchemaTokens,
    /// What has been offered, so that the same tools are declared and counted once.
    offers: Offers,
}

/// A mode that somebody asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ModeWish {
    /// Every schema.
    Direct,
    /// `tool_search_code`.
    Code,
    /// The three structured tools.
    Tools,
    /// By the size of the schemas.
    Auto,
}

impl ModeWish {
    /// Reads `direct`, `code`, `tools` or `auto`.
    pub fn parse(word: &str) -> Option<Self> {
        match word {
            "direct" => Some(Self::Direct),
            "code" => Some(Self::Code),
            "tools" => Some(Self::Tools),
            "auto" => Some(Self::Auto),
            _ => None,
        }
    }
}

/// What one turn asks for.
#[derive(Debug, Clone, Default)]
pub struct Asked<'a> {
    /// The mode, when it is not the configured one.
    pub mode: Option<ModeWish>,
    /// The model's context window in tokens, when it is known.
    pub context_window: Option<u64>,
    /// The tools that the client brought, as the session has them.
    pub client_tools: &'a [ClientTool],
    /// Names of tools that are shown by themselves whatever the mode is, because the request names them.
    pub exposed: &'a [String],
    /// Whether the provider takes only strict schemas.
    pub strict: bool,
}

/// What a declared name stands for.
#[derive(Debug, Clone)]
pub(crate) enum Target {
    /// `tool_search_code`
    Code,
    /// `tool_search`
    Search,
    /// `tool_describe`
    Describe,
    /// `tool_call`
    Call,
    /// One tool of the catalog.
    Tool(ToolId),
    /// Something of the session itself, e.g. loading a skill.
    Extra(ExtraTool),
}

/// The tools of one turn.
#[derive(Debug)]
pub struct TurnTools {
    /// What was chosen, with the figures behind it.
    pub choice: ModeChoice,
    /// Blocks of system text that the session adds.
    pub system: Vec<String>,
    offer: Arc<Offer>,
    view: Arc<View>,
}

impl Turns {
    /// From the configuration; `no_sandbox` says why no program can run on this machine, if so.
    pub fn new(settings: &ToolSearchSettings, no_sandbox: Option<String>) -> Self {
        Self {
            enabled: settings.enabled,
            wanted: settings.mode,
            threshold_pct: settings.threshold_pct,
            context_window: settings.context_window,
            no_sandbox,
            tokens: SchemaTokens::default(),
            offers: Offers::default(),
        }
    }

    /// The blocks of system text that a session adds at this moment.
    pub fn system(&self, session: &Session) -> Vec<String> {
        extras::of(session).system
    }

    /// The tools of a turn that begins now. Decided anew for every turn, from the catalog of this moment.
    pub fn tools(&self, session: &Session, asked: &Asked<'_>) -> TurnTools {
        let view = session.catalog();
        let choice = self.choose(&view, asked);
        let Extras { tools: extra, system } = extras::of(session);
        let offer = if extra.is_empty() {
            self.offers.get(key(&view, choice.mode, asked), || offer(&view, choice.mode, asked, Vec::new()))
        } else {
            Arc::new(offer(&view, choice.mode, asked, extra))
        };
        TurnTools { choice, system, offer, view }
    }

    fn choose(&self, view: &View, asked: &Asked<'_>) -> ModeChoice {
        let (enabled, wanted) = match asked.mode {
            None => (self.enabled, self.wanted),
            Some(ModeWish::Direct) => (Enabled::Off, self.wanted),
            Some(ModeWish::Code) => (Enabled::On, BridgeMode::Code),
            Some(ModeWish::Tools) => (Enabled::On, BridgeMode::Tools),
            Some(ModeWish::Auto) => (Enabled::Auto, self.wanted),
        };
        let control = match wanted {
            BridgeMode::Code if self.no_sandbox.is_none() => Mode::Code,
            _ => Mode::Tools,
        };
        let choice = bridge::choose(&ModeInput {
            enabled,
            wanted,
            threshold_pct: self.threshold_pct,
            context_window: asked.context_window.unwrap_or(self.context_window),
            direct_tokens: if enabled == Enabled::Auto { self.tokens.of(view) } else { 0 },
            client: None,
            direct_clients: &[],
            no_sandbox: self.no_sandbox.as_deref(),
            removed: bridge::removed_control(view, control),
        });
        // With nothing behind it the bridge would only cost.
        if view.is_empty() && view.unavailable_sources().is_empty() {
            ModeChoice { mode: Mode::Direct, ..choice }
        } else {
            choice
        }
    }
}

impl TurnTools {
    /// What was chosen.
    pub fn mode(&self) -> Mode {
        self.choice.mode
    }

    /// What the model is offered, in order. The same tools give the same bytes.
    pub fn declared(&self) -> &[Declared] {
        self.offer.declared()
    }

    /// The offer itself, with its texts.
    pub(crate) fn offer(&self) -> &Offer {
        &self.offer
    }

    /// The catalog that it was made from.
    pub fn view(&self) -> &Arc<View> {
        &self.view
    }

    /// What a declared name stands for.
    pub(crate) fn target(&self, name: &str) -> Option<&Target> {
        self.offer.targets().get(name)
    }

    /// The name under which a tool that the client names is offered by itself, if it is.
    pub fn declared_name(&self, wanted: &str) -> Option<&str> {
        if let Some((name, _)) = self.offer.targets().get_key_value(wanted) {
            return Some(name);
        }
        let id = match self.view.select(wanted) {
            Selected::One(entry, _) => &entry.tool.id,
            _ => return None,
        };
        let named = |target: &Target| matches!(target, Target::Tool(own) if own == id);
        self.offer.targets().iter().find(|(_, target)| named(target)).map(|(name, _)| name.as_str())
    }

    /// The declaration under a name.
    pub fn declaration(&self, name: &str) -> Option<&Declared> {
        self.declared().iter().find(|declared| declared.name == name)
    }
}

/// Everything that an offer is made of. Names of tools follow from their ids, which are part of their fingerprints.
fn key(view: &View, mode: Mode, asked: &Asked<'_>) -> ContentHash {
    let mut hash = Sha256::new();
    let mut part = |bytes: &[u8]| {
        hash.update((bytes.len() as u64).to_le_bytes());
        hash.update(bytes);
    };
    part(mode.as_str().as_bytes());
    part(&[u8::from(asked.strict)]);
    part(view.content());
    if mode != Mode::Direct {
        let direct: Vec<u8> = view.tools().map(|(entry, _)| view.policy().is_direct(&entry.tool).into()).collect();
        part(&direct);
        asked.exposed.iter().for_each(|name| part(name.as_bytes()));
        part(&[]);
    }
    for tool in asked.client_tools.iter().filter(|tool| tool.strict.is_some()) {
        part(tool.name.as_bytes());
        part(&[u8::from(tool.strict == Some(true))]);
    }
    hash.finalize().into()
}

fn offer(view: &View, mode: Mode, asked: &Asked<'_>, extra: Vec<ExtraTool>) -> Offer {
    let names = Names::of(view, &CONTROL_NAMES);
    let exposed: Vec<ToolId> =
        asked.exposed.iter().filter_map(|name| tool_named(view, &names, name)).cloned().collect();
    let is_shown = |tool: &Tool| mode == Mode::Direct || view.policy().is_direct(tool) || exposed.contains(&tool.id);
    let mut alone = Vec::new();
    for (entry, _) in view.tools().filter(|(entry, _)| is_shown(&entry.tool)) {
        let tool = &entry.tool;
        let Some(name) = names.name(&tool.id) else { continue };
        let brought = (tool.id.source() == "client")
            .then(|| asked.client_tools.iter().find(|brought| brought.name == *tool.id.name()))
            .flatten();
        let mut declared = Declared::of_tool(name, tool, brought);
        if asked.strict {
            declared.make_strict();
        }
        alone.push((declared, Target::Tool(tool.id.clone())));
    }
    let taken: HashSet<String> = alone.iter().map(|(declared, _)| declared.name.clone()).collect();
    let free = |name: &str| if taken.contains(name) { format!("{OWN_PREFIX}{name}") } else { name.to_owned() };
    let mut offer = Offer::default();
    match mode {
        Mode::Direct => {}
        Mode::Code => {
            let declared = Declared::own(free(CODE_TOOL), code_tool_description().to_owned(), code_tool_input(false));
            offer.add(declared, Target::Code, asked.strict);
        }
        Mode::Tools => {
            for tool in structured_tools() {
                let target = match tool.name {
                    "tool_search" => Target::Search,
                    "tool_describe" => Target::Describe,
                    _ => Target::Call,
                };
                let declared = Declared::own(free(tool.name), tool.description.to_owned(), tool.input_schema);
                offer.add(declared, target, asked.strict);
            }
        }
    }
    for tool in extra {
        let declared = Declared::own(free(&tool.name), tool.description.clone(), tool.parameters.clone());
        offer.add(declared, Target::Extra(tool), asked.strict);
    }
    for (declared, target) in alone {
        offer.add(declared, target, false);
    }
    offer
}

/// The tool that a client means: by the name under which it would be offered, by its id, or by its own name.
fn tool_named<'v>(view: &'v View, names: &'v Names, wanted: &str) -> Option<&'v ToolId> {
    let client = ToolId::new("client", "client", wanted);
    if let Selected::One(entry, _) = view.select(client.as_str()) {
        return Some(&entry.tool.id);
    }
    names.tool(wanted).or_else(|| match view.select(wanted) {
        Selected::One(entry, _) => Some(&entry.tool.id),
        _ => None,
    })
}

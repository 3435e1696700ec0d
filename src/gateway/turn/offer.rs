//! What a model is offered, made once for the same tools: declarations, what their names stand for, and the text that goes
//! to a provider.
//!
//! Invariant: an offer is found by everything that it was made of (tools by content, mode, quirks), and the same tools are the
//! same bytes in every request: prompt caches of providers live on that.

use std::{
    collections::HashMap,
    convert::Infallible,
    sync::{Arc, OnceLock},
};

use serde_json::Value;

use super::{Declared, Target};
use crate::{catalog::ContentHash, gateway::recent::Recent, telemetry::count_tokens};

/// Offers that are kept.
const MAX_OFFERS: usize = 64;
/// Bytes of text of all offers that are kept.
const MAX_OFFER_BYTES: usize = 8 * 1024 * 1024;

/// Declared tools. Never changes.
#[derive(Debug, Default)]
pub(crate) struct Offer {
    declared: Vec<Declared>,
    targets: HashMap<String, Target>,
    chat: OnceLock<OfferText>,
    responses: OnceLock<OfferText>,
}

/// An offer in the words of one API.
#[derive(Debug)]
pub(crate) struct OfferText {
    /// A JSON array.
    json: String,
    tokens: OnceLock<u64>,
}

impl OfferText {
    fn of(tools: impl Iterator<Item = Value>) -> Self {
        Self { json: Value::Array(tools.collect()).to_string(), tokens: OnceLock::new() }
    }

    /// The declarations as a JSON array.
    pub(crate) fn json(&self) -> &str {
        &self.json
    }

    /// Tokens (o200k_base) of the array, counted by whoever asks first: for long ones that takes milliseconds.
    pub(crate) fn tokens(&self) -> u64 {
        *self.tokens.get_or_init(|| count_tokens(&self.json) as u64)
    }

    /// Whether somebody has counted them.
    pub(crate) fn are_tokens_known(&self) -> bool {
        self.tokens.get().is_some()
    }
}

impl Offer {
    pub(super) fn add(&mut self, mut declared: Declared, target: Target, strict: bool) {
        if self.targets.contains_key(&declared.name) {
            return;
        }
        if strict {
            declared.make_strict();
        }
        self.targets.insert(declared.name.clone(), target);
        self.declared.push(declared);
    }

    pub(super) fn declared(&self) -> &[Declared] {
        &self.declared
    }

    pub(super) fn targets(&self) -> &HashMap<String, Target> {
        &self.targets
    }

    /// As `/chat/completions` wants it.
    pub(crate) fn chat(&self) -> &OfferText {
        self.chat.get_or_init(|| OfferText::of(self.declared.iter().map(Declared::chat)))
    }

    /// As `/responses` wants it.
    pub(crate) fn responses(&self) -> &OfferText {
        self.responses.get_or_init(|| OfferText::of(self.declared.iter().map(Declared::responses)))
    }

    /// Bytes of its schemas and descriptions, near enough.
    fn bytes(&self) -> usize {
        self.declared.iter().map(|declared| declared.text_bytes).sum()
    }
}

/// Offers by what they were made of.
#[derive(Debug)]
pub(super) struct Offers(Recent<ContentHash, Offer>);

impl Default for Offers {
    fn default() -> Self {
        Self(Recent::new(MAX_OFFERS, MAX_OFFER_BYTES))
    }
}

impl Offers {
    /// The offer under a key, made if need be.
    pub(super) fn get(&self, key: ContentHash, make: impl FnOnce() -> Offer) -> Arc<Offer> {
        let with_bytes = || {
            let offer = make();
            let bytes = offer.bytes();
            Ok::<_, Infallible>((key, offer, bytes))
        };
        match self.0.get(|known| *known == key, with_bytes) {
            Ok(offer) => offer,
        }
    }
}

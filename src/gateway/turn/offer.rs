//! What a model is offered, made once for the same tools: declarations, what their names stand for, and the text that goes
//! to a provider.
//!
//! Invariant: an offer is found by everything that it was made of (tools by content, mode, quirks), so nothing kept can
//! differ from what would be made now, and the same tools are the same bytes in every request: prompt caches of providers
//! live on that. What is kept is bounded; what has not been asked for longest goes first.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use serde_json::Value;

use super::{Declared, Target};
use crate::{
    catalog::{ContentHash, Schema},
    telemetry::count_tokens,
};

/// Offers that are kept.
const MAX_OFFERS: usize = 64;
/// Bytes of text of all offers that are kept.
const MAX_OFFER_BYTES: usize = 8 * 1024 * 1024;

/// Declared tools. Never changes.
#[derive(Debug, Default)]
pub(crate) struct Offer {
    declared: Vec<Declared>,
    targets: HashMap<String, Target>,
    /// Schemas that a client brought: held, so that they are not checked anew for its next request.
    _brought: Vec<Schema>,
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
}

impl Offer {
    pub(super) fn keeping(brought: Vec<Schema>) -> Self {
        Self { _brought: brought, ..Self::default() }
    }

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
#[derive(Debug, Default)]
pub(super) struct Offers {
    /// The one asked for last is at the end. Held for a look-up, never while an offer is made.
    kept: Mutex<VecDeque<(ContentHash, Arc<Offer>)>>,
}

impl Offers {
    /// The offer under a key, made if need be.
    pub(super) fn get(&self, key: ContentHash, make: impl FnOnce() -> Offer) -> Arc<Offer> {
        let lock = || self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let again = |kept: &mut VecDeque<(ContentHash, Arc<Offer>)>| {
            let at = kept.iter().rposition(|(known, _)| *known == key)?;
            let found = kept.remove(at)?;
            let offer = found.1.clone();
            kept.push_back(found);
            Some(offer)
        };
        if let Some(offer) = again(&mut lock()) {
            return offer;
        }
        let offer = Arc::new(make());
        let mut kept = lock();
        // Somebody else may have been as fast: all go on with the same one.
        if let Some(offer) = again(&mut kept) {
            return offer;
        }
        kept.push_back((key, offer.clone()));
        let mut bytes: usize = kept.iter().map(|(_, offer)| offer.bytes()).sum();
        while kept.len() > MAX_OFFERS || (bytes > MAX_OFFER_BYTES && kept.len() > 1) {
            let Some((_, oldest)) = kept.pop_front() else { break };
            bytes -= oldest.bytes();
        }
        offer
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn offer(name: &str, bytes: usize) -> Offer {
        let mut offer = Offer::default();
        let declared = Declared::own(name.to_owned(), "x".repeat(bytes), json!({ "type": "object" }));
        offer.add(declared, Target::Code, false);
        offer
    }

    #[test]
    fn an_offer_is_made_once_and_the_one_unused_for_longest_goes_first() {
        let offers = Offers::default();
        let key = |number: usize| [u8::try_from(number).unwrap(); 32];
        let first = offers.get(key(0), || offer("a", 1));
        for number in 1..MAX_OFFERS {
            offers.get(key(number), || offer("b", 1));
        }
        assert!(Arc::ptr_eq(&first, &offers.get(key(0), || unreachable!("it is kept"))));
        offers.get(key(MAX_OFFERS), || offer("c", 1));
        assert!(Arc::ptr_eq(&first, &offers.get(key(0), || unreachable!("it was asked for just now"))));
        let mut made = false;
        offers.get(key(1), || {
            made = true;
            offer("b", 1)
        });
        assert!(made, "number 1 had not been asked for since");
    }

    #[test]
    fn large_offers_do_not_pile_up() {
        let offers = Offers::default();
        for number in 0..10 {
            offers.get([number; 32], || offer("a", MAX_OFFER_BYTES / 4));
        }
        assert_eq!(offers.kept.lock().unwrap().len(), 4);
    }
}

//! The postings: every analysed tool, kept once, whoever may see it.
//!
//! Invariant: a document, once added, never changes and keeps its number; postings only grow at their end. So any number
//! of views (sets of document numbers) share one store, and adding one tool costs one tool. What a view answers depends on
//! its own documents alone: document frequencies are counted within the view, and the impact of a word in a document
//! is computed from that document alone, with reference lengths instead of averages over the catalog.

use std::sync::{Arc, OnceLock, Weak};

use rustc_hash::FxHashMap;
use serde_json::Value;

use super::{
    Ranking,
    analysis::{Entry, Lexicon, Piece, Splitter, TermId},
    copies::{Copies, Known, ToolWords},
};
use crate::catalog::{ContentHash, Descriptor, Schema, Tool, ToolId};

/// Number of a document in one store.
pub(super) type DocId = u32;

/// Bytes of one text that are indexed; what follows is not read.
const MAX_TEXT_BYTES: usize = 16 * 1024;
/// Schema nodes that are read for parameter names, descriptions and enum values.
const MAX_SCHEMA_NODES: usize = 400;
/// Levels of a schema that are read.
const MAX_SCHEMA_DEPTH: usize = 8;
/// Words in a row without any function word that can be prose; what follows is a list of words, and says little.
const MAX_PROSE_RUN: usize = 10;
/// Share of a word's weight that it has in such a list.
const LISTED_SHARE: f32 = 0.15;
/// Values of one enum that are indexed.
const MAX_ENUM_VALUES: usize = 40;

/// A word in a document: how much it says there, already saturated and normalised by length.
#[derive(Debug, Clone, Copy)]
pub(super) struct Posting {
    pub(super) doc: DocId,
    /// Negative where the word only stands in a list of words: it scores, but is not counted among the tools that have it.
    signed_impact: f32,
}

impl Posting {
    /// What the word adds to the document's score, before its rarity.
    pub(super) fn impact(self) -> f32 {
        self.signed_impact.abs()
    }

    /// Whether the word only stands in a list of words there.
    pub(super) fn is_listed(self) -> bool {
        self.signed_impact < 0.0
    }
}

/// One tool as it was analysed.
pub(super) struct Doc {
    pub(super) id: ToolId,
    pub(super) name: Box<str>,
    title: Option<Box<str>>,
    aliases: Box<[Box<str>]>,
    pub(super) description: Box<str>,
    schema: Schema,
    /// Distinct terms of the name, in order.
    pub(super) name_terms: Box<[TermId]>,
    /// Made when first found.
    pub(super) descriptor: OnceLock<Arc<Descriptor>>,
}

impl Doc {
    pub(super) fn descriptor(&self) -> Arc<Descriptor> {
        self.descriptor
            .get_or_init(|| {
                Arc::new(Descriptor::from_parts(
                    &self.id,
                    &self.name,
                    self.title.as_deref(),
                    &self.description,
                    &self.schema.value(),
                ))
            })
            .clone()
    }
}

fn head(text: &str) -> &str {
    let mut end = text.len().min(MAX_TEXT_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// The analysed tools of one process, or of one part of its history.
pub(super) struct Store {
    pub(super) lexicon: Lexicon,
    pub(super) postings: Vec<Vec<Posting>>,
    /// How many postings of each term are listed ones.
    pub(super) listed: Vec<u32>,
    pub(super) docs: Vec<Doc>,
    pub(super) by_id: FxHashMap<Arc<str>, Vec<DocId>>,
    pub(super) by_name: FxHashMap<Box<str>, Vec<DocId>>,
    /// Documents by the content of their tool.
    by_content: FxHashMap<ContentHash, DocId>,
    /// Documents by the tool's own allocation; the weak reference keeps the address from being used again.
    by_address: FxHashMap<usize, (Weak<Tool>, DocId)>,
    pub(super) copies: Copies,
    scratch: Scratch,
}

#[derive(Default)]
struct Scratch {
    splitter: Splitter,
    /// Weighted occurrences of each term in the document at hand.
    weights: Vec<f32>,
    /// The part of it that comes from lists of words.
    listed: Vec<f32>,
    touched: Vec<TermId>,
    /// Terms of the field at hand.
    field: Vec<TermId>,
}

/// The texts of a schema that say what a tool is about.
#[derive(Default)]
struct SchemaTexts<'a> {
    names: Vec<&'a str>,
    descriptions: Vec<&'a str>,
    values: Vec<&'a str>,
    nodes: usize,
}

impl<'a> SchemaTexts<'a> {
    fn all(&self) -> impl Iterator<Item = &'a str> {
        self.names.iter().chain(&self.descriptions).chain(&self.values).copied()
    }

    fn read(&mut self, schema: &'a Value, depth: usize) {
        self.nodes += 1;
        if depth > MAX_SCHEMA_DEPTH || self.nodes > MAX_SCHEMA_NODES {
            return;
        }
        let Value::Object(map) = schema else { return };
        for (word, value) in map {
            match (word.as_str(), value) {
                ("properties" | "patternProperties", Value::Object(properties)) => {
                    for (name, property) in properties {
                        if self.nodes > MAX_SCHEMA_NODES {
                            return;
                        }
                        if word == "properties" {
                            self.names.push(name);
                        }
                        self.read(property, depth + 1);
                    }
                }
                ("$defs" | "definitions", Value::Object(definitions)) => {
                    for definition in definitions.values() {
                        self.read(definition, depth + 1);
                    }
                }
                ("description", Value::String(text)) => self.descriptions.push(head(text)),
                ("enum", Value::Array(values)) => {
                    self.values.extend(values.iter().take(MAX_ENUM_VALUES).filter_map(Value::as_str).map(head));
                }
                ("const", Value::String(value)) => self.values.push(head(value)),
                ("anyOf" | "oneOf" | "allOf" | "prefixItems", Value::Array(parts)) => {
                    for part in parts {
                        self.read(part, depth + 1);
                    }
                }
                ("items" | "additionalProperties", part @ Value::Object(_)) => self.read(part, depth + 1),
                _ => {}
            }
        }
    }
}

impl Known for Store {
    fn named(&self, name: &str) -> &[DocId] {
        self.by_name.get(name).map_or(&[], Vec::as_slice)
    }

    fn name(&self, doc: DocId) -> &str {
        &self.docs[doc as usize].name
    }

    fn read(&self, doc: DocId, words: &mut ToolWords) {
        let doc = &self.docs[doc as usize];
        let schema = doc.schema.value();
        let mut texts = SchemaTexts::default();
        texts.read(&schema, 0);
        let beside = doc.title.as_deref().into_iter().chain(doc.aliases.iter().map(|alias| &**alias));
        words.read(&doc.description, beside.chain(texts.all()));
    }

    fn same_schema(&self, a: DocId, b: DocId) -> bool {
        self.docs[a as usize].schema.content_hash() == self.docs[b as usize].schema.content_hash()
    }
}

impl Store {
    pub(super) fn new() -> Self {
        let lexicon = Lexicon::new();
        let mut postings = Vec::new();
        postings.resize_with(lexicon.len(), Vec::new);
        Self {
            listed: vec![0; lexicon.len()],
            lexicon,
            postings,
            docs: Vec::new(),
            by_id: FxHashMap::default(),
            by_name: FxHashMap::default(),
            by_content: FxHashMap::default(),
            by_address: FxHashMap::default(),
            copies: Copies::default(),
            scratch: Scratch::default(),
        }
    }

    /// The document of a tool that was added before, as this very object.
    pub(super) fn find_address(&self, tool: &Arc<Tool>) -> Option<DocId> {
        self.by_address.get(&(Arc::as_ptr(tool) as usize)).map(|(_, doc)| *doc)
    }

    /// The document of a tool of this content.
    pub(super) fn find_content(&self, fingerprint: &ContentHash) -> Option<DocId> {
        self.by_content.get(fingerprint).copied()
    }

    /// Remembers that this very object is that document.
    pub(super) fn remember_address(&mut self, tool: &Arc<Tool>, doc: DocId) {
        if self.by_address.len() > 2 * self.docs.len() + 64 {
            self.by_address.retain(|_, (tool, _)| tool.strong_count() > 0);
        }
        self.by_address.insert(Arc::as_ptr(tool) as usize, (Arc::downgrade(tool), doc));
    }

    /// Compares the tools that were added since the last time with the others, for stuffed copies.
    pub(super) fn find_copies(&mut self) {
        let mut copies = std::mem::take(&mut self.copies);
        copies.compare(self, DocId::try_from(self.docs.len()).unwrap_or(DocId::MAX));
        self.copies = copies;
    }

    /// Analyses a tool and adds it as a document.
    pub(super) fn add(&mut self, tool: &Tool, schema: &Value, ranking: &Ranking) -> DocId {
        let doc = DocId::try_from(self.docs.len()).unwrap_or(DocId::MAX);
        let definition = &tool.definition;
        let mut scratch = std::mem::take(&mut self.scratch);

        self.read_field(&mut scratch, ranking.name, true, std::iter::once(definition.name.as_str()));
        let mut name_terms = scratch.field.clone();
        name_terms.sort_unstable();
        name_terms.dedup();
        let title = definition.title.as_deref().or(definition.annotations.title.as_deref());
        self.read_field(&mut scratch, ranking.title, false, title.into_iter());
        self.read_field(&mut scratch, ranking.aliases, true, definition.aliases.iter().map(String::as_str));
        self.read_field(&mut scratch, ranking.owner, true, std::iter::once(tool.id.owner()));
        self.read_field(&mut scratch, ranking.description, false, std::iter::once(head(&definition.description)));
        let mut texts = SchemaTexts::default();
        texts.read(schema, 0);
        let rest = title.into_iter().chain(definition.aliases.iter().map(String::as_str)).chain(texts.all());
        self.copies.add(doc, head(&definition.description), rest);
        self.read_field(&mut scratch, ranking.parameter_names, false, texts.names.into_iter());
        self.read_field(&mut scratch, ranking.parameter_descriptions, false, texts.descriptions.into_iter());
        self.read_field(&mut scratch, ranking.enum_values, false, texts.values.into_iter());

        self.postings.resize_with(self.lexicon.len(), Vec::new);
        self.listed.resize(self.lexicon.len(), 0);
        for term in scratch.touched.drain(..) {
            let weight = std::mem::take(&mut scratch.weights[term as usize]);
            let listed = std::mem::take(&mut scratch.listed[term as usize]) >= weight;
            let impact = weight * (ranking.saturation + 1.0) / (weight + ranking.saturation);
            self.listed[term as usize] += u32::from(listed);
            self.postings[term as usize].push(Posting { doc, signed_impact: if listed { -impact } else { impact } });
        }
        self.scratch = scratch;

        self.by_id.entry(tool.id.as_str().into()).or_default().push(doc);
        self.by_name.entry(definition.name.as_str().into()).or_default().push(doc);
        self.by_content.insert(*tool.fingerprint(), doc);
        self.docs.push(Doc {
            id: tool.id.clone(),
            name: definition.name.as_str().into(),
            title: title.map(Into::into),
            aliases: definition.aliases.iter().map(|alias| alias.as_str().into()).collect(),
            description: head(&definition.description).into(),
            schema: definition.input_schema.clone(),
            name_terms: name_terms.into(),
            descriptor: OnceLock::new(),
        });
        doc
    }

    fn read_field<'t>(
        &mut self,
        scratch: &mut Scratch,
        field: super::Field,
        joined: bool,
        texts: impl Iterator<Item = &'t str>,
    ) {
        let Scratch { splitter, weights, listed, touched, field: terms } = scratch;
        terms.clear();
        let mut length = 0.0_f32;
        let lexicon = &mut self.lexicon;
        let mut extra: Vec<(TermId, f32)> = Vec::new();
        let mut list: Vec<TermId> = Vec::new();
        for text in texts {
            let mut run = 0;
            splitter.split(text, |piece| {
                if let (Piece::Joined(_), false) = (piece, joined) {
                    // Outside of names, only what was written as one word is worth a term.
                    if let Entry::Term(term) = lexicon.learn(piece) {
                        extra.push((term, 0.5));
                    }
                    return;
                }
                let term = match lexicon.learn(piece) {
                    Entry::Stop => {
                        run = 0;
                        return;
                    }
                    Entry::Function(term) => {
                        run = 0;
                        term
                    }
                    Entry::Term(term) => {
                        run += usize::from(matches!(piece, Piece::Word(_)));
                        term
                    }
                };
                match piece {
                    Piece::Word(_) if run > MAX_PROSE_RUN => {
                        length += 1.0;
                        list.push(term);
                    }
                    Piece::Joined(_) => extra.push((term, 1.0)),
                    Piece::Single(_) => extra.push((term, 0.3)),
                    _ => {
                        length += 1.0;
                        terms.push(term);
                    }
                }
            });
        }
        if terms.is_empty() && extra.is_empty() && list.is_empty() {
            return;
        }
        let norm = 1.0 - field.length_share + field.length_share * length / field.reference_length;
        let unit = field.weight / norm;
        weights.resize(lexicon.len().max(weights.len()), 0.0);
        listed.resize(weights.len(), 0.0);
        for (term, share) in terms.iter().map(|term| (*term, 1.0)).chain(extra) {
            let slot = &mut weights[term as usize];
            if *slot == 0.0 {
                touched.push(term);
            }
            *slot += unit * share;
        }
        for term in list {
            let slot = &mut weights[term as usize];
            if *slot == 0.0 {
                touched.push(term);
            }
            *slot += unit * LISTED_SHARE;
            listed[term as usize] += unit * LISTED_SHARE;
        }
    }
}

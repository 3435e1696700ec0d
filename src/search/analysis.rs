//! Text to terms: how names, descriptions and queries are cut into words, and words into the terms that are compared.
//!
//! Both sides of a search pass through here, so they can never disagree. A word is folded, lowered, checked against the
//! stop words and stemmed by tantivy's filters; each distinct word passes them once and is remembered in the [`Lexicon`].

use std::sync::{
    LazyLock,
    atomic::{AtomicU64, Ordering},
};

use rustc_hash::FxHashMap;
use tantivy::tokenizer::{
    AsciiFoldingFilter, Language, LowerCaser, NgramTokenizer, RawTokenizer, Stemmer, StopWordFilter, TextAnalyzer,
    TokenStream,
};
use unicode_normalization::UnicodeNormalization;

use super::{
    typo::{Nearness, Vocabulary},
    words,
};

/// Number of a term in one [`Lexicon`].
pub(super) type TermId = u32;

/// Characters of one word; what is longer (keys, hashes, base64) is no word.
const MAX_WORD_BYTES: usize = 64;
/// Parts of one identifier whose joined form is a term too.
const MAX_JOINED_PARTS: usize = 6;

/// One word of a text, lower case where that costs nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Piece<'a> {
    /// A word in a script with spaces.
    Word(&'a str),
    /// The parts of an identifier without what divided them: `create_issue` is `createissue` too.
    Joined(&'a str),
    /// Two neighbouring characters (or one alone) of a script without spaces.
    Gram(&'a str),
    /// One character of a longer run of a script without spaces; documents only.
    Single(&'a str),
}

/// Scripts whose words are not divided by spaces, and Korean, whose particles stick to the words.
pub(super) fn unspaced(c: char) -> bool {
    matches!(u32::from(c),
        0x0e00..=0x0eff        // Thai, Lao
        | 0x1000..=0x109f      // Myanmar
        | 0x1100..=0x11ff      // Hangul
        | 0x1780..=0x17ff      // Khmer
        | 0x3005..=0x3007 | 0x3040..=0x30ff | 0x31f0..=0x31ff  // Kana
        | 0x3400..=0x4dbf | 0x4e00..=0x9fff | 0xf900..=0xfaff | 0x20000..=0x3ffff // Han
        | 0xac00..=0xd7af)
}

/// Reusable buffers of [`Splitter::split`].
#[derive(Default)]
pub(super) struct Splitter {
    word: String,
    joined: String,
    normalised: String,
}

impl Splitter {
    /// Hands every piece of `text` to `sink`, in order.
    pub(super) fn split(&mut self, text: &str, mut sink: impl FnMut(Piece<'_>)) {
        if text.is_ascii() {
            self.split_normalised(text, &mut sink);
        } else {
            let mut normalised = std::mem::take(&mut self.normalised);
            normalised.clear();
            normalised.extend(text.nfkc());
            self.split_normalised(&normalised, &mut sink);
            self.normalised = normalised;
        }
    }

    fn split_normalised(&mut self, text: &str, sink: &mut impl FnMut(Piece<'_>)) {
        self.joined.clear();
        let mut parts = 0_usize;
        let mut chars = text.char_indices().peekable();
        while let Some(&(start, c)) = chars.peek() {
            if unspaced(c) {
                Self::flush_joined(&mut self.joined, &mut parts, sink);
                let mut end = start;
                while let Some(&(at, c)) = chars.peek() {
                    if !unspaced(c) {
                        break;
                    }
                    end = at + c.len_utf8();
                    chars.next();
                }
                grams(&text[start..end], sink);
                continue;
            }
            if !c.is_alphanumeric() {
                chars.next();
                // One divider between two words keeps an identifier together; anything else ends it.
                let inside = matches!(c, '_' | '-' | '.' | '/' | ':')
                    && chars.peek().is_some_and(|(_, next)| next.is_alphanumeric() && !unspaced(*next));
                if !inside {
                    Self::flush_joined(&mut self.joined, &mut parts, sink);
                }
                continue;
            }
            // One run of letters and digits up to a divider or a change of case.
            self.word.clear();
            let mut previous = c;
            while let Some(&(at, c)) = chars.peek() {
                if !(c.is_alphanumeric() || is_mark(c)) || unspaced(c) {
                    break;
                }
                if !self.word.is_empty() && c.is_uppercase() {
                    let next_lower = text[at + c.len_utf8()..].chars().next().is_some_and(char::is_lowercase);
                    if !previous.is_uppercase() || next_lower {
                        break;
                    }
                }
                if c.is_ascii() {
                    self.word.push(c.to_ascii_lowercase());
                } else {
                    self.word.extend(c.to_lowercase());
                }
                previous = c;
                chars.next();
            }
            if self.word.len() <= MAX_WORD_BYTES {
                sink(Piece::Word(&self.word));
                self.joined.push_str(&self.word);
                parts += 1;
            }
        }
        Self::flush_joined(&mut self.joined, &mut parts, sink);
    }

    fn flush_joined(joined: &mut String, parts: &mut usize, sink: &mut impl FnMut(Piece<'_>)) {
        if (2..=MAX_JOINED_PARTS).contains(parts) && joined.len() <= MAX_WORD_BYTES {
            sink(Piece::Joined(joined));
        }
        joined.clear();
        *parts = 0;
    }
}

fn is_mark(c: char) -> bool {
    !c.is_ascii() && unicode_normalization::char::is_combining_mark(c)
}

static GRAMS: LazyLock<NgramTokenizer> =
    LazyLock::new(|| NgramTokenizer::new(2, 2, false).expect("2 to 2 is a valid range"));

fn grams(run: &str, sink: &mut impl FnMut(Piece<'_>)) {
    if run.chars().nth(1).is_none() {
        sink(Piece::Gram(run));
        return;
    }
    let mut tokenizer = GRAMS.clone();
    let mut stream = tantivy::tokenizer::Tokenizer::token_stream(&mut tokenizer, run);
    while stream.advance() {
        sink(Piece::Gram(&stream.token().text));
    }
    for (at, c) in run.char_indices() {
        sink(Piece::Single(&run[at..at + c.len_utf8()]));
    }
}

/// What a word is to the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Entry {
    /// A stop word: says nothing about any tool.
    Stop,
    /// A term that is a function word of another language: it counts, and it shows that a text is prose.
    Function(TermId),
    /// A term.
    Term(TermId),
}

/// Every word seen, with its term. Grows with the documents; queries only look.
pub(super) struct Lexicon {
    words: FxHashMap<Box<str>, Entry>,
    stems: FxHashMap<Box<str>, TermId>,
    /// Joined forms of identifiers, apart from words: `stock price` must not prefer `stock_price` to `get_stock_price`.
    joined: FxHashMap<Box<str>, TermId>,
    /// Words as they were written, for typo repair.
    vocabulary: Vocabulary,
    /// Tells this lexicon from every other of the process.
    identity: u64,
}

impl Lexicon {
    /// A lexicon that knows the terms of the synonym table, numbered from 0 as the table numbers them.
    pub(super) fn new() -> Self {
        let mut lexicon = Self {
            words: FxHashMap::default(),
            stems: FxHashMap::default(),
            joined: FxHashMap::default(),
            vocabulary: Vocabulary::default(),
            identity: NEXT_IDENTITY.fetch_add(1, Ordering::Relaxed),
        };
        for stem in &words::SYNONYMS.stems {
            lexicon.intern(stem);
        }
        // A mistyped word may be one that only its synonyms are found by.
        for (word, term) in &words::SYNONYMS.surfaces {
            lexicon.vocabulary.add(word, *term);
            lexicon.words.insert(word.clone(), Entry::Term(*term));
        }
        lexicon
    }

    /// Number of terms.
    pub(super) fn len(&self) -> usize {
        self.stems.len() + self.joined.len()
    }

    fn intern(&mut self, stem: &str) -> TermId {
        if let Some(term) = self.stems.get(stem) {
            return *term;
        }
        let term = TermId::try_from(self.len()).unwrap_or(TermId::MAX);
        self.stems.insert(stem.into(), term);
        term
    }

    /// The entry of a piece of a document, made where it is new.
    pub(super) fn learn(&mut self, piece: Piece<'_>) -> Entry {
        match piece {
            Piece::Word(word) => {
                if let Some(entry) = self.words.get(word) {
                    return *entry;
                }
                let entry = match normalise(word) {
                    Normalised::Stop => Entry::Stop,
                    Normalised::Stem { folded, stem } => {
                        let term = self.intern(&stem);
                        self.vocabulary.add(&folded, term);
                        if is_function_word(word) { Entry::Function(term) } else { Entry::Term(term) }
                    }
                };
                self.words.insert(word.into(), entry);
                entry
            }
            Piece::Joined(word) => {
                if let Some(term) = self.joined.get(word) {
                    return Entry::Term(*term);
                }
                let term = TermId::try_from(self.len()).unwrap_or(TermId::MAX);
                self.joined.insert(word.into(), term);
                Entry::Term(term)
            }
            Piece::Gram(gram) | Piece::Single(gram) => Entry::Term(self.intern(gram)),
        }
    }

    /// The entry of a query's word, if any document could have it.
    pub(super) fn look_up(&self, word: &str) -> LookUp {
        match self.words.get(word) {
            Some(Entry::Stop) => LookUp::Stop,
            Some(Entry::Term(term) | Entry::Function(term)) => LookUp::Term(*term),
            None => REMEMBERED.with_borrow_mut(|remembered| {
                if !remembered.contains_key(word) {
                    if remembered.len() >= MAX_REMEMBERED_WORDS {
                        remembered.clear();
                    }
                    remembered.insert(word.into(), normalise(word));
                }
                match &remembered[word] {
                    Normalised::Stop => LookUp::Stop,
                    Normalised::Stem { folded, stem } => match self.stems.get(stem.as_str()) {
                        Some(term) => LookUp::Term(*term),
                        None => LookUp::Unknown { folded: folded.clone() },
                    },
                }
            }),
        }
    }

    /// Hands the known words near an unknown one to `with`, nearest first.
    pub(super) fn near<R>(&self, word: &str, with: impl FnOnce(&[(Nearness, TermId)]) -> R) -> R {
        REPAIRS.with_borrow_mut(|repairs| {
            // What was near may not be all that is near once words were added.
            let state = (self.identity, self.words.len());
            if repairs.state != state || repairs.near.len() >= MAX_REMEMBERED_WORDS {
                repairs.state = state;
                repairs.near.clear();
            }
            if let Some(near) = repairs.near.get(word) {
                return with(near);
            }
            let near = self.vocabulary.near(word);
            with(repairs.near.entry(word.into()).or_insert(near))
        })
    }

    /// The term of an n-gram.
    pub(super) fn look_up_gram(&self, gram: &str) -> Option<TermId> {
        self.stems.get(gram).copied()
    }

    /// The term of an identifier's joined form.
    pub(super) fn look_up_joined(&self, joined: &str) -> Option<TermId> {
        self.joined.get(joined).copied()
    }

    /// The term of a word that some document was seen to have, exactly as written.
    pub(super) fn look_up_written(&self, word: &str) -> Option<TermId> {
        match self.words.get(word) {
            Some(Entry::Term(term) | Entry::Function(term)) => Some(*term),
            _ => None,
        }
    }
}

/// A query's word as the lexicon knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum LookUp {
    /// A stop word.
    Stop,
    /// A term.
    Term(TermId),
    /// No document has it.
    Unknown {
        /// Folded and lower case.
        folded: String,
    },
}

pub(super) enum Normalised {
    Stop,
    Stem { folded: String, stem: String },
}

/// Words of queries that a thread remembers the stem of, so that it is not made anew for every search.
const MAX_REMEMBERED_WORDS: usize = 8_192;

/// Repairs that a thread found in one state of one lexicon.
#[derive(Default)]
struct Repairs {
    state: (u64, usize),
    near: FxHashMap<Box<str>, Vec<(Nearness, TermId)>>,
}

static NEXT_IDENTITY: AtomicU64 = AtomicU64::new(1);

thread_local! {
    static REPAIRS: std::cell::RefCell<Repairs> = std::cell::RefCell::default();
    static REMEMBERED: std::cell::RefCell<FxHashMap<Box<str>, Normalised>> = std::cell::RefCell::default();
    static FUNCTION_WORDS: std::cell::RefCell<Vec<TextAnalyzer>> = std::cell::RefCell::new(
        [Language::German, Language::Italian, Language::French, Language::Spanish, Language::Portuguese, Language::Dutch]
            .into_iter()
            .filter_map(StopWordFilter::new)
            .map(|filter| TextAnalyzer::builder(RawTokenizer::default()).filter(filter).build())
            .collect(),
    );
    static CHAIN: std::cell::RefCell<(TextAnalyzer, TextAnalyzer)> = std::cell::RefCell::new((
        TextAnalyzer::builder(RawTokenizer::default()).filter(AsciiFoldingFilter).filter(LowerCaser)
            .filter(StopWordFilter::new(Language::English).expect("tantivy has an English list"))
            .filter(StopWordFilter::remove(words::stop_words())).build(),
        TextAnalyzer::builder(RawTokenizer::default()).filter(Stemmer::new(Language::English)).build(),
    ));
}

/// Letters of the longest function word that is looked for.
const MAX_FUNCTION_WORD_BYTES: usize = 8;

/// Whether a lower-case word is a function word of a European language other than English.
fn is_function_word(word: &str) -> bool {
    word.len() <= MAX_FUNCTION_WORD_BYTES
        && FUNCTION_WORDS.with_borrow_mut(|languages| {
            languages.iter_mut().any(|language| language.token_stream(word).next().is_none())
        })
}

/// Folds, checks against the stop words, and stems one word.
pub(super) fn normalise(word: &str) -> Normalised {
    CHAIN.with_borrow_mut(|(fold, stem)| {
        let mut stream = fold.token_stream(word);
        let Some(folded) = stream.next().map(|token| token.text.clone()) else { return Normalised::Stop };
        drop(stream);
        let mut stream = stem.token_stream(&folded);
        let stem = stream.next().map_or_else(|| folded.clone(), |token| token.text.clone());
        drop(stream);
        Normalised::Stem { folded, stem }
    })
}

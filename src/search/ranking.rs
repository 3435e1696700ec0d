//! The one frozen configuration of the ranking. Data sets are measured with it, never fitted by it.

/// How much one text of a tool counts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Field {
    /// Weight of one occurrence of a word.
    pub weight: f32,
    /// Share of the weight that is divided by the field's length (the `b` of BM25), 0 to 1.
    pub length_share: f32,
    /// Words of a field of usual length. Fixed instead of averaged over the catalog: a tool's impact depends on nothing
    /// but the tool, so it is computed once and tells nothing about tools that are not seen.
    pub reference_length: f32,
}

/// Weights of the ranking.
#[derive(Debug, Clone, PartialEq)]
pub struct Ranking {
    /// The tool's name.
    pub name: Field,
    /// Its human title.
    pub title: Field,
    /// Other names given by its author.
    pub aliases: Field,
    /// Server or plugin.
    pub owner: Field,
    /// Description.
    pub description: Field,
    /// Names of parameters, nested ones too.
    pub parameter_names: Field,
    /// Their descriptions.
    pub parameter_descriptions: Field,
    /// Values that they may take.
    pub enum_values: Field,
    /// The `k1` of BM25: how soon more occurrences stop to count.
    pub saturation: f32,
    /// Weight of a synonym of a word that some visible tool has.
    pub synonym: f32,
    /// Weight of a synonym of a word that no visible tool has.
    pub synonym_of_unknown: f32,
    /// Weight of a word that is an unknown one with two neighbouring letters swapped.
    pub swap: f32,
    /// Weight of a word one edit away from an unknown one.
    pub typo: f32,
    /// Weight of a word two edits away.
    pub far_typo: f32,
    /// Weight of a word that shares most of its beginning with an unknown one.
    pub prefix: f32,
    /// Weight of two neighbouring words that are one word in the catalog, and of identifiers.
    pub joined: f32,
    /// Weight of a word between quotation marks: a value more than a wish.
    pub quoted: f32,
    /// Weight of a number.
    pub digits: f32,
    /// How much the best single sentence of a query counts beside the whole.
    pub clause: f32,
    /// How far a sentence that a better hit serves is discounted for the next.
    pub served: f32,
    /// What a copy (another tool of the same name) of a better hit keeps of its score.
    pub copy: f32,
    /// Share of the weaker variants of a concept that is added to the best.
    pub variants: f32,
    /// How much a name that the query covers whole raises the score.
    pub name_coverage: f32,
    /// Share of that which a word of the name gets when only a stand-in of it is in the query.
    pub name_stand_in: f32,
}

const fn field(weight: f32, length_share: f32, reference_length: f32) -> Field {
    Field { weight, length_share, reference_length }
}

impl Default for Ranking {
    fn default() -> Self {
        Self {
            name: field(2.6, 0.4, 3.0),
            title: field(2.0, 0.5, 4.0),
            aliases: field(2.0, 0.5, 4.0),
            owner: field(1.5, 0.3, 1.5),
            description: field(1.1, 0.5, 12.0),
            parameter_names: field(0.9, 0.5, 6.0),
            parameter_descriptions: field(0.45, 0.7, 20.0),
            enum_values: field(0.35, 0.5, 10.0),
            saturation: 1.0,
            synonym: 0.25,
            synonym_of_unknown: 0.8,
            swap: 0.9,
            typo: 0.35,
            far_typo: 0.5,
            prefix: 0.5,
            joined: 0.5,
            quoted: 0.6,
            digits: 0.8,
            clause: 0.4,
            served: 0.6,
            copy: 0.6,
            variants: 0.3,
            name_coverage: 0.3,
            name_stand_in: 0.5,
        }
    }
}

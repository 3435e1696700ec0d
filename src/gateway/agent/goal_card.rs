//! The goal card: what a model must not lose sight of, in 100 to 200 characters, last in the system prompt.
//!
//! Invariant: whatever goes in, the card has 100 to 200 characters, on one line, with its four parts in the same order.

use super::task::{cut, one_line};

/// Fewest characters of a card.
pub(super) const MIN_CHARS: usize = 100;
/// Most characters of a card.
pub(super) const MAX_CHARS: usize = 200;

/// What stands for a part about which there is nothing to say. Together with the labels these are over [`MIN_CHARS`].
const NO_GOAL: &str = "do what the user asks";
const NO_CONSTRAINTS: &str = "none stated";
const NOTHING_DONE: &str = "nothing yet";
const NOTHING_FORBIDDEN: &str = "what policy denies or nobody approved";

/// Writes a card.
pub(super) fn card(goal: &str, constraints: &[String], done: &[String], forbidden: &[String]) -> String {
    let or = |text: String, default: &str| if text.is_empty() { default.to_owned() } else { text };
    let newest_first: Vec<&str> = done.iter().rev().map(String::as_str).collect();
    let parts = [
        ("Goal: ", or(one_line(goal), NO_GOAL), 34),
        (". Constraints: ", or(one_line(&constraints.join("; ")), NO_CONSTRAINTS), 28),
        (". Done so far: ", or(one_line(&newest_first.join("; ")), NOTHING_DONE), 36),
        (". Forbidden: ", or(one_line(&forbidden.join("; ")), NOTHING_FORBIDDEN), 37),
    ];
    let labels: usize = parts.iter().map(|(label, ..)| label.chars().count()).sum::<usize>() + 1;
    let mut spare = MAX_CHARS - labels;
    // Each part gets its share; what a short part leaves goes to the others, the goal first.
    let lengths = parts.each_ref().map(|(_, text, share)| text.chars().count().min(*share));
    spare -= lengths.iter().sum::<usize>();
    let mut card = String::new();
    for ((label, text, _), length) in parts.iter().zip(lengths) {
        let more = (text.chars().count() - length).min(spare);
        spare -= more;
        card.push_str(label);
        card.push_str(cut(text, length + more).trim_end_matches('.'));
    }
    card.push('.');
    // Very short parts leave a card that says little; saying who decides is always true.
    if card.chars().count() < MIN_CHARS {
        card.push_str(
            " Whatever else comes up, the user decides; say so instead of guessing, and stop when it is done.",
        );
    }
    card
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_card_reads_as_four_parts() {
        let text = |text: &str| vec![text.to_owned()];
        assert_eq!(
            card("Create the issue", &text("only in acme/web"), &text("searched"), &text("assigning anybody")),
            "Goal: Create the issue. Constraints: only in acme/web. Done so far: searched. Forbidden: assigning anybody."
        );
        assert_eq!(
            card("", &[], &[], &[]),
            "Goal: do what the user asks. Constraints: none stated. Done so far: nothing yet. Forbidden: what policy denies \
             or nobody approved."
        );
    }

    #[test]
    fn a_long_goal_gets_what_the_others_leave() {
        let card = card(&"word ".repeat(100), &[], &[], &["x".to_owned()]);
        assert!(
            card.starts_with("Goal: word word word word word word word word word word word word word word word wo"),
            "{card}"
        );
        assert!(card.ends_with("Constraints: none stated. Done so far: nothing yet. Forbidden: x."), "{card}");
    }

    proptest! {
        #[test]
        fn a_card_has_100_to_200_characters(
            goal in ".{0,400}",
            constraints in proptest::collection::vec(".{0,80}", 0..4),
            done in proptest::collection::vec(".{0,80}", 0..12),
            forbidden in proptest::collection::vec(".{0,80}", 0..4),
        ) {
            let card = card(&goal, &constraints, &done, &forbidden);
            let chars = card.chars().count();
            prop_assert!((MIN_CHARS..=MAX_CHARS).contains(&chars), "{chars}: {card}");
            prop_assert!(!card.contains('\n'));
            let parts = ["Goal: ", ". Constraints: ", ". Done so far: ", ". Forbidden: "];
            let mut rest = card.as_str();
            for part in parts {
                let at = rest.find(part);
                prop_assert!(at.is_some(), "{part} in {card}");
                rest = &rest[at.unwrap_or_default() + part.len()..];
            }
        }
    }
}

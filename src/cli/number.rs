//! Flags that take a number: what is none is answered with what the flag takes, its unit and range.
//!
//! Invariant: every numeric flag of every verb is read here (a test looks at all of them).

use std::{fmt::Display, ops::RangeInclusive, str::FromStr};

use crate::sandbox::Range;

/// Reads a whole number within a range; `unit` is the plural of what is counted.
pub(super) fn whole<T>(
    unit: &'static str,
    range: RangeInclusive<T>,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static
where
    T: FromStr + Display + PartialOrd + Clone + Send + Sync + 'static,
{
    move |text| {
        let number = text.parse().ok().filter(|number| range.contains(number));
        number.ok_or_else(|| format!("{unit}: a whole number from {} to {}", range.start(), range.end()))
    }
}

/// Reads a limit; what is outside of its range is brought into it later, with a warning.
pub(super) fn limit(
    unit: &'static str,
    range: Range,
) -> impl Fn(&str) -> Result<u64, String> + Clone + Send + Sync + 'static {
    move |text| {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        match text.parse() {
            Ok(number) => Ok(number),
            // More than can be counted is more than is allowed.
            Err(_) if digits => Ok(u64::MAX),
            Err(_) => Err(format!("{unit}: a whole number from {} to {}", range.min, range.max)),
        }
    }
}

/// Reads a share of a whole.
pub(super) fn share(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|share| (0.0..=1.0).contains(share));
    number.ok_or_else(|| "a share: a number from 0 to 1, e.g. 0.25".to_owned())
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use clap::{Arg, Command, CommandFactory as _, builder::ValueParser};

    use super::*;

    /// Every flag that takes a value, with the words before it.
    fn flags(command: &Command, before: &[String]) -> Vec<(Vec<String>, Arg)> {
        let own = command.get_arguments().filter(|arg| arg.get_long().is_some() && arg.get_action().takes_values());
        let own = own.map(|arg| (before.to_vec(), arg.clone()));
        let below = command.get_subcommands().flat_map(|verb| {
            let mut before = before.to_vec();
            before.push(verb.get_name().to_owned());
            flags(verb, &before)
        });
        own.chain(below).collect()
    }

    fn reads<T: FromStr<Err: std::error::Error + Send + Sync> + Clone + Send + Sync + 'static>() -> ValueParser {
        ValueParser::new(|text: &str| text.parse::<T>())
    }

    fn is_number(arg: &Arg) -> bool {
        let whole = [reads::<u8>(), reads::<u16>(), reads::<u32>(), reads::<u64>(), reads::<usize>()];
        let others = [reads::<i32>(), reads::<i64>(), reads::<isize>(), reads::<f32>(), reads::<f64>()];
        whole.iter().chain(&others).any(|kind| kind.type_id() == arg.get_value_parser().type_id())
    }

    #[test]
    fn every_numeric_flag_says_what_it_takes() {
        let command = super::super::Cli::command();
        let mut said = String::new();
        for (before, arg) in flags(&command, &[]).into_iter().filter(|(_, arg)| is_number(arg)) {
            let flag = format!("--{}", arg.get_long().unwrap());
            let told = |given: &str| {
                let words = ["toolbridge".to_owned()].into_iter().chain(before.clone());
                // A minus is the number's, not another flag's, however it is given.
                let words = words.chain(match given {
                    "-1" => vec![flag.clone(), given.to_owned()],
                    _ => vec![format!("{flag}={given}")],
                });
                command.clone().try_get_matches_from(words).unwrap_err().to_string()
            };
            for given in ["", "ten", "-1", "1e3", "1_000", "٣", "NaN"] {
                let told = told(given);
                let first = told.lines().next().unwrap_or_default();
                let words = first.rsplit_once(">': ").map_or(first, |(_, words)| words);
                assert!(words.contains(" from ") && words.contains(" to "), "{before:?} {flag}={given}: {told}");
                if given == "ten" {
                    writeln!(said, "{} {flag}: {words}", before.join(" ")).unwrap();
                }
            }
        }
        insta::assert_snapshot!(said);
    }

    #[test]
    fn a_limit_beyond_its_range_is_left_to_be_brought_into_it() {
        let read = limit("milliseconds", crate::sandbox::CODE_TIMEOUT_MS);
        assert_eq!(read("1"), Ok(1));
        assert_eq!(read("99999999999999999999999"), Ok(u64::MAX));
        assert_eq!(read("-5"), Err("milliseconds: a whole number from 100 to 600000".to_owned()));
        assert_eq!(whole("hits", 1_u32..=50)("51"), Err("hits: a whole number from 1 to 50".to_owned()));
        assert_eq!(share("0.25"), Ok(0.25));
    }
}

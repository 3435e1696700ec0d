//! The wall clock as text, for records only: nothing is ever decided by it.

use std::time::{SystemTime, UNIX_EPOCH};

/// Now, as `2026-11-30T01:02:03.456Z`.
pub(crate) fn utc_now() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    utc_text(since.as_secs(), since.subsec_millis())
}

/// Seconds since 1970 as text in UTC; days to date as in Howard Hinnant's `civil_from_days`.
fn utc_text(seconds: u64, millis: u32) -> String {
    let (days, second_of_day) = (seconds / 86_400, seconds % 86_400);
    let shifted = days + 719_468; // days since 0000-03-01
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (second_of_day / 3_600, second_of_day / 60 % 60, second_of_day % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

#[cfg(test)]
mod tests {
    use super::utc_text;

    #[test]
    fn seconds_become_dates_across_leap_days() {
        assert_eq!(utc_text(0, 0), "1970-01-01T00:00:00.000Z");
        assert_eq!(utc_text(951_782_399, 999), "2000-02-28T23:59:59.999Z");
        assert_eq!(utc_text(951_782_400, 1), "2000-02-29T00:00:00.001Z");
        assert_eq!(utc_text(1_796_000_523, 42), "2026-11-30T01:02:03.042Z");
    }
}

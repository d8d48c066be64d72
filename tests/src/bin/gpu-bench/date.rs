//! Today, for the heading of a table.

use std::time::{SystemTime, UNIX_EPOCH};

/// The date in UTC, as 2026-11-21.
pub(crate) fn today() -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let (year, month, day) = date((seconds / 86_400) as i64);
    format!("{year}-{month:02}-{day:02}")
}

/// Year, month and day of a day counted from 1970-01-01, by years that begin in March (Hinnant,
/// "chrono-compatible low-level date algorithms").
fn date(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * march + 2) / 5 + 1;
    let month = if march < 10 { march + 3 } else { march - 9 };
    (year + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::date;

    #[test]
    fn known_days() {
        assert_eq!(
            [0, 59, 11_016, 20_778].map(date),
            [(1970, 1, 1), (1970, 3, 1), (2000, 2, 29), (2026, 11, 21)]
        );
    }
}

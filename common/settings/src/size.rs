//! Numbers, sizes and times, read and written.

pub use events::say::{bytes as human, digits};
pub use shell::whole;
use std::time::Duration;

/// Reads `512MiB`, `80GB`, `1.5GiB` or a plain number of bytes.
///
/// # Errors
/// A sentence that says what is accepted.
pub fn parse(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let factor = match text[digits..].trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1.0,
        "kb" | "k" => 1e3,
        "mb" | "m" => 1e6,
        "gb" | "g" => 1e9,
        "tb" | "t" => 1e12,
        "kib" => 1024.0,
        "mib" => 1024.0 * 1024.0,
        "gib" => 1024.0 * 1024.0 * 1024.0,
        "tib" => 1024.0 * 1024.0 * 1024.0 * 1024.0,
        unit => {
            return Err(format!("unknown unit {unit:?}: write 512MiB, 1.5GiB, 80GB or a number of bytes"));
        }
    };
    let number: f64 =
        text[..digits].parse().map_err(|_| "write 512MiB, 1.5GiB, 80GB or bytes".to_string())?;
    let bytes = number * factor;
    match bytes {
        ..1.0 => Err("must be at least one byte".into()),
        1.0..1e18 => Ok(bytes as u64),
        _ => Err("must be less than 10^18 bytes, a million TB".into()),
    }
}

/// Reads a number of elements, `low` or more: `500000`, `500_000` or, as in DeepSpeed's files,
/// `5e5`.
///
/// # Errors
/// A sentence that says what is accepted.
pub fn elements(text: &str, low: u64) -> Result<usize, String> {
    let number: f64 = text.replace('_', "").parse().unwrap_or(f64::NAN);
    if number.fract() == 0.0 && (low as f64..=LARGEST_EXACT as f64).contains(&number) {
        return Ok(number as usize);
    }
    Err(format!("write a whole number of elements from {low} to 2^53, such as 200000 or 5e8"))
}

/// Reads a number that `is_allowed` accepts; `allowed` describes the accepted numbers.
///
/// The function's error is a sentence that says what is accepted.
pub fn number(
    allowed: &'static str,
    is_allowed: fn(f64) -> bool,
) -> impl Fn(&str) -> Result<f64, String> + Clone + Send + Sync {
    move |text| {
        let number = text.parse::<f64>().ok().filter(|&number| is_allowed(number));
        number.ok_or_else(|| format!("write {allowed}"))
    }
}

/// The largest number up to which an f64 holds every whole number: 2^53.
pub const LARGEST_EXACT: u64 = 1 << 53;

/// Formats a time in whole seconds: `0:07`, `1:02:33`.
pub fn clock(time: Duration) -> String {
    let seconds = time.as_secs();
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match hours {
        0 => format!("{minutes}:{seconds:02}"),
        _ => format!("{hours}:{minutes:02}:{seconds:02}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_short() {
        let clocks = [0, 59, 60, 3753, 360_000].map(|s| clock(Duration::from_secs(s)));
        assert_eq!(clocks, ["0:00", "0:59", "1:00", "1:02:33", "100:00:00"]);
    }

    #[test]
    fn elements_are_whole_numbers_in_range() {
        for (text, low, expected) in [("1", 1, 1), ("0", 0, 0), ("5e8", 1, 500_000_000), ("1_000", 1, 1000)] {
            assert_eq!(elements(text, low), Ok(expected), "{text}");
        }
        for bad in ["0", "-3", "1.5", "1e-3", "1e17", "nan", "inf", "", "12k"] {
            assert!(elements(bad, 1).unwrap_err().contains("from 1 to 2^53"), "{bad}");
        }
    }

    #[test]
    fn numbers_out_of_range_are_told_the_range() {
        let share = number("a number from 0 to 1", |x| (0.0..=1.0).contains(&x));
        assert_eq!(share("0.5"), Ok(0.5));
        for bad in ["-0.1", "nan", "inf", "half", ""] {
            assert_eq!(share(bad), Err("write a number from 0 to 1".into()), "{bad}");
        }
    }

    #[test]
    fn sizes_round_trip_through_words() {
        assert_eq!(parse("512MiB"), Ok(512 << 20));
        assert_eq!(parse("1.5 GiB"), Ok(3 << 29));
        assert_eq!(parse("80GB"), Ok(80_000_000_000));
        assert_eq!(parse("77"), Ok(77));
        for bad in ["", "-3", "12 parsecs", "0", "1..2GB"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
        assert!(parse("0.5").unwrap_err().contains("at least one byte"));
        assert!(parse("1000000TB").unwrap_err().contains("less than 10^18 bytes"));
        assert_eq!(human(999), "999 B");
        assert_eq!(human(3_547_136), "3.55 MB");
        assert_eq!(human(14_000_000_000), "14.0 GB");
        assert_eq!(human(999_600), "1.00 MB");
    }
}

//! Numbers as people type them: `1,705,984`, `1.7MB`, `2/3`, `1e6`.

/// What a unit measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A count: no unit, or one that does not change the value.
    Count,
    /// A prefix without a unit. It scales the requested unit, or bytes if GB are requested.
    Prefix,
    Size,
    Time,
}

/// A number and the factor of its unit, not yet multiplied.
#[derive(Clone, Copy)]
struct Quantity {
    number: f64,
    factor: f64,
    kind: Kind,
}

/// Parses a number of `unit`, such as `GB`, which `text` may repeat. Converts sizes to bytes or GB,
/// and times to milliseconds. Returns `None` if it is not a number or has another unit.
pub(super) fn read_number(text: &str, unit: &str) -> Option<f64> {
    let plain = text.to_lowercase().replace([',', '_', ' '], "");
    let Quantity { number, factor, kind } = match quantity(&plain) {
        None => quantity(plain.strip_suffix(&unit.to_lowercase())?)?,
        Some(quantity) => quantity,
    };
    let value = match (kind, unit) {
        (Kind::Size | Kind::Prefix, "GB") => number * (factor / 1e9),
        (Kind::Count | Kind::Prefix, _) | (Kind::Size, "bytes") | (Kind::Time, "ms") => number * factor,
        (Kind::Size | Kind::Time, _) => return None,
    };
    (value.is_finite() && value >= 0.0).then_some(value)
}

/// Parses a number and its unit. The unit of a fraction follows the fraction or its first number.
/// If both numbers have the same unit, the fraction has none.
fn quantity(text: &str) -> Option<Quantity> {
    let Some((over, under)) = text.split_once('/') else {
        let end = text.rfind(|c: char| c.is_ascii_digit() || c == '.')? + 1;
        let (factor, kind) = factor(&text[end..])?;
        return Some(Quantity { number: text[..end].parse().ok()?, factor, kind });
    };
    let (over, under) = (quantity(over)?, quantity(under)?);
    let number = over.number / under.number;
    match (over.kind, under.kind) {
        (Kind::Count, _) => Some(Quantity { number, ..under }),
        (_, Kind::Count) => Some(Quantity { number, ..over }),
        (one, other) if one == other => {
            Some(Quantity { number, factor: over.factor / under.factor, kind: Kind::Count })
        }
        _ => None,
    }
}

/// Returns the value of a unit in bytes, milliseconds or ones.
fn factor(unit: &str) -> Option<(f64, Kind)> {
    Some(match unit {
        "" | "×" | "x" | "%" => (1.0, Kind::Count),
        "k" => (1e3, Kind::Prefix),
        "m" => (1e6, Kind::Prefix),
        "g" => (1e9, Kind::Prefix),
        "b" | "bytes" => (1.0, Kind::Size),
        "kb" => (1e3, Kind::Size),
        "mb" => (1e6, Kind::Size),
        "gb" => (1e9, Kind::Size),
        "kib" => (1024.0, Kind::Size),
        "mib" => (1048576.0, Kind::Size),
        "gib" => (1073741824.0, Kind::Size),
        "ms" => (1.0, Kind::Time),
        "s" => (1e3, Kind::Time),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_people_type_them() {
        for (text, unit, value) in [
            ("1,705,984", "bytes", 1705984.0),
            ("1.7 MB", "bytes", 1.7e6),
            ("2/3", "times", 2.0 / 3.0),
            ("2/3 MB", "bytes", 2e6 / 3.0),
            ("2 MB/4", "bytes", 5e5),
            ("64 GB / 32 GB", "times", 2.0),
            ("1e6", "bytes", 1e6),
            ("1E6", "bytes", 1e6),
            ("50%", "%", 50.0),
            ("4GiB", "bytes", 4294967296.0),
            ("1.5 s", "ms", 1500.0),
            ("1500ms", "ms", 1500.0),
            ("24 times", "times", 24.0),
            ("24 Times", "times", 24.0),
            ("2", "elements", 2.0),
        ] {
            assert_eq!(read_number(text, unit), Some(value), "{text}");
        }
        for text in ["", "many", "1 apple", "nan", "1/0", "-5", "/", "1e", "2 MB/1 s"] {
            assert_eq!(read_number(text, "bytes"), None, "{text}");
        }
    }

    #[test]
    fn sizes_are_converted_to_the_unit_that_is_asked() {
        for (text, value) in [
            ("1750 MB", 1.75),
            ("875 MB", 0.875),
            ("0.875 gb", 0.875),
            ("208 Gb", 208.0),
            ("208G", 208.0),
            ("208", 208.0),
            ("14/8 GB", 1.75),
            ("193.7 GiB", 207.98),
        ] {
            let read = read_number(text, "GB").unwrap();
            assert!((read / value - 1.0).abs() < 1e-4, "{text}: {read}");
        }
    }

    #[test]
    fn units_of_another_kind_are_refused() {
        for (text, unit) in [("16 ms", "bytes"), ("16 s", "GB"), ("16 MB", "ms"), ("2 MB", "times")] {
            assert_eq!(read_number(text, unit), None, "{text} for {unit}");
        }
    }
}

//! Redacts the parts of outputs that differ from run to run.

/// Replaces times and speeds, which differ from run to run.
pub(super) const REDACTED: &str = "…";
/// Words that follow a time, a speed or a property of the machine.
const MEASURES: [&str; 6] = ["tokens/s", "GFLOP/s", "GB/s", "s", "ms", "CPU"];

pub(super) fn redacted(line: &str) -> String {
    let parts: Vec<&str> = line.split(' ').collect();
    let is_number = |word: &str| word.starts_with(|c: char| c.is_ascii_digit());
    let mut out: Vec<String> = Vec::with_capacity(parts.len());
    for (index, part) in parts.iter().enumerate() {
        let next = parts.get(index + 1).map_or("", |word| word.trim_end_matches([',', '.', ';', ')']));
        if let Some(place) = source_place(part) {
            out.push(place);
            continue;
        }
        let measured = is_number(part) && MEASURES.contains(&next);
        out.push(if measured { REDACTED.into() } else { part.to_string() });
    }
    step_row(line).unwrap_or_else(|| out.join(" "))
}

/// Returns `file.rs:123:` without the line number, which changes with every edit of the file.
fn source_place(word: &str) -> Option<String> {
    let (file, _) = word.split_once(".rs:")?;
    Some(format!("{file}.rs:{REDACTED}:"))
}

/// Returns a row of the loss table without the values that differ from run to run: the tokens per
/// second and, at its end, the share of the machine, the time and the remaining time.
fn step_row(line: &str) -> Option<String> {
    let columns: Vec<&str> = line.split_whitespace().collect();
    let is_row = columns.len() >= 7
        && columns[0].parse::<u32>().is_ok()
        && columns[1..4]
            .iter()
            .all(|column| column.parse::<f64>().is_ok() || *column == "inf" || *column == "NaN");
    let is_time =
        |word: &str| word.ends_with('%') || word == "–" || word.contains(':') && word != "overflow:";
    let times = columns.iter().skip(7).filter(|word| is_time(word));
    let replaced = |line: String, word: &&str| {
        let at = line.rfind(word)?;
        let blank = format!("{REDACTED:>width$}", width = word.chars().count());
        Some(format!("{}{blank}{}", &line[..at], &line[at + word.len()..]))
    };
    // From right to left, so that a word that occurs twice is replaced twice.
    let words = [columns.get(4)?].into_iter().chain(times).collect::<Vec<_>>();
    is_row.then(|| words.iter().rev().try_fold(line.to_string(), |line, word| replaced(line, word)))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_taken_out_and_bytes_are_not() {
        assert_eq!(redacted("6,249 tokens/s · 38.1 GFLOP/s"), "… tokens/s · … GFLOP/s");
        assert_eq!(redacted("parameters  918,656  equal"), "parameters  918,656  equal");
        let row = "     1    5.1111   3.000e-3     4.0991      4,883    45.8 MB";
        assert_eq!(redacted(row), "     1    5.1111   3.000e-3     4.0991          …    45.8 MB");
        let timed = "     1    5.1111   3.000e-3     4.0991      4,883    9.96 MB       65536   31.2%      0:07      0:07  overflow: skipped";
        let shown = "     1    5.1111   3.000e-3     4.0991          …    9.96 MB       65536       …         …         …  overflow: skipped";
        assert_eq!(redacted(timed), shown);
    }
}

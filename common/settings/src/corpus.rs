//! The default text: sentences about ranks, shards and collectives from a small seeded grammar, so
//! that generated sentences that parse can be counted.

use device::random::{STEP, mix};
use std::sync::LazyLock;

/// Version of the grammar and its seed. It changes with the text.
pub const VERSION: u32 = 1;

pub(crate) const BYTES: usize = 1_000_000;

/// The phrases that may replace a name in a form.
const PHRASES: [(&str, &[&str]); 10] = [
    ("rank", &["rank 0", "rank 1", "rank 2", "rank 3", "every rank", "each rank"]),
    ("unit", &["the embedding", "block 0", "block 1", "block 2", "block 3", "the head"]),
    ("state", &["parameters", "gradients", "optimizer states", "master weights", "activations"]),
    ("stage", &["DDP", "ZeRO-1", "ZeRO-2", "ZeRO-3"]),
    (
        "collective",
        &["an all-reduce", "a reduce-scatter", "an all-gather", "a broadcast", "a ring all-reduce"],
    ),
    ("pass", &["forward", "backward", "the step", "the first micro-batch", "the last micro-batch"]),
    ("takes", &["gathers", "waits for", "fetches", "asks for", "computes with"]),
    ("drops", &["frees", "releases", "hands back", "forgets"]),
    ("does", &["sums", "moves", "shares", "overlaps with", "waits for"]),
    ("how", &["whole", "sharded", "in a bucket", "on one device", "in four slices"]),
];

/// Every form that a sentence can take.
const FORMS: [&str; 6] = [
    "<rank> <takes> <unit> before <pass>.",
    "<rank> <drops> <unit> after <pass>.",
    "<stage> keeps the <state> <how>.",
    "<collective> <does> the <state> of <unit>.",
    "after <pass>, <rank> <drops> the <state>.",
    "in <stage>, <rank> <takes> the <state> of <unit>.",
];

/// Splits a form at its first name: the words before it, the phrases that it stands for, and the
/// rest of the form. `None` if it has no names.
fn split(form: &str) -> Option<(&str, &'static [&'static str], &str)> {
    let (words, rest) = form.split_once('<')?;
    let (name, rest) = rest.split_once('>')?;
    let (_, phrases) = PHRASES.iter().find(|(other, _)| *other == name)?;
    Some((words, phrases, rest))
}

/// Returns the text: about 10⁶ bytes, the same on every machine. A process generates it once, for
/// all of its runs.
pub fn text() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(make);
    &TEXT
}

fn make() -> String {
    let mut random = SplitMix(u64::from(VERSION) * 0x5EED);
    let mut text = String::with_capacity(BYTES + 100);
    let mut sentences = 0;
    while text.len() < BYTES {
        let mut form = FORMS[random.below(FORMS.len())];
        while let Some((words, phrases, rest)) = split(form) {
            text.extend([words, phrases[random.below(phrases.len())]]);
            form = rest;
        }
        text.push_str(form);
        sentences += 1;
        text.push(if sentences % 6 == 0 { '\n' } else { ' ' });
    }
    text
}

/// True if `sentence`, with its full stop and without surrounding space, follows the grammar.
pub fn parses(sentence: &str) -> bool {
    FORMS.iter().any(|form| matches(form, sentence))
}

fn matches(form: &str, sentence: &str) -> bool {
    let Some((words, phrases, later)) = split(form) else { return sentence == form };
    let Some(rest) = sentence.strip_prefix(words) else { return false };
    phrases.iter().any(|phrase| rest.strip_prefix(phrase).is_some_and(|rest| matches(later, rest)))
}

/// Returns the number of complete sentences of `text` (ignoring the text before the first full stop
/// and after the last), and how many of them parse.
pub fn count_sentences(text: &str) -> (usize, usize) {
    let Some(start) = text.find('.') else { return (0, 0) };
    let sentences: Vec<&str> = text[start + 1..].split_inclusive('.').filter(|s| s.ends_with('.')).collect();
    let good = sentences.iter().filter(|s| parses(s.trim_start())).count();
    (sentences.len(), good)
}

/// Steele, Lea & Flood's SplitMix64: small, and the same everywhere.
pub struct SplitMix(pub u64);

impl SplitMix {
    /// Returns the next number.
    pub fn next_u64(&mut self) -> u64 {
        let next = mix(self.0);
        self.0 = self.0.wrapping_add(STEP);
        next
    }

    /// Returns a number uniform in `0..bound`, by the high half of a wide product.
    pub fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.next_u64()) * bound as u128) >> 64) as usize
    }

    /// Returns a number uniform in [0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_pinned() {
        let text = text();
        assert!(text.is_ascii() && text.len() >= BYTES);
        let hash = blake3::hash(text.as_bytes()).to_hex();
        insta::assert_snapshot!(format!(
            "version {VERSION}: {} bytes, blake3 {hash}\n{}",
            text.len(),
            &text[..400]
        ));
    }

    #[test]
    fn every_sentence_of_the_text_parses_and_noise_does_not() {
        let text = text();
        let (all, good) = count_sentences(text);
        assert!(all > 10_000);
        assert_eq!(all, good);
        for noise in ["rank 4 gathers block 0 before forward.", "rank 0 gathers block 0.", "", ".", "rank 0"]
        {
            assert!(!parses(noise), "{noise}");
        }
        let (all, good) =
            count_sentences("tail. DDP keeps the gradients whole. DDP keeps gradients whole. rest");
        assert_eq!((all, good), (2, 1));
    }
}

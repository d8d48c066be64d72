//! The default text: sentences about ranks, shards and collectives from a small seeded grammar, so
//! that whether generated text parses can be counted.

use std::sync::LazyLock;

/// Version of the grammar and its seed. It changes with the text.
pub const VERSION: u32 = 1;

pub(crate) const BYTES: usize = 1_000_000;

const RANKS: &[&str] = &["rank 0", "rank 1", "rank 2", "rank 3", "every rank", "each rank"];
const UNITS: &[&str] = &["the embedding", "block 0", "block 1", "block 2", "block 3", "the head"];
const STATES: &[&str] = &["parameters", "gradients", "optimizer states", "master weights", "activations"];
const STAGES: &[&str] = &["DDP", "ZeRO-1", "ZeRO-2", "ZeRO-3"];
const COLLECTIVES: &[&str] =
    &["an all-reduce", "a reduce-scatter", "an all-gather", "a broadcast", "a ring all-reduce"];
const PASSES: &[&str] = &["forward", "backward", "the step", "the first micro-batch", "the last micro-batch"];
const TAKES: &[&str] = &["gathers", "waits for", "fetches", "asks for", "computes with"];
const DROPS: &[&str] = &["frees", "releases", "hands back", "forgets"];
const DOES: &[&str] = &["sums", "moves", "shares", "overlaps with", "waits for"];
const HOW: &[&str] = &["whole", "sharded", "in a bucket", "on one device", "in four slices"];

/// A piece of a sentence: fixed words, or one of several phrases.
enum Piece {
    Text(&'static str),
    One(&'static [&'static str]),
}

use Piece::{One, Text};

/// Every form that a sentence can take.
const FORMS: &[&[Piece]] = &[
    &[One(RANKS), Text(" "), One(TAKES), Text(" "), One(UNITS), Text(" before "), One(PASSES), Text(".")],
    &[One(RANKS), Text(" "), One(DROPS), Text(" "), One(UNITS), Text(" after "), One(PASSES), Text(".")],
    &[One(STAGES), Text(" keeps the "), One(STATES), Text(" "), One(HOW), Text(".")],
    &[
        One(COLLECTIVES),
        Text(" "),
        One(DOES),
        Text(" the "),
        One(STATES),
        Text(" of "),
        One(UNITS),
        Text("."),
    ],
    &[
        Text("after "),
        One(PASSES),
        Text(", "),
        One(RANKS),
        Text(" "),
        One(DROPS),
        Text(" the "),
        One(STATES),
        Text("."),
    ],
    &[
        Text("in "),
        One(STAGES),
        Text(", "),
        One(RANKS),
        Text(" "),
        One(TAKES),
        Text(" the "),
        One(STATES),
        Text(" of "),
        One(UNITS),
        Text("."),
    ],
];

/// Returns the text: about 10⁶ bytes, the same on every machine. A process makes it once, for all of
/// its runs.
pub fn text() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(make);
    &TEXT
}

fn make() -> String {
    let mut random = SplitMix(u64::from(VERSION) * 0x5EED);
    let mut text = String::with_capacity(BYTES + 100);
    let mut sentences = 0;
    while text.len() < BYTES {
        for piece in FORMS[random.below(FORMS.len())] {
            text.push_str(match piece {
                Text(words) => words,
                One(phrases) => phrases[random.below(phrases.len())],
            });
        }
        sentences += 1;
        text.push(if sentences % 6 == 0 { '\n' } else { ' ' });
    }
    text
}

/// True if `sentence`, with its full stop and without surrounding space, follows the grammar.
pub fn parses(sentence: &str) -> bool {
    FORMS.iter().any(|form| matches(form, sentence))
}

fn matches(form: &[Piece], rest: &str) -> bool {
    match form.split_first() {
        None => rest.is_empty(),
        Some((Text(words), later)) => rest.strip_prefix(words).is_some_and(|rest| matches(later, rest)),
        Some((One(phrases), later)) => {
            phrases.iter().any(|phrase| rest.strip_prefix(phrase).is_some_and(|rest| matches(later, rest)))
        }
    }
}

/// Counts the whole sentences of `text` (without what precedes the first full stop and follows the
/// last), and how many of them parse.
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
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
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

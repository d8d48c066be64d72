//! Damages inputs. The damage depends only on a random number.

pub(crate) use tests::random::Random;

/// Numbers at which lengths and counts go wrong.
const EXTREMES: [u64; 9] = [0, 1, 127, 255, 1 << 16, (1 << 31) - 1, (1 << 32) - 1, 1 << 44, u64::MAX];

/// Pieces of JSON and YAML in places where they do not belong.
const WORDS: [&str; 22] = [
    "{",
    "}",
    "[",
    "]",
    "\"",
    ",",
    ":",
    "\n",
    "  ",
    "- ",
    "&a ",
    "*a",
    "<<: ",
    "null",
    "true",
    "-1",
    "1e400",
    "0.5",
    "18446744073709551616",
    "9007199254740993",
    "\\ud800",
    "\"\":[[[[[[",
];

/// Returns one of `samples` with one to four kinds of damage.
pub(crate) fn damaged(samples: &[Vec<u8>], text: bool, random: &mut Random) -> Vec<u8> {
    let mut bytes = random.pick(samples).clone();
    for _ in 0..=random.below(4) {
        damage(&mut bytes, samples, text, random);
    }
    bytes
}

fn damage(bytes: &mut Vec<u8>, samples: &[Vec<u8>], text: bool, random: &mut Random) {
    let (at, length) = (random.below(bytes.len()), 1 + random.below(16));
    let end = bytes.len().min(at + length);
    let put =
        |bytes: &mut Vec<u8>, word: &[u8]| drop(bytes.splice(at.min(bytes.len())..end, word.iter().copied()));
    match random.below(if text { 9 } else { 7 }) {
        0 => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << random.below(8)),
        1 => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte = random.next() as u8),
        2 => bytes.truncate(at),
        3 => {
            let number = random.pick(&EXTREMES).to_le_bytes();
            let width = [1, 2, 4, 8][random.below(4)];
            bytes.iter_mut().skip(at).zip(&number[..width]).for_each(|(byte, new)| *byte = *new);
        }
        4 => put(bytes, &[]),
        5 => {
            let other = random.pick(samples);
            let from = random.below(other.len());
            put(bytes, &other[from..other.len().min(from + 64)]);
        }
        // The largest number that the formats' variable-length integers can hold.
        6 => put(bytes, [&[0xff; 9][..], &[1]].concat().as_slice()),
        7 => put(bytes, random.pick(&WORDS).as_bytes()),
        _ => replace_number(bytes, at, random),
    }
}

/// Replaces the first number of a text at or after `at`.
fn replace_number(bytes: &mut Vec<u8>, at: usize, random: &mut Random) {
    let digit = |byte: &u8| byte.is_ascii_digit();
    let Some(start) = bytes[at.min(bytes.len())..].iter().position(digit).map(|start| start + at) else {
        return;
    };
    let end = bytes[start..].iter().position(|byte| !digit(byte)).map_or(bytes.len(), |end| start + end);
    bytes.splice(start..end, random.pick(&EXTREMES).to_string().into_bytes());
}

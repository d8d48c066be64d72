//! The byte-level tokenizer: a token's id is the byte's value, so it needs no training and no
//! vocabulary file.

use serde_json::{Value, json};

/// The number of tokens.
pub const VOCABULARY: usize = 256;

/// Returns the tokens of `text`: its bytes in UTF-8.
pub fn encode(text: &str) -> Vec<u32> {
    text.bytes().map(u32::from).collect()
}

/// Returns the text of `tokens`. Bytes that are not UTF-8, which an untrained model may produce,
/// and tokens beyond 255 become U+FFFD.
pub fn decode(tokens: &[u32]) -> String {
    // 0xFF occurs nowhere in UTF-8.
    let bytes: Vec<u8> = tokens.iter().map(|&token| u8::try_from(token).unwrap_or(0xFF)).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Returns the names and contents of the files from which Transformers loads this tokenizer.
/// `longest` is the model's maximum input length in tokens.
pub fn files(longest: usize) -> [(&'static str, String); 2] {
    let config = json!({
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": longest,
        "clean_up_tokenization_spaces": false,
    });
    [("tokenizer.json", format!("{:#}\n", definition())), ("tokenizer_config.json", format!("{config:#}\n"))]
}

/// Returns the definition of the tokenizer: a byte-pair encoding without merges.
fn definition() -> Value {
    let vocabulary: serde_json::Map<String, Value> =
        (0..=255u8).map(|byte| (symbol(byte).to_string(), byte.into())).collect();
    let bytes = json!({
        "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false
    });
    json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": [],
        "normalizer": null,
        "pre_tokenizer": bytes,
        "post_processor": null,
        "decoder": bytes,
        "model": {
            "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
            "vocab": vocabulary, "merges": [],
        },
    })
}

/// Returns the printable character that byte-level tokenizers write for `byte` (GPT-2, Radford et
/// al., 2019): the byte itself if it is a printable Latin-1 character other than a space, otherwise
/// the next unused character from U+0100 on.
fn symbol(byte: u8) -> char {
    let printable = |byte: &u8| matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    if printable(&byte) {
        return byte.into();
    }
    let earlier = (0..byte).filter(|byte| !printable(byte)).count();
    // At most 68 bytes are not printable, so this stays below U+0144, all of which are characters.
    char::from_u32(0x100 + earlier as u32).unwrap_or(char::REPLACEMENT_CHARACTER)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn text_survives() {
        let text = "plain, and not: Grüße, 学习\n\t\0";
        assert_eq!(encode(text)[..6], [112, 108, 97, 105, 110, 44]);
        assert_eq!(decode(&encode(text)), text);
    }

    #[test]
    fn what_is_no_text_becomes_replacement_characters() {
        assert_eq!(decode(&[97, 0xC3, 98, 300, 99]), "a\u{FFFD}b\u{FFFD}c");
    }

    #[test]
    fn every_byte_has_its_own_printable_symbol() {
        let symbols: BTreeSet<char> = (0..=255).map(symbol).collect();
        assert_eq!(symbols.len(), 256);
        assert!(symbols.iter().all(|symbol| !symbol.is_control() && !symbol.is_whitespace()));
        assert_eq!([symbol(0), symbol(b' '), symbol(b'a'), symbol(0xAD)], ['Ā', 'Ġ', 'a', 'Ń']);
    }
}

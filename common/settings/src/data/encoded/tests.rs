//! Text, JSON lines and conversations as they are encoded before a run.

use super::*;
use std::io::Seek;

fn ids(text: &str, mask_prompt: bool) -> Result<Vec<u32>> {
    ids_of(text, DataSource { mask_prompt, ..DataSource::default() })
}

/// Encodes `text` as JSON lines.
fn ids_of(text: &str, source: DataSource) -> Result<Vec<u32>> {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file.rewind().unwrap();
    let source = DataSource { format: TokenFormat::Jsonl, ..source };
    Ok(written(encode(&source, file, "--data x.jsonl", None)?))
}

fn written(mut ids: File) -> Vec<u32> {
    let mut bytes = Vec::new();
    ids.rewind().unwrap();
    ids.read_to_end(&mut bytes).unwrap();
    bytes.as_chunks().0.iter().map(|id| u32::from_le_bytes(*id)).collect()
}

#[test]
fn prompts_are_marked_if_that_is_asked_for() {
    let text = "{\"prompt\": \"a\", \"completion\": \"b\", \"id\": 7}\n\n{\"text\": \"c\"}";
    let [a, b, c, end] = [b'a', b'b', b'c', b'\n'].map(u32::from);
    assert_eq!(ids(text, true).unwrap(), [a | PROMPT, b, end, c, end]);
    assert_eq!(ids(text, false).unwrap(), [a, b, end, c, end]);
}

#[test]
fn a_text_without_lines_is_encoded_in_pieces_between_words_or_characters() {
    let text = format!("{}{} end", "two words".repeat(LONGEST_PIECE / 9), "é學".repeat(LONGEST_PIECE / 3));
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file.rewind().unwrap();
    let ids = written(encode(&DataSource::default(), file, "", None).unwrap());
    assert!(ids.into_iter().eq(text.bytes().map(u32::from)), "no byte is lost");
    for (piece, end) in
        [(&b"one two  three"[..], 3), (b"one\n two", 7), ("1é".as_bytes(), 1), (&[b'1', 0xE5, 0xAD], 1)]
    {
        assert_eq!(last_cut(piece), end, "{piece:?}");
    }
}

#[test]
fn a_line_that_is_malformed_or_needs_a_template_is_named() {
    let malformed = ["{\"prompt\": \"a\"}", "[1]", "{\"text\": 1}", "{\"text\": \"a\""];
    let chat = ["{\"messages\": []}", "{\"id\": 1, \"conversations\": 2, \"text\": \"a\"}"];
    let expected = malformed.map(|line| (line, "is not a JSON object with"));
    for (line, what) in expected.into_iter().chain(chat.map(|line| (line, "is a conversation, which needs")))
    {
        let error = ids(&format!("{{\"text\": \"a\"}}\n{line}\n"), false).unwrap_err();
        assert_eq!(error.code(), 2, "{error}");
        assert!(error.to_string().starts_with(&format!("--data x.jsonl: line 2 {what}")), "{error}");
    }
}

#[test]
fn data_without_a_token_that_carries_a_loss_is_refused() {
    let out = BufWriter::new(tempfile::tempfile().unwrap());
    let tokenizer = Tokenizer::open(None).unwrap();
    let (mask_prompt, tokens, learned, progress, warning) = (true, 0, 0, None, None);
    let mut encoder = Encoder { name: "x", tokenizer, mask_prompt, out, tokens, learned, progress, warning };
    encoder.records(&b"\n"[..]).unwrap();
    encoder.put(&[PROMPT, 1 | PROMPT]).unwrap();
    let unlearned = encoder.records(&b""[..]).unwrap_err().to_string();
    assert!(unlearned.starts_with("x: with --mask-prompt no token carries a loss"), "{unlearned}");
}

#[test]
fn a_tokenizer_that_fails_is_no_fault_of_the_command_line() {
    let [input, failed] =
        [TextError::Input, TextError::Tokenizer].map(|error| Failure::from(error("a".into())));
    assert_eq!([input.code(), failed.code()], [2, 1]);
}

#[test]
fn a_byte_order_mark_is_no_part_of_the_text() {
    let marked = |text: &str| format!("\u{feff}{text}");
    let record = "{\"text\": \"c\"}";
    assert_eq!(ids(&marked(record), false).unwrap(), ids(record, false).unwrap());
    let plain = |text: &str| {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file.rewind().unwrap();
        written(encode(&DataSource::default(), file, "", None).unwrap())
    };
    assert_eq!(plain(&marked("a")), plain("a"));
    assert_eq!(plain("").len(), 0);
}

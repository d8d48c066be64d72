//! Files of ids: their bytes, ids that are refused, and a file that shrinks.

use super::*;
use crate::data::TokenFormat;

fn open(bytes: &[u8], format: TokenFormat) -> (tempfile::TempDir, Result<Tokens>) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ids.bin");
    std::fs::write(&path, bytes).unwrap();
    let source = DataSource { format, ..DataSource::default() };
    let tokens = Tokens::open(&path, &source, ProgressOutput::Silent);
    (dir, tokens)
}

#[test]
fn token_files_are_little_endian() {
    let ids = |format| {
        let (_dir, tokens) = open(&[1u8, 2, 3, 4], format);
        let tokens = tokens.unwrap();
        tokens.read(0..tokens.len, usize::MAX).unwrap()
    };
    assert_eq!(ids(TokenFormat::U16), [0x0201, 0x0403]);
    assert_eq!(ids(TokenFormat::U32), [0x0403_0201]);
    assert_eq!(open(&[1u8, 2, 3], TokenFormat::U16).1.unwrap_err().code(), 2);
}

#[test]
fn a_file_that_shrinks_is_an_error_of_the_run() {
    let (dir, tokens) = open(&[0; 1000], TokenFormat::U16);
    let tokens = tokens.unwrap();
    assert!(tokens.read(400..500, 1).is_ok());
    let file = File::options().write(true).open(dir.path().join("ids.bin")).unwrap();
    file.set_len(900).unwrap();
    assert!(tokens.read(350..450, 1).is_ok(), "what is left can be read");
    let error = tokens.read(400..500, 1).unwrap_err();
    assert!(error.code() == 1 && error.to_string().contains("shorter than it was"), "{error}");
}

#[test]
fn unknown_ids_are_found_before_a_run_wherever_they_are() {
    for at in [0, PIECE - 1, PIECE, 2 * PIECE + 6] {
        let mut ids = vec![9u16; 2 * PIECE + 7];
        ids[at] = 10;
        let bytes: Vec<u8> = ids.into_iter().flat_map(u16::to_le_bytes).collect();
        let (_dir, tokens) = open(&bytes, TokenFormat::U16);
        let tokens = tokens.unwrap();
        let error = tokens.examine(10).unwrap_err().to_string();
        assert!(error.contains(&format!("token 10 at position {at} ")), "{error}");
        assert!(tokens.examine(11).is_ok());
    }
}

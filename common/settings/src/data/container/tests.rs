//! Headers of files of ids, whole and damaged.

use super::*;

fn npy(header: &str) -> Vec<u8> {
    let mut bytes = b"\x93NUMPY\x01\0".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.bytes());
    bytes
}

#[test]
fn numpy_arrays_tell_where_their_ids_are() {
    let head =
        |kind: &str| npy(&format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': (4,), }}    \n"));
    for (kind, format) in [("<u2", TokenFormat::U16), ("<u4", TokenFormat::U32)] {
        let width = format.width();
        let head = head(kind);
        let contents = Contents { width, start: head.len() as u64 };
        assert_eq!(recognise(&head, TokenFormat::Bytes), Ok(Some(contents)));
        assert_eq!(recognise(&head, format), Ok(Some(contents)));
    }
    for (stored, asked, word) in [("<u2", TokenFormat::U32, "u16"), ("<u4", TokenFormat::Jsonl, "u32")] {
        let other = recognise(&head(stored), asked).unwrap_err();
        assert!(other.contains(&format!("holds {word} tokens")), "{other}");
    }
    let wide = recognise(&head("<i8"), TokenFormat::Bytes).unwrap_err();
    assert!(wide.contains("<i8") && wide.contains("astype"), "{wide}");
}

#[test]
fn damaged_headers_are_refused() {
    let whole = npy("{'descr': '<u2', 'fortran_order': False, 'shape': (4,), }\n");
    for length in NUMPY.len()..whole.len() {
        assert!(recognise(&whole[..length], TokenFormat::Bytes).is_err(), "{length} bytes");
    }
    assert!(recognise(&npy("{'descr': }"), TokenFormat::Bytes).is_err());
}

#[test]
fn llm_c_tells_the_width_of_its_ids() {
    let mut head = vec![0; HEAD];
    head[..4].copy_from_slice(&20240520u32.to_le_bytes());
    let contents = Contents { width: Width::U16, start: 1024 };
    assert_eq!(recognise(&head, TokenFormat::Bytes), Ok(Some(contents)));
    assert_eq!(recognise(b"plain text", TokenFormat::Bytes), Ok(None));
}

#[test]
fn what_is_no_text_is_named() {
    for (magic, what, remedy) in FOREIGN {
        let said = recognise(magic, TokenFormat::Bytes).unwrap_err();
        assert!(said.starts_with(what) && said.ends_with(remedy), "{said}");
    }
}

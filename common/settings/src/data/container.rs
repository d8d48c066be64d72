//! What a file holds, by its first bytes: token ids after a header, or something that is no text.

use super::source::{TokenFormat, Width};

/// The first bytes of a file that decide what it holds.
pub(super) const HEAD: usize = 1024;

/// Where the tokens of a file begin, and how they are stored.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Contents {
    pub width: Width,
    /// The byte of the first token.
    pub start: u64,
}

/// Beginnings of files that no rank can read, with what they are and what to do.
const FOREIGN: [(&[u8], &str, &str); 6] = [
    (&[0x1F, 0x8B, 8], "is compressed with gzip", "Unpack it first: gunzip -k FILE"),
    (&[0x28, 0xB5, 0x2F, 0xFD], "is compressed with zstd", "Unpack it first: unzstd FILE"),
    (b"\xFD7zXZ\0", "is compressed with xz", "Unpack it first: unxz -k FILE"),
    (b"PK\x03\x04", "is a zip archive", "Unpack it first: unzip FILE"),
    (
        b"PAR1",
        "is a Parquet table",
        "Write its column of text to a file first, for instance with pandas or DuckDB.",
    ),
    (
        b"ARROW1",
        "is an Arrow table",
        "Write its column of text to a file first, for instance with pandas or DuckDB.",
    ),
];

const NUMPY: &[u8] = b"\x93NUMPY";
/// llm.c's token files: the first 32-bit word, and the format of the ids behind a header of 256 words.
const LLM_C: [(u32, Width); 2] = [(20240520, Width::U16), (20240801, Width::U32)];

/// Returns where the tokens are in a file that begins with `head`; `None` if it has no header that
/// tells. `asked` is the format that the command line asks for.
///
/// # Errors
/// Why the file holds no tokens, after its name.
pub(super) fn recognise(head: &[u8], asked: TokenFormat) -> Result<Option<Contents>, String> {
    if let Some((_, what, remedy)) = FOREIGN.iter().find(|(magic, ..)| head.starts_with(magic)) {
        return Err(format!("{what}, not text or token ids\n{remedy}"));
    }
    let contents = match head {
        _ if head.starts_with(NUMPY) => numpy(head)?,
        [a, b, c, d, ..] if head.len() == HEAD => {
            let word = u32::from_le_bytes([*a, *b, *c, *d]);
            let known = LLM_C.iter().find(|(magic, _)| *magic == word);
            let Some(&(_, width)) = known else { return Ok(None) };
            Contents { width, start: HEAD as u64 }
        }
        _ => return Ok(None),
    };
    let fits = match asked {
        TokenFormat::Bytes => true,
        TokenFormat::U16 | TokenFormat::U32 => asked.width() == contents.width,
        TokenFormat::Jsonl => false,
    };
    if !fits {
        let stored = contents.width.word();
        return Err(format!(
            "holds {stored} tokens, as its header says\nLeave --data-format out, or give {stored}."
        ));
    }
    Ok(Some(contents))
}

/// Reads the header of NumPy's format: a magic, a version, a length, and a Python dictionary.
fn numpy(head: &[u8]) -> Result<Contents, String> {
    let unreadable = || "begins like a NumPy array, but its header is damaged".to_string();
    let (length, before) = match head.get(6..12).ok_or_else(unreadable)? {
        [1, _, low, high, ..] => (usize::from(u16::from_le_bytes([*low, *high])), 10),
        [_, _, a, b, c, d] => (u32::from_le_bytes([*a, *b, *c, *d]) as usize, 12),
        _ => return Err(unreadable()),
    };
    let header = head.get(before..before + length).ok_or_else(unreadable)?;
    let header = std::str::from_utf8(header).map_err(|_| unreadable())?;
    let value = |key: &str| header.split_once(&format!("'{key}':")).map(|(_, rest)| rest.trim_start());
    let kind = value("descr").and_then(|rest| rest.split('\'').nth(1)).ok_or_else(unreadable)?;
    let width = match kind {
        "|u1" => Width::U8,
        "<u2" => Width::U16,
        "<u4" => Width::U32,
        other => {
            return Err(format!(
                "is a NumPy array of {other}, and token ids are unsigned numbers of 16 or 32 bits\n\
                 Convert it: numpy.save(FILE, ids.astype(numpy.uint32))"
            ));
        }
    };
    if value("fortran_order").is_some_and(|rest| rest.starts_with("True")) {
        return Err(
            "is a NumPy array in Fortran's order\nConvert it: numpy.save(FILE, numpy.ascontiguousarray(ids))"
                .into(),
        );
    }
    Ok(Contents { width, start: (before + length) as u64 })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn npy(header: &str) -> Vec<u8> {
        let mut bytes = b"\x93NUMPY\x01\0".to_vec();
        bytes.extend((header.len() as u16).to_le_bytes());
        bytes.extend(header.bytes());
        bytes
    }

    #[test]
    fn numpy_arrays_tell_where_their_ids_are() {
        let head = |kind: &str| {
            npy(&format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': (4,), }}    \n"))
        };
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
}

//! Recognises a file by its first bytes: token ids after a header, or a format that is not text.

use super::source::TokenFormat;
use text::ids::Width;

/// The number of bytes at a file's start that decide its format.
pub(super) const HEAD: usize = 1024;

/// Where the tokens of a file begin, and how they are stored.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Contents {
    pub width: Width,
    /// The byte of the first token.
    pub start: u64,
}

/// The advice about a file that holds a table.
const OF_TABLE: &str = "Write its column of text to a file first, for instance with pandas or DuckDB.";

/// Beginnings of files that no rank can read, with their format and the advice.
const FOREIGN: [(&[u8], &str, &str); 6] = [
    (&[0x1F, 0x8B, 8], "is compressed with gzip", "Unpack it first: gunzip -k FILE"),
    (&[0x28, 0xB5, 0x2F, 0xFD], "is compressed with zstd", "Unpack it first: unzstd FILE"),
    (b"\xFD7zXZ\0", "is compressed with xz", "Unpack it first: unxz -k FILE"),
    (b"PK\x03\x04", "is a zip archive", "Unpack it first: unzip FILE"),
    (b"PAR1", "is a Parquet table", OF_TABLE),
    (b"ARROW1", "is an Arrow table", OF_TABLE),
];

const NUMPY: &[u8] = b"\x93NUMPY";
/// llm.c's token files: the first 32-bit word, and the format of the ids after a header of 256
/// words.
const LLM_C: [(u32, Width); 2] = [(20240520, Width::U16), (20240801, Width::U32)];

/// Returns the offset and format of the tokens in a file that begins with `head`; `None` if it has
/// no header with these. `asked` is the format that the command line asks for.
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
        let stored = word(contents.width);
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

/// Returns the name of this width in `--data-format`.
fn word(width: Width) -> &'static str {
    match width {
        Width::U8 => "bytes",
        Width::U16 => "u16",
        Width::U32 => "u32",
    }
}

#[cfg(test)]
mod tests;

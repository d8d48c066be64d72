//! Copies a model: `cargo run -p checkpoint --example copy FROM TO`.
//!
//! Joins shards into one file and widens 16-bit weights to F32. It takes any model that can be
//! trained here, in the Hugging Face layout, with its tokenizer.

use checkpoint::{Destination, ElementType, Format, Reader, Writer};
use model::Layout;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use storage::Disk;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let result = match arguments.as_slice() {
        [from, to] => copy(from, to).map_err(|error| error.to_string()),
        _ => Err("usage: copy FROM TO".into()),
    };
    result.map_or_else(fail, |()| ExitCode::SUCCESS)
}

fn fail(message: String) -> ExitCode {
    eprintln!("{message}");
    ExitCode::FAILURE
}

fn copy(from: &str, to: &str) -> checkpoint::Result<()> {
    let reader = Reader::open(from)?;
    let config = reader.config()?;
    let layout = Layout::new(&config);
    reader.check(&layout)?;
    let format = Format { element_type: Some(ElementType::F32), ..Format::default() };
    let (disk, model_files) = (Arc::new(Disk::new(1)), reader.model_files()?);
    let destination = Destination { path: to.as_ref(), disk, timeout: Duration::ZERO };
    let mut writer = Writer::on(destination, &config, &layout, format, &model_files)?;
    for (id, tensor) in layout.tensors.iter().enumerate() {
        let mut values = vec![0.0; tensor.elements()];
        reader.read(tensor, 0..tensor.elements(), &mut values)?;
        writer.write(id, &values)?;
    }
    writer.finish()
}

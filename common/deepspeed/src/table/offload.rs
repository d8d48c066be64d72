//! `offload_optimizer`, `offload_param` and `aio`: the keys about offload.

use super::{count, flag, from, number, off, on};
use crate::Resolved;
use crate::keys::Kind::{Choice, Count, Flag, Number, Text};
use crate::keys::{Key, Kind};
use crate::node::Node;
use events::Place;
use settings::offload::MOST_BUFFERS;

const DEVICE: Kind = Choice(&["none", "cpu", "nvme"]);
const BUFFERS: Kind = Count(1, MOST_BUFFERS);
const DIRECTORY: &str =
    "the directory of the swap files, one for all; created if it does not exist; a temporary one if left out";
const SLOTS: &str = "staging buffers of each kind, as many as the larger of both sections says; if left out 3, for an update of optimizer states on disk the number of its pieces minus 3, at least 3 and at most 6";
const PINNED: &str = "main memory that GPUs copy from is always pinned";
const PIPELINED: &str = "the next piece always arrives while one is updated, and the last one leaves";
const TWIN_FLOW: &str = "Twin-Flow: a share of the optimizer stays on the GPU";
const LARGEST: &str = "a buffer is always as large as the largest shard, and never larger";
const NOTHING_KEPT: &str = "none of the parameters on disk is kept in main memory";
const FILES: &str = "how DeepSpeed's library reads and writes files; the one here has fixed settings";

/// Makes the row of a key in `offload_optimizer` or `offload_param`.
macro_rules! offload {
    ($name:literal, $($rest:expr),+) => { Key::new(concat!("zero_optimization.offload_", $name), $($rest),+) };
}

pub(super) static KEYS: &[Key] = &[
    offload!(
        "optimizer.device",
        DEVICE,
        "\"none\"",
        "where master weights, momentum and variance are stored and updated; nvme is `disk`"
    )
    .honoured(
        Some("offload_optimizer"),
        |args, value| args.offload.optimizer = place(value),
        |run| Some(device(run.config.offload.optimizer)),
    ),
    offload!("optimizer.nvme_path", Text, "", DIRECTORY).honoured(
        Some("offload_dir"),
        |args, value| args.offload.directory = value.as_text().map(Into::into),
        |run| directory(run, run.config.offload.optimizer),
    ),
    offload!("optimizer.pin_memory", Flag, "true", PINNED).missed_unless(on),
    offload!("optimizer.buffer_count", BUFFERS, "4", SLOTS).honoured(
        Some("offload_buffers"),
        |args, value| args.offload.buffers = Some(count(value)),
        |run| buffers(run, run.config.offload.optimizer),
    ),
    offload!("optimizer.pipeline_read", Flag, "false", PIPELINED),
    offload!("optimizer.pipeline_write", Flag, "false", PIPELINED),
    offload!("optimizer.fast_init", Flag, "false", "how quickly files are made, not what is in them"),
    offload!("optimizer.super_offload", Flag, "false", "SuperOffload").not_yet(off),
    offload!("optimizer.cpuadam_cores_perc", Number(0.0, 1.0), "0.8", "matters with SuperOffload only"),
    offload!("optimizer.ratio", Number(0.0, 1.0), "1.0", TWIN_FLOW).not_yet(|value| number(value) == 1.0),
    offload!(
        "param.device",
        DEVICE,
        "\"none\"",
        "where shards of parameters are stored, in ZeRO-3 only; nvme is `disk`"
    )
    .honoured(
        Some("offload_parameters"),
        |args, value| args.offload.parameters = place(value),
        |run| run.stage.sharded().parameters.then(|| device(run.config.offload.parameters)),
    ),
    offload!("param.nvme_path", Text, "", DIRECTORY).honoured(
        Some("offload_dir"),
        |args, value| args.offload.directory = value.as_text().map(Into::into),
        |run| directory(run, run.config.offload.parameters),
    ),
    offload!("param.pin_memory", Flag, "true", PINNED).missed_unless(on),
    offload!("param.buffer_count", BUFFERS, "5", SLOTS).honoured(
        None,
        |args, value| {
            if args.given.typed("offload_buffers").is_none() {
                args.offload.buffers = args.offload.buffers.max(Some(count(value)));
            }
        },
        |run| buffers(run, run.config.offload.parameters),
    ),
    offload!("param.buffer_size", from(0), "1e8", LARGEST).missed_unless(|value| number(value) == 1e8),
    offload!("param.max_in_cpu", from(0), "1e9", NOTHING_KEPT)
        .missed_unless(|value| [0.0, 1e9].contains(&number(value))),
    Key::new("zero_optimization.cpu_offload", Flag, "null", "old name of offload_optimizer on the CPU")
        .means(|value| {
            flag(value).then(|| ("zero_optimization.offload_optimizer.device", Node::text("cpu")))
        }),
    Key::new("zero_optimization.cpu_offload_param", Flag, "null", "old name of offload_param on the CPU")
        .means(|value| flag(value).then(|| ("zero_optimization.offload_param.device", Node::text("cpu")))),
    Key::new("zero_optimization.cpu_offload_use_pin_memory", Flag, "null", PINNED),
    Key::new("aio.block_size", from(1), "1048576", FILES).missed_unless(|value| number(value) == 1048576.0),
    Key::new("aio.queue_depth", from(1), "8", FILES).missed_unless(|value| number(value) == 8.0),
    Key::new("aio.intra_op_parallelism", from(1), "1", FILES).missed_unless(|value| number(value) == 1.0),
    Key::new("aio.thread_count", from(1), "1", FILES).missed_unless(|value| number(value) == 1.0),
    Key::new("aio.single_submit", Flag, "false", FILES).missed_unless(off),
    Key::new("aio.overlap_events", Flag, "true", FILES).missed_unless(on),
    Key::new("aio.use_gds", Flag, "false", FILES).missed_unless(off),
];

/// DeepSpeed's words for places.
const PLACES: [(&str, Place); 3] = [("none", Place::Device), ("cpu", Place::Host), ("nvme", Place::Disk)];

fn place(value: &Node) -> Place {
    let word = value.as_text().unwrap_or("").to_ascii_lowercase();
    PLACES.iter().find(|(named, _)| *named == word).map_or(Place::Device, |(_, place)| *place)
}

fn device(place: Place) -> Node {
    Node::text(PLACES.iter().find(|(_, named)| *named == place).map_or("none", |(word, _)| word))
}

/// Returns the directory, in the section of the states stored in `place`.
fn directory(run: &Resolved<'_>, place: Place) -> Option<Node> {
    let directory = run.config.offload.directory.as_ref().filter(|_| place == Place::Disk)?;
    Some(Node::Text(directory.display().to_string()))
}

/// Returns the number of buffers, in the section of the states stored in `place`.
fn buffers(run: &Resolved<'_>, place: Place) -> Option<Node> {
    run.config.offload.buffers.filter(|_| place != Place::Device).map(Node::count)
}

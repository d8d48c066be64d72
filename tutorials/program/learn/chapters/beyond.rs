//! Chapters 15 to 17: main memory, disk, checkpoints.

use super::{choose, planned, run};
use crate::learn::question::Chapter;
use crate::learn::question::Figure::{Crossing, Moved, PeakIn, TotalPeak};
use planner::Recipe;
use planner::Stage::{Ddp, Zero2, Zero3};

const TO_HOST: &str = "--gpus 4 --steps 2 --batch-size 2 --headless --precision bf16 --offload-optimizer cpu";
const SLOW: &str = "--gpus 2 --steps 2 --batch-size 1 --seq-len 8 --headless --precision bf16 --offload-optimizer cpu --host-link 1ms,4MB/s";
const SINGLE: &str = "--gpus 4 --steps 2 --batch-size 2 --headless --offload-optimizer cpu";
const TO_DISK: &str =
    "--gpus 4 --steps 2 --batch-size 2 --headless --precision bf16 --offload-optimizer disk";
const PAGED: &str = "--gpus 4 --steps 2 --batch-size 2 --headless --precision bf16 --offload-optimizer disk --sub-group-size 10000";
const SAVED: &str = "--gpus 4 --steps 2 --batch-size 2 --headless --precision bf16 --checkpoint saved";
const SAVED_SINGLE: &str = "--gpus 4 --steps 2 --batch-size 2 --headless --checkpoint saved";
const SAVED_BY_THREE: &str =
    "--gpus 3 --steps 2 --batch-size 2 --headless --precision bf16 --checkpoint saved";
const STREAMED: &str =
    "--gpus 4 --steps 2 --batch-size 2 --headless --precision bf16 --checkpoint saved --host-memory 2MB";

pub(super) const BEYOND: Chapter = Chapter {
    number: 15,
    guesses: &[
        run(Zero2, TO_HOST).guess(
            "ZeRO-2 in bf16 on four ranks, the optimizer in main memory: bytes of optimizer states there, of each rank.",
            PeakIn("host", "optimizer"),
        ),
        run(Zero2, TO_HOST).guess(
            "Two steps: bytes that rank 0 moves from the device to main memory.",
            Moved("device→host"),
        ),
        run(Zero2, TO_HOST).guess(
            "The peak of one rank's device. With nothing offloaded it is 10,486,720.",
            TotalPeak,
        ),
        run(Zero2, SLOW).guess(
            "Two ranks, one sequence of 8 tokens, a bus of 1 ms and 4 MB/s, two steps of six transfers each way: milliseconds that rank 0 waits for the bus, with almost nothing to compute at the same time.",
            Crossing,
        ),
    ],
    quiz: &[
        planned(
            "Bytes per parameter in the mixed recipe that the optimizer alone touches?",
            || Recipe::MIXED.optimizer() as f64,
            "bytes",
            "Master weights, momentum and variance. They rest beyond the device; 2 + 2 stay.",
        ),
        choose(
            "Where is the update computed when optimizer states rest in main memory?",
            &["on the GPU, which fetches them", "on the CPU", "on whichever is idle"],
            1,
            "So a gradient comes down and a parameter goes up, and the three states never travel.",
        ),
        run(Zero2, SINGLE).measured(
            "The same ZeRO-2 run in fp32: bytes of optimizer states in main memory?",
            PeakIn("host", "optimizer"),
            "12 bytes per parameter there too: the CPU's update needs a master copy of its own.",
        ),
        choose(
            "ZeRO-2 with an offloaded optimizer accumulates four micro-batches. What grows on the bus?",
            &["both directions", "gradients on their way down", "parameters on their way up"],
            1,
            "The gradient shard follows the optimizer after each micro-batch. The update comes once per step.",
        ),
    ],
};

pub(super) const INFINITY: Chapter = Chapter {
    number: 16,
    guesses: &[
        run(Zero2, TO_DISK).guess(
            "ZeRO-2 in bf16 on four ranks, the optimizer on disk: bytes of optimizer states there, of each rank. In main memory they are 2,755,968. A page has 4,096.",
            PeakIn("disk", "optimizer"),
        ),
        run(Zero2, TO_DISK).guess("Two steps: bytes that rank 0 reads from its disk.", Moved("disk→host")),
        run(Zero2, TO_DISK).guess(
            "The same run: bytes that rank 0 writes to its disk. Something has to be there before the first step.",
            Moved("host→disk"),
        ),
        run(Zero2, PAGED).guess(
            "With `--sub-group-size 10000`: bytes of staging buffers in main memory. There are six sets, each with three states in whole pages, a gradient and a parameter.",
            PeakIn("host", "workspace"),
        ),
    ],
    quiz: &[
        choose(
            "How does a rank know which shard to read next?",
            &[
                "it guesses from the last step",
                "the schedule lists the units in order",
                "forward asks for it",
            ],
            1,
            "The order of units is fixed before the first step.",
        ),
        run(Zero2, PAGED).measured(
            "Optimizer states on disk with `--sub-group-size 10000`: bytes of each rank?",
            PeakIn("disk", "optimizer"),
            "Each state of each piece begins on a page of its own, so more pieces waste more.",
        ),
        choose(
            "What bounds the main memory that an optimizer on disk needs?",
            &["the model", "staging buffers × the largest piece", "nothing"],
            1,
            "A larger model has more pieces, not larger ones.",
        ),
        planned(
            "A GPU needs 2 s to compute a step and then waits 6 s for its disk. Per cent of its peak?",
            || 100.0 * 2.0 / (2.0 + 6.0),
            "%",
            "Computing over computing and waiting. More tokens make the first longer, and not the second.",
        ),
    ],
};

pub(super) const STATE: Chapter = Chapter {
    number: 17,
    guesses: &[
        run(Zero3, SAVED).guess(
            "ZeRO-3 in bf16 on four ranks: bytes of main memory that each rank takes for a copy of what it saves. The model has 918,656 parameters, and memory comes in pages of 4,096 bytes.",
            PeakIn("host", "workspace"),
        ),
        run(Ddp, SAVED_SINGLE).guess(
            "DDP in fp32 on four ranks, where every rank has everything: bytes of each rank's copy.",
            PeakIn("host", "workspace"),
        ),
        run(Zero3, SAVED_BY_THREE).guess(
            "ZeRO-3 in bf16 on three ranks: bytes of each rank's copy.",
            PeakIn("host", "workspace"),
        ),
        run(Zero3, STREAMED).guess(
            "ZeRO-3 on four ranks again, with `--host-memory 2MB`, which is no room for a copy. Training waits while the rank's part is written in 32 pieces, in whole pages each, through six buffers: bytes of the six.",
            PeakIn("host", "workspace"),
        ),
    ],
    quiz: &[
        planned(
            "Seven billion parameters: GB of a checkpoint?",
            || (Recipe::MIXED.optimizer() * 7_000_000_000) as f64 / 1e9,
            "GB",
            "12 bytes per parameter, from any stage on any number of ranks.",
        ),
        choose(
            "What must a run have in common with the one that saved the checkpoint?",
            &["the stage", "the number of ranks", "the schedule of the learning rate"],
            2,
            "The schedule says what the next step is. Stage and number of ranks say who does it.",
        ),
        planned(
            "Four ranks have saved a unit of 10 elements, three resume. How many elements does rank 1 read of file 1?",
            || f64::from(6 - 4),
            "elements",
            "It owns 4..8, and file 1 has 3..6: slices of 10 / 4 and of 10 / 3, both rounded up.",
        ),
        choose(
            "A rank is killed when all files are written and flushed, and the manifest is not. What is resumed?",
            &["the new checkpoint", "the one before", "the new one's files, the old one's steps"],
            1,
            "The directory has no name that counts yet. The next run removes it.",
        ),
        choose(
            "One bit of a file has flipped on the disk. Which rank finds out, and when?",
            &[
                "the rank that wrote it, at the next save",
                "the ranks that own elements of that block, before the first step",
                "no rank: the loss is wrong",
            ],
            1,
            "Each verifies the blocks that it reads; then all agree on the newest checkpoint that is intact for all.",
        ),
    ],
};

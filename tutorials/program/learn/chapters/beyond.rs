//! Chapters 15 and 16: main memory, disk.

use super::{choose, guess, measured, planned, run};
use crate::learn::question::Chapter;
use crate::learn::question::Figure::{Crossing, Moved, PeakIn, TotalPeak};
use planner::Recipe;
use planner::Stage::Zero2;

const TO_HOST: &str = "--gpus 4 --steps 2 --batch-size 2 --headless --precision bf16 --offload-optimizer cpu";
const SLOW: &str = "--gpus 2 --steps 2 --batch-size 1 --seq-len 8 --headless --precision bf16 --offload-optimizer cpu --host-link 1ms,4MB/s";
const SINGLE: &str = "--gpus 4 --steps 2 --batch-size 2 --headless --offload-optimizer cpu";

pub(super) const BEYOND: Chapter = Chapter {
    number: 15,
    guesses: &[
        guess(
            "ZeRO-2 in bf16 on four ranks, the optimizer in main memory: bytes of optimizer states there, of each rank.",
            Zero2,
            TO_HOST,
            PeakIn("host", "optimizer"),
        ),
        guess(
            "Two steps: bytes that rank 0 moves from the device to main memory.",
            Zero2,
            TO_HOST,
            Moved("device→host"),
        ),
        guess(
            "The peak of one rank's device. With nothing offloaded it is 10,486,720.",
            Zero2,
            TO_HOST,
            TotalPeak,
        ),
        guess(
            "Two ranks, one sequence of 8 tokens, a bus of 1 ms and 4 MB/s, two steps of six transfers each way: milliseconds that rank 0 waits for the bus, with almost nothing to compute at the same time.",
            Zero2,
            SLOW,
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
        measured(
            "The same ZeRO-2 run in fp32: bytes of optimizer states in main memory?",
            run(Zero2, SINGLE),
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

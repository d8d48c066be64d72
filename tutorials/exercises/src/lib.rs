//! The book's exercises.
//!
//! A starter (`starters/NAME.rs`) has a signature and a body to write. A check runs it beside an oracle: the workspace's
//! own code, or arithmetic in which every number says where it came from, so that what is wrong can be said in words. A
//! stage starter is one method; the rest of the stage around it is the real one, and the check is the contract that real
//! stages pass.

// What starters use is `pub`, the form that readers write.
#[allow(unreachable_pub)]
mod checks;

use std::panic::catch_unwind;

/// How a check ends: the score, or what is wrong.
pub type Verdict = Result<String, String>;

/// An exercise.
pub struct Exercise {
    /// Its name.
    pub name: &'static str,
    /// The chapter that asks for it.
    pub chapter: u32,
    /// What to do.
    pub task: &'static str,
    /// Hints, from a nudge to nearly the answer.
    pub hints: &'static [&'static str],
    starter: fn() -> Verdict,
    solution: fn() -> Verdict,
}

impl Exercise {
    /// Where its starter is.
    pub fn file(&self) -> String {
        format!("tutorials/exercises/starters/{}.rs", self.name.replace('-', "_"))
    }

    /// Checks what stands in the starter now.
    pub fn check(&self) -> Verdict {
        guarded(self.starter)
    }

    /// Checks the solution.
    pub fn check_solution(&self) -> Verdict {
        guarded(self.solution)
    }
}

/// A panic in what is checked is a verdict too.
fn guarded(check: fn() -> Verdict) -> Verdict {
    catch_unwind(check).unwrap_or_else(|_| Err("it panicked; the message is above".into()))
}

/// What readers write.
#[allow(unused, clippy::all, missing_docs, unreachable_pub)]
mod starters;

#[allow(unreachable_pub)]
mod solutions;

/// All of them, in the book's order.
pub const ALL: &[Exercise] = &[
    Exercise {
        name: "planner-formula",
        chapter: 1,
        task: "Model states per rank, for every stage.",
        hints: &[
            "Four cases. Which of weights, gradients and optimizer does each stage divide by the ranks?",
            "A slice is parameters.div_ceil(ranks); what is not sharded is ranks times a slice, padding included.",
        ],
        starter: || checks::planner_formula::check(starters::planner_formula::model_states),
        solution: || checks::planner_formula::check(solutions::planner_formula::model_states),
    },
    Exercise {
        name: "ring-all-reduce",
        chapter: 2,
        task: "Sum the ranks' buffers around a ring, neighbour to neighbour.",
        hints: &[
            "N−1 steps of adding, then N−1 steps of copying. In step s rank r sends slice r−s.",
            "In the copying half rank r begins with the slice whose sum it has completed: slice r+1.",
        ],
        starter: || checks::ring_all_reduce::check(starters::ring_all_reduce::all_reduce),
        solution: || checks::ring_all_reduce::check(solutions::ring_all_reduce::all_reduce),
    },
    Exercise {
        name: "bucket",
        chapter: 3,
        task: "Queue units, and close a bucket when it is full or the pass ends.",
        hints: &[
            "Push first, then look at how many elements there are.",
            "std::mem::take empties the queue and hands you what was in it.",
        ],
        starter: || checks::bucket::check(starters::bucket::push),
        solution: || checks::bucket::check(solutions::bucket::push),
    },
    Exercise {
        name: "partition",
        chapter: 4,
        task: "The slice of a unit that a rank owns, with padding.",
        hints: &[
            "All slices have the same length, so the padded unit is a multiple of the shards.",
            "usize::next_multiple_of, or div_ceil.",
        ],
        starter: || checks::partition::check(starters::partition::slice),
        solution: || checks::partition::check(solutions::partition::slice),
    },
    Exercise {
        name: "zero1-step",
        chapter: 4,
        task: "ZeRO-1's update: a slice of every unit, then whole parameters again.",
        hints: &[
            "For every unit: take the full parameters, update your slice of them, push them to be gathered.",
            "What push returns, and what finish returns after the loop, goes to self.gathered.",
        ],
        starter: checks::stage::zero1::<starters::zero1_step::Zero1>,
        solution: checks::stage::zero1::<zero1::Zero1>,
    },
    Exercise {
        name: "shard-norm",
        chapter: 4,
        task: "The norm of a gradient of which every rank has a slice.",
        hints: &[
            "A root of a sum is not a sum of roots.",
            "Sum the squares of your slice, then over ranks, then the root.",
        ],
        starter: || checks::shard_norm::check(starters::shard_norm::norm),
        solution: || checks::shard_norm::check(solutions::shard_norm::norm),
    },
    Exercise {
        name: "zero2-reduced",
        chapter: 5,
        task: "ZeRO-2: take in summed gradients and let the full buffer go.",
        hints: &[
            "Of each full buffer this rank's slice is the sum; add it to the unit's shard.",
            "self.rank.kernels().add(shard, slice) adds; the buffer is freed where it goes out of scope.",
        ],
        starter: checks::stage::zero2::<starters::zero2_reduced::Zero2>,
        solution: checks::stage::zero2::<zero2::Zero2>,
    },
    Exercise {
        name: "zero3-gather",
        chapter: 6,
        task: "ZeRO-3: issue a unit's all-gather, neither twice nor too late.",
        hints: &[
            "If the window has the unit already, there is nothing to do.",
            "Allocate the padded unit, copy your shard to its place, hand it to all_gather, tell the window.",
        ],
        starter: checks::stage::zero3::<starters::zero3_gather::Zero3>,
        solution: checks::stage::zero3::<zero3::Zero3>,
    },
    Exercise {
        name: "loss-scaler",
        chapter: 8,
        task: "The loss scale of the next step.",
        hints: &[
            "An overflow first uses up hysteresis, and only then halves the scale.",
            "A full window of clean steps doubles the scale and refills the hysteresis; count clean steps modulo the window.",
        ],
        starter: || checks::loss_scaler::check(starters::loss_scaler::next),
        solution: || checks::loss_scaler::check(solutions::loss_scaler::next),
    },
    Exercise {
        name: "hybrid-reduction",
        chapter: 11,
        task: "Sum gradients inside groups first, then shards across groups.",
        hints: &[
            "A reduce-scatter in every group leaves rank r with a shard of its group's sum.",
            "The ranks at the same place of all groups own the same shard: all-reduce that shard among them.",
        ],
        starter: || checks::hybrid_reduction::check(starters::hybrid_reduction::reduce),
        solution: || checks::hybrid_reduction::check(solutions::hybrid_reduction::reduce),
    },
];

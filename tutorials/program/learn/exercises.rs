//! The book's exercises: each is a crate under `tutorials/exercises`, with a body to write.

/// An exercise.
pub struct Exercise {
    /// Its name, and its crate's.
    pub name: &'static str,
    /// The chapter that asks for it.
    pub chapter: u32,
    /// The task.
    pub task: &'static str,
    /// Hints, from a nudge to nearly the answer.
    pub hints: [&'static str; 2],
}

impl Exercise {
    /// Finds an exercise by its name or its folder's name.
    pub fn of(name: &str) -> Option<&'static Exercise> {
        ALL.iter().find(|exercise| exercise.name == name || exercise.folder() == name)
    }

    const fn hints(self, nudge: &'static str, nearly: &'static str) -> Exercise {
        Exercise { hints: [nudge, nearly], ..self }
    }

    /// Returns its folder's name.
    pub fn folder(&self) -> String {
        format!("{:02}-{}", self.chapter, self.name)
    }

    /// Returns the path of its starter.
    pub fn file(&self) -> String {
        format!("tutorials/exercises/{}/src/lib.rs", self.folder())
    }
}

const fn exercise(chapter: u32, name: &'static str, task: &'static str) -> Exercise {
    Exercise { chapter, name, task, hints: [""; 2] }
}

/// All of them, in the book's order.
pub const ALL: &[Exercise] = &[
    exercise(1, "planner-formula", "Model states per rank, for every stage.").hints(
        "Four cases. Which of weights, gradients and optimizer does each stage divide by the ranks?",
        "A slice is parameters.div_ceil(ranks); what is not sharded is ranks times a slice, padding included.",
    ),
    exercise(2, "ring-all-reduce", "Sum the ranks' buffers around a ring, neighbour to neighbour.").hints(
        "N−1 steps of adding, then N−1 of copying. In step s of adding rank r receives slice r−s−2, as in the chapter.",
        "After adding, rank r has the sum of slice r. In step s of copying it receives slice r−s−1, counted modulo N.",
    ),
    exercise(3, "bucket", "Queue units, and close a bucket when it is full or the pass ends.").hints(
        "Push first, then count the elements in the queue.",
        "std::mem::take empties the queue and hands you what was in it.",
    ),
    exercise(4, "partition", "The slice of a unit that a rank owns, with padding.").hints(
        "All slices have the same length, so the padded unit is a multiple of the shards.",
        "usize::next_multiple_of, or div_ceil.",
    ),
    exercise(4, "shard-norm", "The norm of a gradient of which every rank has a slice.").hints(
        "A root of a sum is not a sum of roots.",
        "Sum the squares of your slice, then over ranks, then the root.",
    ),
    exercise(4, "zero1-step", "ZeRO-1's update: a slice of every unit, then whole parameters again.").hints(
        "For every unit: take the full parameters, update your slice of them, push them to be gathered.",
        "What push returns, and what finish returns after the loop, goes to self.parameters.put_all.",
    ),
    exercise(5, "zero2-accumulate", "ZeRO-2: accumulate summed gradients and free the full buffer.").hints(
        "Of each full buffer this rank's slice is the sum; add it to the unit's shard.",
        "self.rank.kernels().add(shard, slice) adds; the buffer is freed where it goes out of scope.",
    ),
    exercise(6, "zero3-gather", "ZeRO-3: issue a unit's all-gather, neither twice nor too late.").hints(
        "If the window has the unit already, there is nothing to do.",
        "Allocate the padded unit, copy your shard to its place, hand it to all_gather, tell the window.",
    ),
    exercise(8, "loss-scaler", "The loss scale of the next step.").hints(
        "An overflow first uses up hysteresis, and only then halves the scale.",
        "A full window of clean steps doubles the scale and refills the hysteresis; count clean steps modulo the window.",
    ),
    exercise(11, "hybrid-reduction", "Sum gradients inside groups first, then shards across groups.").hints(
        "A reduce-scatter in every group leaves rank r with a shard of its group's sum.",
        "The ranks at the same place of all groups own the same shard: all-reduce that shard among them.",
    ),
    exercise(15, "page-an-optimizer", "Update optimizer states that rest elsewhere, through two buffers.")
        .hints(
            "Fill both buffers first. Then take the pieces in order: wait for one, update it, let it leave.",
            "As soon as a piece leaves, fetch the one after the next into its buffer: the bus keeps their order.",
        ),
    exercise(16, "overlap-a-read", "Read the next shard from a disk while this one computes.").hints(
        "The next unit is the next of the order, not the next number. Start its read before you compute.",
        "Before the loop start the first. In it start order[at + 1], if there is one, then compute order[at].",
    ),
    exercise(17, "reshard", "Which elements of which files a rank reads when the number of ranks has changed.")
        .hints(
            "Both slices are ranges of the same unit. Intersect the new one with every old one.",
            "A range in a file counts from its first element, file × slice. Cut the end at the unit's: padding is in no file.",
        ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_book_knows_every_exercise_and_every_exercise_is_there() {
        let root = crate::workspace::root();
        let folders = std::fs::read_dir(root.join("tutorials/exercises")).unwrap();
        let folders: Vec<_> =
            folders.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        assert_eq!(folders.len(), ALL.len() + 1, "and what checks them: {folders:?}");
        for exercise in ALL {
            assert!(root.join(exercise.file()).exists(), "{}", exercise.file());
            let chapter = crate::book::pages().unwrap().into_iter().nth(exercise.chapter as usize).unwrap();
            let command = format!("-- check {}`", exercise.name);
            assert!(std::fs::read_to_string(chapter).unwrap().contains(&command), "{command}");
        }
    }
}

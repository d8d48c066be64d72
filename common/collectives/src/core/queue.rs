//! A rank's issued calls.
//!
//! A rank may wait for its calls in any order, but carries them out in the order of issue.
//! Otherwise two ranks that wait in opposite orders could wait for each other forever.

use events::lock;
use std::collections::VecDeque;
use std::sync::Mutex;

/// Calls of type `C` that one rank has issued and not waited for, with results of type `T` or a
/// failure `E`. Only the rank's own thread uses it.
pub(crate) struct CallQueue<C, T, E>(Mutex<Entries<C, T, E>>);

struct Entries<C, T, E> {
    /// By sequence number, ascending.
    calls: VecDeque<(u64, CallState<C, T>)>,
    /// The first failure. No call is carried out after it.
    failure: Option<E>,
}

enum CallState<C, T> {
    Issued(C),
    /// Being carried out, or failed.
    Taken,
    /// Carried out, while a later call was waited for.
    Done(T),
}

impl<C, T, E> Default for CallQueue<C, T, E> {
    fn default() -> Self {
        CallQueue(Mutex::new(Entries { calls: VecDeque::new(), failure: None }))
    }
}

impl<C, T, E: Clone> CallQueue<C, T, E> {
    /// Adds an issued call. Sequence numbers ascend, with gaps or without.
    pub(crate) fn push(&self, sequence: u64, call: C) {
        lock(&self.0).calls.push_back((sequence, CallState::Issued(call)));
    }

    /// True if the call was issued and not waited for.
    pub(crate) fn contains(&self, sequence: u64) -> bool {
        lock(&self.0).calls.iter().any(|(other, _)| *other == sequence)
    }

    /// True if a call before number `sequence` was issued and not carried out.
    pub(crate) fn has_due_before(&self, sequence: u64) -> bool {
        let entries = lock(&self.0);
        let mut before = entries.calls.iter().filter(|(number, _)| *number < sequence);
        before.any(|(_, progress)| matches!(progress, CallState::Issued(_)))
    }

    /// Removes a call, if it is here. True if it was carried out before, successfully or not.
    pub(crate) fn remove(&self, sequence: u64) -> bool {
        lock(&self.0).take(sequence).is_some_and(|progress| !matches!(progress, CallState::Issued(_)))
    }

    /// Carries out the calls up to number `sequence`, oldest first, and removes that one.
    ///
    /// # Errors
    /// The first failure of any call so far, unless this call was carried out before it.
    ///
    /// # Panics
    /// If the call was not issued.
    pub(crate) fn finish(
        &self,
        sequence: u64,
        mut carry_out: impl FnMut(&C) -> Result<T, E>,
    ) -> Result<T, E> {
        while let Some((number, call)) = self.next(sequence) {
            let result = carry_out(&call);
            let mut entries = lock(&self.0);
            match result {
                Ok(result) => entries.set(number, CallState::Done(result)),
                Err(failure) => entries.failure = Some(failure),
            }
        }
        let mut entries = lock(&self.0);
        match (entries.take(sequence), &entries.failure) {
            (Some(CallState::Done(result)), _) => Ok(result),
            (Some(_), Some(failure)) => Err(failure.clone()),
            _ => unreachable!("call #{sequence} was not issued"),
        }
    }

    /// Takes the oldest issued call up to number `last`; `None` after a failure.
    fn next(&self, last: u64) -> Option<(u64, C)> {
        let mut entries = lock(&self.0);
        if entries.failure.is_some() {
            return None;
        }
        let mut due = entries.calls.iter_mut().take_while(|(number, _)| *number <= last);
        let (number, progress) = due.find(|(_, progress)| matches!(progress, CallState::Issued(_)))?;
        match std::mem::replace(progress, CallState::Taken) {
            CallState::Issued(call) => Some((*number, call)),
            _ => None,
        }
    }
}

impl<C, T, E> Entries<C, T, E> {
    fn set(&mut self, sequence: u64, progress: CallState<C, T>) {
        if let Some((_, entry)) = self.calls.iter_mut().find(|(other, _)| *other == sequence) {
            *entry = progress;
        }
    }

    fn take(&mut self, sequence: u64) -> Option<CallState<C, T>> {
        let index = self.calls.iter().position(|(other, _)| *other == sequence)?;
        self.calls.remove(index).map(|(_, progress)| progress)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Queue = CallQueue<u64, u64, &'static str>;

    fn issued(sequences: &[u64]) -> Queue {
        let queue = Queue::default();
        sequences.iter().for_each(|&sequence| queue.push(sequence, sequence));
        queue
    }

    #[test]
    fn calls_are_carried_out_in_the_order_of_issue() {
        let (queue, mut order) = (issued(&[0, 2, 3, 5]), Vec::new());
        let mut finish = |sequence| {
            queue.finish(sequence, |&call| {
                order.push(call);
                Ok(10 * call)
            })
        };
        assert_eq!([finish(3), finish(0), finish(5), finish(2)], [Ok(30), Ok(0), Ok(50), Ok(20)]);
        assert_eq!(order, [0, 2, 3, 5]);
        assert!(!queue.contains(5));
        queue.push(7, 7);
        assert_eq!([7, 8].map(|sequence| queue.has_due_before(sequence)), [false, true]);
    }

    #[test]
    fn a_failure_reaches_every_call_that_was_not_carried_out_before_it() {
        let queue = issued(&[0, 1, 2, 3]);
        let finish =
            |sequence| queue.finish(sequence, |&call| if call == 1 { Err("late") } else { Ok(call) });
        assert_eq!(
            [finish(2), finish(0), finish(1), finish(3)],
            [Err("late"), Ok(0), Err("late"), Err("late")]
        );
    }

    #[test]
    fn a_removed_call_is_not_carried_out() {
        let queue = issued(&[0, 1]);
        assert!(!queue.remove(0));
        let only_1 = |&call: &u64| if call == 1 { Ok(call) } else { Err("carried out") };
        assert_eq!(queue.finish(1, only_1), Ok(1));
    }
}

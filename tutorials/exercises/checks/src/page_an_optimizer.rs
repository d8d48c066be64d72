//! Checks AdamW on states that are stored elsewhere and paged through two buffers, on a simulated
//! clock.
//!
//! The pieces are real: the workspace's kernel updates each one, and the result is compared bit for
//! bit with a single update of the whole. Time is counted in ticks.

use crate::{Figure, Score, Verdict};
use device::{AdamW, AdamWUpdate, Class, Device, Ledger};
use events::Emitter;
use std::ops::Range;

/// Ticks that a piece takes on the bus, in each direction.
const TRANSFER: u64 = 1;
/// Ticks that a piece's update takes.
const UPDATE: u64 = 2;
/// Number of elements in a piece. The last piece of a shard may be shorter.
const PIECE: usize = 4;
const BUFFERS: usize = 2;

/// Elements of each of the states: master weights, momentum, variance.
type States = [Vec<f32>; 3];

/// The function under check.
pub type Step = fn(&mut Pager);

/// The contents of a buffer.
#[derive(Clone, Default)]
struct Held {
    piece: Option<usize>,
    states: States,
    updates: usize,
    stored: bool,
}

/// A stored shard, two buffers, and a bus with one lane in each direction.
pub struct Pager {
    resting: States,
    gradients: Vec<f32>,
    buffers: [Held; BUFFERS],
    /// The processor's time.
    now: u64,
    /// The time at which the transfers of each buffer are done.
    done: [u64; BUFFERS],
    /// Whether the step has waited for the last transfer of a buffer.
    waited: [bool; BUFFERS],
    /// The time at which each lane is free: to the buffers, and from them.
    free: [u64; 2],
    updated: Vec<bool>,
    problem: Option<String>,
}

/// Pages shards of several sizes.
pub fn check(step: Step) -> Verdict {
    let mut ticks = Figure::of("ticks for four shards");
    for elements in [4_usize, 8, 18, 40] {
        // Only the first arrival and the last departure are not hidden by an update.
        let least = 2 * TRANSFER + elements.div_ceil(PIECE) as u64 * UPDATE;
        ticks.add(run(step, elements)?, least);
    }
    Ok(Score::right("every piece is updated once, as one update of the whole does it").with(ticks))
}

/// Returns the ticks that a shard of `elements` elements takes.
fn run(step: Step, elements: usize) -> Result<u64, String> {
    let mut pager = Pager::new(elements);
    let mut whole = pager.resting.clone();
    adamw(&mut whole, &pager.gradients).map_err(|e| e.to_string())?;
    step(&mut pager);
    let what = format!("a shard of {elements} elements");
    if let Some(problem) = pager.problem {
        return Err(format!("{what}: {problem}"));
    }
    if let Some(piece) = pager.updated.iter().position(|updated| !updated) {
        return Err(format!("{what}: piece {piece} was never updated"));
    }
    for Held { piece, stored, .. } in &pager.buffers {
        if let (Some(piece), false) = (piece, stored) {
            return Err(format!("{what}: piece {piece} is updated and was not stored"));
        }
    }
    if let Some(buffer) = (0..BUFFERS).find(|&buffer| pager.done[buffer] > pager.now) {
        return Err(format!("{what}: the step ends while buffer {buffer} still leaves: wait for it"));
    }
    let same = |(paged, whole): (&Vec<f32>, &Vec<f32>)| paged.iter().zip(whole).position(|(a, b)| a != b);
    match pager.resting.iter().zip(&whole).find_map(same) {
        Some(at) => Err(format!(
            "{what}: element {at}, of piece {}, is not what one update of the whole makes of it",
            at / PIECE
        )),
        None => Ok(pager.now),
    }
}

impl Pager {
    fn new(elements: usize) -> Self {
        let ramp = |from: f32, by: f32| (0..elements).map(|at| from + by * at as f32).collect();
        Pager {
            resting: [ramp(1.0, 0.25), ramp(0.0, 0.01), ramp(0.5, 0.02)],
            gradients: ramp(-1.0, 0.125),
            buffers: Default::default(),
            now: 0,
            done: [0; BUFFERS],
            waited: [true; BUFFERS],
            free: [0; 2],
            updated: vec![false; elements.div_ceil(PIECE)],
            problem: None,
        }
    }

    /// Returns the number of pieces.
    pub fn pieces(&self) -> usize {
        self.updated.len()
    }

    /// Issues the transfer of piece `piece` into buffer `buffer`.
    pub fn fetch(&mut self, piece: usize, buffer: usize) {
        let Held { piece: before, updates, stored, .. } = &self.buffers[buffer];
        if let (Some(before), 1.., false) = (before, updates, stored) {
            let lost = format!(
                "piece {piece} comes into buffer {buffer}, and piece {before}, updated, was not stored"
            );
            self.problem.get_or_insert(lost);
        }
        let range = self.range(piece);
        let states = self.resting.each_ref().map(|state| state[range.clone()].to_vec());
        self.buffers[buffer] = Held { piece: Some(piece), states, updates: 0, stored: false };
        self.travel(buffer, 0);
    }

    /// Issues the transfer of the piece in buffer `buffer` back to storage.
    pub fn store(&mut self, buffer: usize) {
        let Some(piece) = self.buffers[buffer].piece else {
            self.problem.get_or_insert(format!("buffer {buffer} is stored, and holds no piece"));
            return;
        };
        if self.buffers[buffer].updates == 0 {
            self.problem.get_or_insert(format!("piece {piece} leaves buffer {buffer} before it is updated"));
        }
        let range = self.range(piece);
        for (resting, state) in self.resting.iter_mut().zip(&self.buffers[buffer].states) {
            resting[range.clone()].copy_from_slice(state);
        }
        self.buffers[buffer].stored = true;
        self.travel(buffer, 1);
    }

    /// Blocks until all transfers issued for buffer `buffer` are done.
    pub fn wait(&mut self, buffer: usize) {
        self.now = self.now.max(self.done[buffer]);
        self.waited[buffer] = true;
    }

    /// Computes AdamW on the piece in buffer `buffer`.
    pub fn update(&mut self, buffer: usize) {
        let held = &self.buffers[buffer];
        let problem = match held.piece {
            None => Some(format!("buffer {buffer} is updated, and holds no piece")),
            Some(piece) if self.done[buffer] > self.now => {
                Some(format!("piece {piece} is updated while buffer {buffer} still travels: wait for it"))
            }
            Some(piece) if !self.waited[buffer] => Some(format!(
                "piece {piece} is updated without a wait for the last transfer of buffer {buffer}: it may not \
                 have arrived"
            )),
            Some(piece) if self.updated[piece] => Some(format!("piece {piece} is updated twice")),
            Some(_) => None,
        };
        let (Some(piece), None) = (held.piece, &problem) else {
            self.problem = self.problem.take().or(problem);
            return;
        };
        let gradients = self.gradients[self.range(piece)].to_vec();
        let failed = adamw(&mut self.buffers[buffer].states, &gradients).err();
        self.problem = self.problem.take().or(failed.map(|e| e.to_string()));
        self.buffers[buffer].updates += 1;
        self.updated[piece] = true;
        self.now += UPDATE;
    }

    fn range(&self, piece: usize) -> Range<usize> {
        piece * PIECE..((piece + 1) * PIECE).min(self.gradients.len())
    }

    /// Queues a transfer of buffer `buffer` on a lane, after the lane's earlier transfers and the
    /// buffer's own.
    fn travel(&mut self, buffer: usize, lane: usize) {
        let end = self.now.max(self.free[lane]).max(self.done[buffer]) + TRANSFER;
        (self.free[lane], self.done[buffer]) = (end, end);
        self.waited[buffer] = false;
    }
}

/// Updates states with the workspace's kernel.
fn adamw(states: &mut States, gradients: &[f32]) -> device::Result<()> {
    let device = Device::cpu(Ledger::new(Emitter::silent(0), None), 1);
    let buffer = |values: &[f32]| device.upload(Class::Workspace, values);
    let (mut master, mut momentum, mut variance) =
        (buffer(&states[0])?, buffer(&states[1])?, buffer(&states[2])?);
    let gradients = buffer(gradients)?;
    let settings = AdamW {
        lr: 1e-2,
        beta1: 0.9,
        beta2: 0.95,
        eps: 1e-8,
        weight_decay: 0.1,
        step: Some(3),
        gradient_scale: 1.0,
    };
    device.kernels().adamw(AdamWUpdate {
        parameters: None,
        master: master.view_mut(),
        momentum: momentum.view_mut(),
        variance: variance.view_mut(),
        gradients: gradients.view(),
        len: gradients.len(),
        settings,
    })?;
    for (state, buffer) in states.iter_mut().zip([&master, &momentum, &variance]) {
        *state = device.read::<f32>(buffer.view())?.into_owned();
    }
    Ok(())
}

//! The seconds that a rank spends in a phase, and how they add up to its clocks.

use report::{Clocks, Times};
use settings::fault::Phase;
use sharding::Usage;
use std::ops::Neg;
use std::time::Duration;

/// Seconds spent in a phase. The fields mean what those of [`Clocks`] mean.
#[derive(Clone, Copy)]
pub(crate) struct PhaseSeconds {
    total: f64,
    off_processor: f64,
    waits: f64,
    for_peers: f64,
    for_link: f64,
    for_places: f64,
}

impl PhaseSeconds {
    /// Returns the seconds of `time`, in which the rank used `usage`.
    pub(crate) fn new(time: Duration, usage: Usage) -> Self {
        PhaseSeconds {
            total: time.as_secs_f64(),
            off_processor: usage.off_processor(time),
            waits: usage.traffic.seconds(),
            for_peers: usage.traffic.seconds_for_peers(),
            for_link: usage.traffic.seconds_for_link(),
            for_places: usage.seconds_for_places(),
        }
    }

    /// Adds these seconds to the clocks of `phase`.
    pub(crate) fn add_to(self, clocks: &mut Clocks, phase: Phase) {
        add(&mut clocks.phases, phase, self.total);
        add(&mut clocks.off_processor, phase, self.off_processor);
        // Recomputation is a part of backward, whose clocks have its waits.
        if phase == Phase::Recompute {
            return;
        }
        add(&mut clocks.waits, phase, self.waits);
        add(&mut clocks.for_peers, phase, self.for_peers);
        add(&mut clocks.for_link, phase, self.for_link);
        add(&mut clocks.for_places, phase, self.for_places);
    }
}

impl Neg for PhaseSeconds {
    type Output = Self;

    fn neg(self) -> Self {
        PhaseSeconds {
            total: -self.total,
            off_processor: -self.off_processor,
            waits: -self.waits,
            for_peers: -self.for_peers,
            for_link: -self.for_link,
            for_places: -self.for_places,
        }
    }
}

/// Adds `seconds` to the clock of `phase`, if it has one.
fn add(times: &mut Times, phase: Phase, seconds: f64) {
    let clock = match phase {
        Phase::Data => &mut times.data,
        Phase::Forward => &mut times.forward,
        Phase::Backward => &mut times.backward,
        Phase::Recompute => &mut times.recompute,
        Phase::Step => &mut times.step,
        Phase::Evaluate => &mut times.evaluate,
        Phase::Setup | Phase::Save => return,
    };
    // Clocks of parts are read one after the other, so a difference may be slightly negative.
    *clock = (*clock + seconds).max(0.0);
}

//! Wrong answers to the exercises that are a part of a stage. The contract detects each error.

#![allow(clippy::all, unused)]

use exercises::{Verdict, bucket::Unit, stage};

fn refused(verdict: Verdict, words: &str) {
    match verdict {
        Ok(score) => panic!("accepted: {score}; it should be refused because {words}"),
        Err(problem) => assert!(problem.contains(words), "{problem}"),
    }
}

/// Defines ZeRO-1 with an update that runs this body for every unit.
macro_rules! zero1 {
    ($name:ident, |$stage:ident, $unit:ident, $update:ident| $body:block) => {
        mod $name {
            include!(concat!(env!("OUT_DIR"), "/zero1-step.rs"));

            impl Zero1 {
                fn written_update(&mut self, $update: ScaledUpdate) -> Result<()> {
                    let $stage = self;
                    for $unit in 0..$stage.partition.units.len() {
                        $body
                    }
                    let updated = $stage.gathers.finish(&$stage.rank)?;
                    $stage.parameters.put_all(updated);
                    Ok(())
                }
            }
        }
    };
}

zero1!(gathers_nothing, |stage, unit, update| {
    stage.optimizer.update_unit(&stage.rank, unit, update, &mut stage.parameters, &stage.gradients)?;
});

zero1!(updates_nothing, |stage, unit, update| {
    let full = stage.parameters.take(unit)?;
    let updated = stage.gathers.push(&stage.rank, unit, full)?;
    stage.parameters.put_all(updated);
});

zero1!(gathers_the_first_unit_alone, |stage, unit, update| {
    stage.optimizer.update_unit(&stage.rank, unit, update, &mut stage.parameters, &stage.gradients)?;
    if unit == 0 {
        let full = stage.parameters.take(unit)?;
        let updated = stage.gathers.push(&stage.rank, unit, full)?;
        stage.parameters.put_all(updated);
    }
});

#[test]
fn updates() {
    refused(stage::check::<gathers_nothing::Zero1>(), "what that rank updated in step 0 was not gathered");
    refused(stage::check::<updates_nothing::Zero1>(), "has not updated it in step 0");
    refused(stage::check::<gathers_the_first_unit_alone::Zero1>(), "unit 0: missing parameters");
}

mod replaces {
    use device::Buffer;

    include!(concat!(env!("OUT_DIR"), "/zero2-accumulate.rs"));

    impl Zero2 {
        fn accumulate(&mut self, units: Vec<(UnitId, Buffer)>) -> Result<()> {
            for (unit, full) in units {
                let sum = full.slice(self.gradients.own(unit, &self.rank));
                self.rank.kernels().copy(self.gradients.shard_mut(unit)?.view_mut(), sum)?;
            }
            Ok(())
        }
    }
}

mod takes_another_slice {
    use device::Buffer;

    include!(concat!(env!("OUT_DIR"), "/zero2-accumulate.rs"));

    impl Zero2 {
        fn accumulate(&mut self, units: Vec<(UnitId, Buffer)>) -> Result<()> {
            for (unit, full) in units {
                let first = full.slice(0..self.gradients.own(unit, &self.rank).len());
                self.rank.kernels().add(self.gradients.shard_mut(unit)?.view_mut(), first)?;
            }
            Ok(())
        }
    }
}

#[test]
fn shards_of_gradients() {
    refused(stage::check::<replaces::Zero2>(), "before its gradients were the sum over all ranks");
    refused(stage::check::<takes_another_slice::Zero2>(), "before its gradients were the sum over all ranks");
}

mod gathers_garbage {
    include!(concat!(env!("OUT_DIR"), "/zero3-gather.rs"));

    impl Zero3 {
        fn gather(&mut self, unit: UnitId, pass: Pass) -> Result<()> {
            if self.window.contains(unit) {
                return Ok(());
            }
            let shard = self.parameters.get(unit)?;
            let padded = shard.len() * self.rank.shard_group().size() as usize;
            let full = self.rank.device.zeros(Class::GatheredParameters, shard.dtype(), padded)?;
            let pending = self.rank.shard_group().all_gather(bucket(vec![full], &[unit]))?;
            self.window.add_in_flight(unit, pending);
            Ok(())
        }
    }
}

mod puts_its_shard_elsewhere {
    include!(concat!(env!("OUT_DIR"), "/zero3-gather.rs"));

    impl Zero3 {
        fn gather(&mut self, unit: UnitId, pass: Pass) -> Result<()> {
            if self.window.contains(unit) {
                return Ok(());
            }
            let shard = self.parameters.get(unit)?;
            let padded = shard.len() * self.rank.shard_group().size() as usize;
            let mut full = self.rank.device.zeros(Class::GatheredParameters, shard.dtype(), padded)?;
            self.rank.kernels().copy(full.slice_mut(0..shard.len()), shard.view())?;
            let pending = self.rank.shard_group().all_gather(bucket(vec![full], &[unit]))?;
            self.window.add_in_flight(unit, pending);
            Ok(())
        }
    }
}

#[test]
fn gathers() {
    refused(stage::check::<gathers_garbage::Zero3>(), "wrong initial parameters");
    refused(stage::check::<puts_its_shard_elsewhere::Zero3>(), "in the slice owned by rank 1");
}

mod drops_a_unit {
    fn push(
        queue: &mut Vec<super::Unit>,
        unit: super::Unit,
        capacity: usize,
        last: bool,
    ) -> Option<Vec<usize>> {
        let closed = crate::bucket_solution::push(queue, unit, capacity, last)?;
        Some(closed.into_iter().filter(|&unit| unit != 2).collect())
    }
    include!(concat!(env!("OUT_DIR"), "/bucket.rs"));
}

mod never_closes {
    fn push(
        queue: &mut Vec<super::Unit>,
        unit: super::Unit,
        capacity: usize,
        last: bool,
    ) -> Option<Vec<usize>> {
        queue.push(unit);
        None
    }
    include!(concat!(env!("OUT_DIR"), "/bucket.rs"));
}

mod clips_by_its_own_slice {
    fn norm(mine: &[f32], _over_ranks: &mut dyn FnMut(f64) -> f64) -> f64 {
        mine.iter().map(|&g| f64::from(g) * f64::from(g)).sum::<f64>().sqrt()
    }
    include!(concat!(env!("OUT_DIR"), "/shard-norm.rs"));
}

/// A wrong queue or norm is also detected inside a stage, without its own check.
#[test]
fn parts_inside_a_stage() {
    refused(stage::check::<drops_a_unit::Ddp>(), "unit 2: missing");
    refused(stage::check::<never_closes::Ddp>(), ": missing");
    let clipped = stage::keeps_the_contract::<clips_by_its_own_slice::Zero1>("");
    assert!(clipped.unwrap_err().contains("match neither this step nor the previous one"));
}

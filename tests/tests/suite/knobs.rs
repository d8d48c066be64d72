//! Every setting of buckets, overlap and prefetch has its promised effect on the memory and streams
//! views.

use clap::CommandFactory;
use events::{Class, Operation, Pass, Recording, RunHeader, Snapshot};
use prediction::Stage;
use screen::overlap;
use screen::window::{CollectiveSpan, MemorySample, PassSpan, RankWindow, Window};
use std::collections::BTreeMap;
use tests::{STAGES, fixture, recorded, run};

const RANKS: u32 = 2;
/// A link on which a gather or a reduction takes about as long as a pass over a unit.
const LINK: &str = "--link 2ms,1GB/s";

/// The last step of a recorded run, as the views compute it from events.
struct Shown {
    header: RunHeader,
    window: Window,
    step: (u64, u64),
}

impl Shown {
    fn of(stage: Stage, flags: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("run");
        run(
            stage,
            &format!(
                "--model {} --gpus {RANKS} --batch-size 1 --seq-len 16 --steps 2 --threads 1 --device cpu \
                 --headless --record {} {flags}",
                fixture("odd.json"),
                file.display()
            ),
        );
        let mut window = Window::new(&Snapshot::new(RANKS, 0));
        recorded(&file).iter().for_each(|event| window.apply(event));
        let step = window.steps.back().unwrap();
        let step = (step.from, step.to.unwrap());
        let header = Recording::open(&file).unwrap().header().clone();
        Shown { header, window, step }
    }

    /// Returns one rank's window. All ranks behave alike.
    fn lane(&self) -> &RankWindow {
        &self.window.lanes[0]
    }

    /// Returns the bytes of a class in the memory view.
    fn live(&self, class: Class) -> impl Iterator<Item = u64> {
        let (begin, end) = self.step;
        let within = move |sample: &&MemorySample| (begin..=end).contains(&sample.at);
        self.lane().on_device().iter().filter(within).map(move |sample| sample.live[class.index()])
    }

    fn peak(&self, class: Class) -> u64 {
        self.live(class).max().unwrap()
    }

    fn least(&self, class: Class) -> u64 {
        self.live(class).min().unwrap()
    }

    /// Returns the minimum bytes of gathered parameters from the end of forward to the start of
    /// backward.
    fn gathered_for_backward(&self) -> u64 {
        let end = self.spans(Pass::Forward).last().and_then(|span| span.to).unwrap();
        let begin = self.spans(Pass::Backward).next().unwrap().from;
        let memory = self.lane().on_device();
        let first = memory.partition_point(|sample| sample.at <= end) - 1;
        let between = memory.range(first..).take_while(|sample| sample.at <= begin);
        between.map(|sample| sample.live[Class::GatheredParameters.index()]).min().unwrap()
    }

    fn spans(&self, pass: Pass) -> impl Iterator<Item = &PassSpan> {
        let (begin, end) = self.step;
        let within = move |span: &&PassSpan| span.pass == pass && (begin..=end).contains(&span.from);
        self.lane().spans.iter().filter(within)
    }

    fn transfers(&self, operation: Operation) -> Vec<&CollectiveSpan> {
        let (begin, end) = self.step;
        let within = |transfer: &&CollectiveSpan| {
            transfer.event.operation == operation && (begin..=end).contains(&transfer.issued)
        };
        self.lane().collectives.iter().filter(within).collect()
    }

    /// Returns the number of calls of `operation` in the streams view.
    fn calls(&self, operation: Operation) -> usize {
        self.transfers(operation).len()
    }

    /// Returns the bytes of the largest call of `operation`.
    fn largest(&self, operation: Operation) -> u64 {
        self.transfers(operation).iter().map(|transfer| transfer.event.bytes).max().unwrap()
    }

    /// Returns the maximum number of calls of `operation` in flight when a pass over a unit began.
    fn ahead(&self, pass: Pass, operation: Operation) -> usize {
        let transfers = self.transfers(operation);
        let on_its_way = |span: &PassSpan| {
            let ahead = transfers.iter().filter(|t| t.issued < span.from && t.finished.unwrap() > span.from);
            ahead.count()
        };
        self.spans(pass).map(on_its_way).max().unwrap()
    }

    /// Returns the time in which the streams view shows communication hidden by computation.
    fn hidden(&self) -> u64 {
        overlap::measure(&self.window, self.step).iter().map(|rank| rank.overlapped).sum()
    }
}

/// Compares a view without the setting and with it.
type Promise = (&'static str, fn(&Shown, &Shown) -> bool);

/// A setting, and the additional flags under which it has an effect.
struct Knob {
    stage: Stage,
    beside: &'static str,
    flags: &'static str,
    promises: &'static [Promise],
}

use Class::{CommunicationBuckets as Buckets, GatheredParameters as Gathered, Parameters};
use Operation::{AllGather, ReduceScatter};
use Pass::{Backward, Forward};

const FAR: &str = "--prefetch-bucket 1e6 --limit-all-gathers 64";

const KNOBS: &[Knob] = &[
    Knob {
        stage: Stage::Zero2,
        beside: "",
        flags: "--reduce-bucket 1",
        promises: &[
            ("a reduction per unit", |_, with| with.calls(ReduceScatter) == 5),
            ("fewer before", |without, _| without.calls(ReduceScatter) == 3),
            ("smaller ones", |without, with| with.largest(ReduceScatter) < without.largest(ReduceScatter)),
            ("less waits in buckets", |without, with| with.peak(Buckets) < without.peak(Buckets)),
        ],
    },
    Knob {
        stage: Stage::Zero3,
        beside: "",
        flags: "--reduce-bucket 1e6",
        promises: &[
            ("all units at once", |_, with| with.calls(ReduceScatter) == 1),
            ("of all of them", |without, with| {
                with.largest(ReduceScatter) > 2 * without.largest(ReduceScatter)
            }),
            ("more waits in buckets", |without, with| with.peak(Buckets) > without.peak(Buckets)),
        ],
    },
    Knob {
        stage: Stage::Zero1,
        beside: "",
        flags: "--allgather-bucket 1",
        promises: &[
            ("a gather per unit", |_, with| with.calls(AllGather) == 5),
            ("fewer before", |without, _| without.calls(AllGather) == 3),
            ("smaller ones", |without, with| with.largest(AllGather) < without.largest(AllGather)),
        ],
    },
    Knob {
        stage: Stage::Zero2,
        beside: LINK,
        flags: "--no-overlap",
        promises: &[
            ("reductions hid before", |without, _| without.ahead(Backward, ReduceScatter) > 0),
            ("and take time", |without, _| without.hidden() > 0),
            ("nothing is on its way while a unit computes", |_, with| {
                with.ahead(Backward, ReduceScatter) == 0
            }),
            ("nothing hides", |_, with| with.hidden() == 0),
            ("less waits in buckets", |without, with| with.peak(Buckets) < without.peak(Buckets)),
        ],
    },
    Knob {
        stage: Stage::Zero3,
        beside: LINK,
        flags: "--no-overlap",
        promises: &[
            ("gathers hid before", |without, _| without.hidden() > 0),
            ("nothing is gathered ahead", |_, with| with.ahead(Forward, AllGather) == 0),
            ("nothing hides", |_, with| with.hidden() == 0),
            ("a unit at a time", |without, with| with.peak(Gathered) < without.peak(Gathered)),
        ],
    },
    Knob {
        stage: Stage::Zero1,
        beside: "",
        flags: "--contiguous-gradients false",
        promises: &[
            ("reduced in place", |without, _| without.peak(Buckets) == 0),
            ("copied into buckets", |_, with| with.peak(Buckets) >= with.largest(ReduceScatter)),
        ],
    },
    Knob {
        stage: Stage::Zero3,
        beside: LINK,
        flags: "--prefetch-bucket 0",
        promises: &[
            ("a unit was ahead", |without, _| without.ahead(Forward, AllGather) == 1),
            ("none is", |_, with| with.ahead(Forward, AllGather) + with.ahead(Backward, AllGather) == 0),
            ("one is held", |without, with| with.peak(Gathered) < without.peak(Gathered)),
            ("less hides", |without, with| with.hidden() < without.hidden()),
        ],
    },
    Knob {
        stage: Stage::Zero3,
        beside: "",
        flags: "--prefetch-bucket 1e6",
        promises: &[
            ("as many ahead as may be", |_, with| with.ahead(Forward, AllGather) == 2),
            ("more is held", |without, with| with.peak(Gathered) > without.peak(Gathered)),
        ],
    },
    Knob {
        stage: Stage::Zero3,
        beside: "",
        flags: "--backward-prefetch post",
        promises: &[
            ("before, a unit was ahead in backward", |without, _| without.ahead(Backward, AllGather) == 1),
            ("none is while another computes", |_, with| with.ahead(Backward, AllGather) == 0),
            ("forward gathers ahead as before", |_, with| with.ahead(Forward, AllGather) == 1),
            ("before the reduction", |_, with| gathers_before_reductions(with)),
        ],
    },
    Knob {
        stage: Stage::Zero3,
        beside: "",
        flags: "--backward-prefetch none",
        promises: &[
            ("before, a unit was ahead in backward", |without, _| without.ahead(Backward, AllGather) == 1),
            ("none is while another computes", |_, with| with.ahead(Backward, AllGather) == 0),
            ("after the reduction", |_, with| !gathers_before_reductions(with)),
        ],
    },
    Knob {
        stage: Stage::Zero3,
        beside: FAR,
        flags: "--limit-all-gathers 1",
        promises: &[
            ("all were ahead", |without, _| without.ahead(Forward, AllGather) == 4),
            ("one is", |_, with| with.ahead(Forward, AllGather) == 1),
            ("less is held", |without, with| with.peak(Gathered) < without.peak(Gathered)),
        ],
    },
    Knob {
        stage: Stage::Zero3,
        beside: FAR,
        flags: "--max-live-parameters 20000",
        promises: &[
            ("no more is held", |_, with| with.peak(Gathered) <= 4 * 20_000),
            ("more was", |without, _| without.peak(Gathered) > 4 * 20_000),
            ("fewer are ahead", |without, with| {
                with.ahead(Forward, AllGather) < without.ahead(Forward, AllGather)
            }),
        ],
    },
    Knob {
        stage: Stage::Zero3,
        beside: "",
        flags: "--max-reuse-distance 1e6",
        promises: &[
            ("all but the last unit were gathered twice", |without, _| without.calls(AllGather) == 9),
            ("each is gathered once", |_, with| with.calls(AllGather) == 5),
            ("all stay for backward", |_, with| with.gathered_for_backward() == with.peak(Gathered)),
            ("more is held", |without, with| with.peak(Gathered) > without.peak(Gathered)),
        ],
    },
    Knob {
        stage: Stage::Zero3,
        beside: "",
        flags: "--reshard-last",
        promises: &[
            ("the last unit stayed", |without, _| without.gathered_for_backward() > 0),
            ("nothing stays", |_, with| with.gathered_for_backward() == 0),
            ("a gather more", |without, with| with.calls(AllGather) == without.calls(AllGather) + 1),
        ],
    },
    Knob {
        stage: Stage::Zero3,
        beside: "",
        flags: "--param-persistence-threshold 36",
        promises: &[
            ("norms are held whole", |without, with| with.least(Parameters) > without.least(Parameters)),
            ("and not gathered for a pass", |without, with| with.peak(Gathered) < without.peak(Gathered)),
            ("but after the update", |without, with| with.calls(AllGather) > without.calls(AllGather)),
        ],
    },
    Knob {
        stage: Stage::Zero3,
        beside: "--param-persistence-threshold 36",
        flags: "--model-persistence-threshold 72",
        promises: &[("fewer are held whole", |without, with| {
            with.least(Parameters) < without.least(Parameters)
        })],
    },
    Knob {
        stage: Stage::Zero3,
        beside: "",
        flags: "--sub-group-size 1000",
        promises: &[
            ("a unit was updated at once", |without, _| without.spans(Pass::Step).count() == 5),
            ("it is in pieces", |_, with| with.spans(Pass::Step).count() == 25),
        ],
    },
];

/// True if, in backward, a block's parameters are requested before the gradients of the block above
/// it are reduced.
fn gathers_before_reductions(shown: &Shown) -> bool {
    let end = shown.spans(Pass::Backward).next().unwrap().from;
    let after = |operation| shown.transfers(operation).into_iter().find(move |t| t.issued > end);
    after(AllGather).unwrap().issued < after(ReduceScatter).unwrap().issued
}

#[test]
fn every_knob_shows_what_it_promises() {
    let mut plain: BTreeMap<(Stage, &str), Shown> = BTreeMap::new();
    for Knob { stage, beside, flags, promises } in KNOBS {
        let without = plain.entry((*stage, beside)).or_insert_with(|| Shown::of(*stage, beside));
        let with = Shown::of(*stage, &format!("{beside} {flags}"));
        for (words, promise) in *promises {
            assert!(promise(without, &with), "{stage} {beside} {flags}: {words}");
        }
    }
}

/// The last unit's gradients are sent first, before backward has reached the first unit's.
#[test]
fn reductions_start_during_backward_last_unit_first() {
    for stage in STAGES {
        let shown = Shown::of(stage, "--reduce-bucket 1");
        let operation = if stage == Stage::Ddp { Operation::AllReduce } else { ReduceScatter };
        let reductions = shown.transfers(operation);
        let units: Vec<u16> = reductions.iter().flat_map(|transfer| transfer.event.units.iter()).collect();
        assert_eq!(units, [4, 3, 2, 1, 0], "{stage}");
        let backward: Vec<&PassSpan> = shown.spans(Backward).collect();
        assert_eq!(backward.len(), 5, "{stage}");
        for (reduction, span) in reductions.iter().zip(&backward[1..]) {
            assert!(reduction.issued <= span.from, "{stage}: {reduction:?} {span:?}");
        }
    }
}

/// A bucket's units need not be neighbours: persistent units are gathered together after the
/// update, and gradients are reduced in the order in which backward computes them.
#[test]
fn collectives_name_the_units_that_they_move() {
    let shown = Shown::of(Stage::Zero3, "--param-persistence-threshold 36");
    let header = &shown.header.units;
    let gathers = shown.transfers(AllGather);
    let last = &gathers.last().unwrap().event.units;
    let persistent = (0..).zip(header).filter(|(_, unit)| unit.persistent).map(|(number, _)| number);
    assert_eq!(*last, persistent.collect());
    assert!(last.runs().len() > 1, "{last}");
    for stage in [Stage::Zero3, Stage::Zero2] {
        let shown = Shown::of(stage, "--wrap parameter --reduce-bucket 1500");
        let reductions = shown.transfers(ReduceScatter);
        assert!(reductions.len() > 3, "{stage}");
        let mut units: Vec<u16> =
            reductions.iter().flat_map(|transfer| transfer.event.units.iter()).collect();
        units.sort_unstable();
        assert_eq!(units, (0..shown.header.units.len() as u16).collect::<Vec<_>>(), "{stage}");
        for transfer in reductions {
            let elements: u64 =
                transfer.event.units.iter().map(|unit| shown.header.units[usize::from(unit)].padded).sum();
            assert_eq!(transfer.event.bytes, elements * 4, "{stage}: {transfer:?}");
        }
    }
}

#[test]
fn no_knob_is_left_out() {
    let command = settings::cli::Cli::command();
    let knobs = command.get_arguments().filter(|arg| arg.get_help_heading() == Some("Buckets and overlap"));
    let mut count = 0;
    for knob in knobs.map(|arg| arg.get_long().unwrap().to_string()) {
        assert!(KNOBS.iter().any(|row| row.flags.starts_with(&format!("--{knob}"))), "{knob}");
        count += 1;
    }
    assert_eq!(count, 13);
}

//! Tests of the units of a collective: as a set, in words, and in recordings.

use crate::common::{collective, header};
use events::frame::encode;
use events::{Event, EventBatch, Message, Operation, Progress, Recording, UnitSet, What};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::path::Path;

/// Units as a collective's event had them in version 3: the first, and their number.
const NEIGHBOURS: [(&[u16], (u16, u16)); 4] =
    [(&[], (u16::MAX, 0)), (&[0], (0, 1)), (&[3, 4, 5], (3, 3)), (&[u16::MAX], (u16::MAX, 1))];

proptest! {
    #[test]
    fn a_set_has_the_units_that_it_was_made_of(units in prop::collection::vec(0_u16..40, 0..20)) {
        let set: UnitSet = units.iter().copied().collect();
        let sorted: BTreeSet<u16> = units.into_iter().collect();
        prop_assert_eq!(set.iter().collect::<Vec<_>>(), sorted.iter().copied().collect::<Vec<_>>());
        prop_assert_eq!((set.len(), set.first()), (sorted.len(), sorted.first().copied()));
        prop_assert_eq!(set.is_empty(), sorted.is_empty());
        let read: UnitSet = postcard::from_bytes(&postcard::to_stdvec(&set).unwrap()).unwrap();
        prop_assert_eq!(read, set);
    }
}

#[test]
fn neighbours_are_recorded_as_in_version_3() {
    for (units, recorded) in NEIGHBOURS {
        let set = UnitSet::from_iter(units.iter().copied());
        let bytes = postcard::to_stdvec(&recorded).unwrap();
        assert_eq!(postcard::to_stdvec(&set).unwrap(), bytes, "{set}");
        assert_eq!(postcard::from_bytes::<UnitSet>(&bytes).unwrap(), set);
    }
    let all: UnitSet = (0..=u16::MAX).collect();
    let bytes = postcard::to_stdvec(&all).unwrap();
    assert_eq!(postcard::from_bytes::<UnitSet>(&bytes).unwrap(), all);
}

#[test]
fn runs_out_of_order_are_damage() {
    for runs in [vec![(3, 2)], vec![(4, 5), (0, 1)], vec![(0, 1), (2, 3)], vec![(0, u16::MAX), (1, 1)]] {
        let bytes = postcard::to_stdvec(&(0_u16, 0_u16, &runs)).unwrap();
        assert!(postcard::from_bytes::<UnitSet>(&bytes).is_err(), "{runs:?}");
    }
}

#[test]
fn units_are_named_by_runs() {
    let shown = |units: &[u16]| UnitSet::from_iter(units.iter().copied()).to_string();
    assert_eq!(shown(&[7]), "7");
    assert_eq!(shown(&[6, 2, 0, 5, 4]), "0, 2, 4 to 6");
    let every_other: UnitSet = (0..20).map(|unit| 2 * unit).collect();
    assert_eq!(every_other.to_string(), "0, 2, 4, 6, 8, 10, 12, 14 and 12 more");
}

#[test]
fn units_apart_come_back_from_a_recording() {
    let units = UnitSet::from_iter([1, 5, 6]);
    let What::Collective(event) = collective(Operation::AllGather, Progress::Issued, 0, 1, 0) else {
        panic!("a collective")
    };
    let what = What::Collective(events::CollectiveEvent { units, ..event });
    let batch = EventBatch { dropped: 0, events: vec![Event { at: 1, rank: 0, what }] };
    let mut bytes = events::frame::preamble().to_vec();
    encode(&Message::Header(Box::new(header(1))), &mut bytes);
    encode(&Message::Batch(batch.clone()), &mut bytes);
    encode(&Message::End, &mut bytes);
    let recording = Recording::parse(Path::new("run.events"), bytes).unwrap();
    assert_eq!(recording.events().map(Result::unwrap).collect::<Vec<_>>(), batch.events);
}

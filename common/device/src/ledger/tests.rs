//! Live bytes, peaks and refusals.

use super::*;

#[test]
fn peaks_remember_and_capacity_refuses() {
    let ledger = Ledger::new(Emitter::silent(3), Some(100));
    let first = ledger.lease(Place::Device, Class::Parameters, 60).unwrap();
    let second = ledger.lease(Place::Device, Class::Gradients, 40).unwrap();
    let refused = ledger.lease(Place::Device, Class::Activations, 1).err().unwrap();
    assert_eq!((refused.rank, refused.requested, refused.live_total, refused.capacity), (3, 1, 100, 100));
    drop(first);
    assert_eq!(ledger.live(Place::Device, Class::Parameters), 0);
    assert_eq!(ledger.peak(Place::Device, Class::Parameters), 60);
    assert_eq!(ledger.live_total(Place::Device), 40);
    assert_eq!(ledger.peak_total(Place::Device), 100);
    let third = ledger.lease(Place::Device, Class::Optimizer, 50).unwrap();
    assert_eq!((ledger.live_total(Place::Device), ledger.peak_total(Place::Device)), (90, 100));
    drop((second, third));
    assert_eq!(ledger.live_total(Place::Device), 0);
    let host = ledger.lease(Place::Host, Class::Optimizer, 1000).unwrap();
    assert_eq!((ledger.live_total(Place::Host), ledger.live_total(Place::Device)), (1000, 0));
    drop(host);
    let ledger = ledger.limited(Place::Host, Some(10));
    let refused = ledger.lease(Place::Host, Class::Workspace, 11).err().unwrap();
    assert_eq!((refused.place, refused.capacity), (Place::Host, 10));
    assert!(ledger.lease(Place::Disk, Class::Optimizer, 11).is_ok());
}

#[test]
fn one_lease_is_refused_on_request() {
    let ledger = Ledger::new(Emitter::silent(2), None).refusing(Some(2));
    let lease = |place| ledger.lease(place, Class::Gradients, 8);
    let first = lease(Place::Device).unwrap();
    let refused = lease(Place::Host).err().unwrap();
    assert_eq!(
        (refused.rank, refused.place, refused.live_total, refused.by_system),
        (2, Place::Host, 0, true)
    );
    assert!(lease(Place::Host).is_ok());
    drop(first);
    assert!([Place::Device, Place::Host].iter().all(|&place| ledger.live_total(place) == 0));
}

#[test]
fn more_bytes_than_can_be_counted_are_refused() {
    let ledger = Ledger::new(Emitter::silent(0), None);
    let most = ledger.lease(Place::Host, Class::Optimizer, u64::MAX).unwrap();
    assert!(ledger.lease(Place::Host, Class::Optimizer, 1).is_err());
    assert_eq!(ledger.live_total(Place::Host), u64::MAX);
    drop(most);
    assert_eq!((ledger.live(Place::Host, Class::Optimizer), ledger.live_total(Place::Host)), (0, 0));
}

#[test]
#[should_panic(expected = "gives back more than it took")]
fn an_unbalanced_ledger_panics() {
    let ledger = Ledger::new(Emitter::silent(0), None);
    let _lease = ledger.lease(Place::Device, Class::Gradients, 8).unwrap();
    ledger.release(Place::Device, Class::Gradients, 9);
}

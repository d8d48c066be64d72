//! Messages come back from their bytes as they were.

#![allow(clippy::unwrap_used)]

use super::*;
use crate::call_id::CallId;
use crate::core::call::BufferShape;
use crate::core::failure::{Awaited, Cause};
use device::DType;
use std::time::Duration;

/// Returns a head, before a payload of `payload` bytes, as it is read back.
fn through(head: &Head, payload: usize) -> Option<Head> {
    let bytes = encode(head, payload);
    let lengths = lengths(bytes.first_chunk().unwrap()).unwrap();
    assert_eq!((PREFIX + lengths.head, lengths.payload), (bytes.len(), payload));
    assert!(bytes.len().is_multiple_of(padded(1)), "payloads begin aligned");
    decode(&bytes[PREFIX..], payload)
}

fn data() -> Head {
    let shapes = [(5, DType::F32), (3, DType::Bf16), (1, DType::F16), (2, DType::U32)];
    let shapes = shapes.map(|(len, dtype)| BufferShape { len, dtype }).to_vec();
    let signature = Signature {
        shapes,
        root: 3,
        units: [1, 5, 6].into_iter().collect(),
        ..Signature::new(Operation::Broadcast)
    };
    let address = Address { group: u64::MAX - 3, sequence: 1 << 40, phase: Phase::Result };
    Head::Data { address, signature }
}

#[test]
fn heads_come_back_as_they_were() {
    let departed = Head::Departed { group: 0 };
    let report = Head::Steps { group: 3, steps: 1 << 50 };
    let [waits, waits_no_longer] = [Some(0), None].map(|rank| Head::Waits { rank });
    for head in [data(), departed, report, waits, waits_no_longer] {
        assert_eq!(through(&head, 0), Some(head));
    }
    assert_eq!(lengths(&[0; PREFIX]), None);
}

#[test]
fn failures_come_back_as_they_were() {
    let (during, reason) = ("step 3".to_string(), "naïve".to_string());
    let (expected, theirs) = ("barrier".to_string(), "scalars".to_string());
    let call = CallId { operation: Operation::AllGather, sequence: 8 };
    let waited = Duration::from_millis(1500);
    for cause in [
        Cause::Poisoned { during: during.clone(), reason: reason.clone() },
        Cause::Unknown { during, reason },
        Cause::Late { reporter: 3, call, awaited: Awaited::Part, waited },
        Cause::Departed,
        Cause::Mismatch { reference: 1, sequence: 5, expected, theirs },
    ] {
        let head = Head::Failed { group: 9, failure: Failure { culprit: 7, cause } };
        assert_eq!(through(&head, 0), Some(head.clone()));
        let bytes = postcard::to_stdvec(&head).unwrap();
        assert_eq!(decode(&bytes[..bytes.len() - 1], 0), None, "a head that ends early is none");
    }
}

#[test]
fn a_payload_is_no_longer_than_the_buffers() {
    let bytes = 24 + 8 + 8 + 8;
    assert_eq!(through(&data(), bytes), Some(data()));
    assert_eq!(through(&data(), bytes + 1), None);
    assert_eq!(through(&Head::Departed { group: 0 }, 1), None);
    let endless = BufferShape { len: usize::MAX, dtype: DType::F32 };
    let signature = Signature { shapes: vec![endless], ..Signature::new(Operation::AllReduce) };
    let address = Address { group: 0, sequence: 0, phase: Phase::Contribution };
    assert_eq!(through(&Head::Data { address, signature }, 8), None);
}

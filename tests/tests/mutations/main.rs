//! Damages inputs from outside at random. Reading them must not panic or hang, or use more memory
//! than their size justifies. The random numbers are the same every time. `ZERO_MUTATIONS` sets how
//! many inputs are tried (`scripts/mutate`: a million of each kind).

#![allow(clippy::unwrap_used, reason = "a failed expectation is a panic")]

mod files;
mod mutate;
mod streams;

use device::CountingAllocator;
use mutate::Random;
use std::time::{Duration, Instant};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// The maximum memory that reading an input may hold: a constant plus a multiple of the input's
/// size.
#[derive(Clone, Copy)]
struct Bound {
    constant: usize,
    factor: usize,
}

/// Maximum time for one input.
const LONGEST: Duration = Duration::from_secs(10);

/// Prints the number of the input if it makes its reader panic.
struct Case<'a>(&'a str, u64);

impl Drop for Case<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}: input {} (each is made of its number alone)", self.0, self.1);
        }
    }
}

/// Generates inputs with `make` and passes them to `read`, which returns whether it took an input
/// for an undamaged one. Tests use `few` inputs.
fn attack(
    name: &str,
    few: u64,
    bound: Bound,
    make: impl Fn(&mut Random) -> Vec<u8>,
    mut read: impl FnMut(&[u8], u64) -> bool,
) {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let (count, first) = (number("ZERO_MUTATIONS").unwrap_or(few), number("ZERO_FIRST").unwrap_or(0));
    let (begin, mut most, mut passed) = (Instant::now(), 0, 0);
    for number in first..first + count {
        let input = make(&mut Random::new(number));
        let (case, begin) = (Case(name, number), Instant::now());
        let (whole, held) = CountingAllocator::peak(|| read(&input, number));
        let allowed = bound.constant + bound.factor * input.len();
        assert!(held <= allowed, "{held} bytes were held for an input of {}", input.len());
        assert!(begin.elapsed() < LONGEST, "it took {:?}", begin.elapsed());
        (most, passed) = (most.max(held), passed + u64::from(whole));
        drop(case);
    }
    let seconds = begin.elapsed().as_secs_f64();
    println!("{name}: {count} inputs in {seconds:.1} s, {passed} passed, at most {most} bytes held");
}

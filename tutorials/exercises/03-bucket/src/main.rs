//! Checks this exercise.

use exercises::bucket::check;

exercises::program!(check::<bucket::Ddp>(bucket::push), check::<solution::Ddp>(solution::push));

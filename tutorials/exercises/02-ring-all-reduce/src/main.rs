//! Checks this exercise.

use exercises::ring_all_reduce::check;

exercises::program!(check(ring_all_reduce::all_reduce), check(solution::all_reduce));

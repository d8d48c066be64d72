//! Checks this exercise.

use exercises::hybrid_reduction::check;

exercises::program!(check(hybrid_reduction::reduce), check(solution::reduce));

//! Checks this exercise.

use exercises::reshard::check;

exercises::program!(check(reshard::reads), check(solution::reads));

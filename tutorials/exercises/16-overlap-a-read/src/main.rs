//! Checks this exercise.

use exercises::overlap_a_read::check;

exercises::program!(check(overlap_a_read::pass), check(solution::pass));

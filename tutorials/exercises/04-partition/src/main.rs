//! Checks this exercise.

use exercises::partition::check;

exercises::program!(check(partition::slice), check(solution::slice));

//! Checks this exercise.

use exercises::page_an_optimizer::check;

exercises::program!(check(page_an_optimizer::step), check(solution::step));

//! Checks this exercise.

use exercises::loss_scaler::check;

exercises::program!(check(loss_scaler::next), check(solution::next));

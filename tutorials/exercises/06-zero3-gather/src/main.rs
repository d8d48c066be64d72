//! Checks this exercise.

use exercises::stage::check;

exercises::program!(check::<zero3_gather::Zero3>(), check::<solution::Zero3>());

//! Checks this exercise.

use exercises::stage::check;

exercises::program!(check::<zero2_accumulate::Zero2>(), check::<solution::Zero2>());

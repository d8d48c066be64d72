//! Checks this exercise.

use exercises::stage::check;

exercises::program!(check::<zero1_step::Zero1>(), check::<solution::Zero1>());

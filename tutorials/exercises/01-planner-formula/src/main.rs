//! Checks this exercise.

use exercises::planner_formula::check;

exercises::program!(check(planner_formula::model_states), check(solution::model_states));

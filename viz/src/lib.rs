//! Terminal visualizer: live, attached to a run, or replaying a recording.

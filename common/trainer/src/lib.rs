//! Command line, data, launch, the training loop and the run report.

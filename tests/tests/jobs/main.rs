//! Tests of runs whose ranks are processes of this machine.

mod launchers;
mod meeting;
mod phases;
mod processes;
mod saves;

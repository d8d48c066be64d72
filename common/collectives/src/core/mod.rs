//! The parts that all engines share: threads, processes and NCCL.
//!
//! | file | contents |
//! |---|---|
//! | `call` | a call as a rank issues it, and its signature, which ranks compare |
//! | `context` | one member's view of one call: the call, its place, and how it waits |
//! | `backend` | the interface between a group and its engine |
//! | `buffers` | raw access to issued buffers in main memory |
//! | `queue` | a rank's issued calls, carried out in the order of issue |
//! | `wait_graph`, `deadline` | which rank waits for which, and when a wait times out |
//! | `stopwatch` | how long a wait lasts, without pauses |
//! | `failure` | why a group failed, and which rank is to blame |
//! | `reduce` | sums over ranks |
//! | `observer` | where a rank's progress is reported and counted |

pub(crate) mod backend;
pub(crate) mod buffers;
pub(crate) mod call;
pub(crate) mod context;
pub(crate) mod deadline;
pub(crate) mod failure;
pub(crate) mod observer;
pub(crate) mod queue;
pub(crate) mod reduce;
pub(crate) mod stopwatch;
pub(crate) mod wait_graph;

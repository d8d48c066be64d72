//! Settings that store states nearer to the device, so that ranks wait less for transfers.

use super::planned_run::PlannedRun;
use super::traffic::costs;
use super::{Speedup, speedup};
use crate::account::Account;
use crate::report::Report;
use events::{Place, Route};
use prediction::placement::{MOVABLE, place_word};
use prediction::{Job, Placement, Transfers, change, predict};
use settings::offload::MOST_BUFFERS;

/// Returns settings with which ranks wait less for transfers. On each route the time saved is
/// proportional to the predicted bytes.
pub(super) fn resting_nearer(report: &Report, account: &Account, run: &PlannedRun<'_>) -> Vec<Speedup> {
    let Some(now) = transfers(&run.job) else { return Vec::new() };
    let saved = |job: &Job| {
        let then = transfers(job)?;
        let on_route = |route: &Route| match now.bytes(*route) {
            0 => 0.0,
            bytes => report.moved_and_waited(*route).1 * (1.0 - then.bytes(*route) as f64 / bytes as f64),
        };
        Some(Route::ALL.iter().map(on_route).sum::<f64>().min(account.places))
    };
    let nearer = nearer(&run.job).into_iter().filter_map(|(how, job)| {
        let why = costs("fewer bytes are moved", &job);
        Some(speedup(how, why, saved(&job)?))
    });
    nearer.chain(buffers(&run.job, account)).collect()
}

fn transfers(job: &Job) -> Option<Transfers> {
    Some(predict(job).ok()?.ranks[0].transfers.step)
}

/// Returns the flags that store one kind of state nearer to the device, and the jobs that result.
fn nearer(job: &Job) -> Vec<(String, Job)> {
    let mut jobs = Vec::new();
    for (flag, rests) in MOVABLE {
        let mut nearer = job.clone();
        let now = *rests(&mut nearer.placement);
        for &place in Place::ALL.iter().take_while(|&&place| place != now) {
            let how = match place {
                Place::Device => String::new(),
                place => format!("{flag} {}", place_word(place)),
            };
            *rests(&mut nearer.placement) = place;
            jobs.push((change(&how, job, &nearer), nearer.clone()));
        }
    }
    jobs
}

/// Suggests more buffers, which can hide at most every wait; `None` if the planner says that they
/// would not be used.
fn buffers(job: &Job, account: &Account) -> Option<Speedup> {
    let more = (2 * job.placement.update_buffers(MOST_BUFFERS)).min(MOST_BUFFERS);
    let with = Job { placement: Placement { buffers: Some(more), ..job.placement }, ..job.clone() };
    let [now, then] = [job, &with].map(|job| predict(job).ok().map(|predicted| predicted.ranks[0]));
    (now != then)
        .then(|| speedup(format!("--offload-buffers {more}"), "more transfers at a time", account.places))
}

//! One rank's share of one collective.

use super::ThreadMember;
use crate::core::backend::Backend;
use crate::core::context::CallContext;
use crate::local::OnHop;
use crate::local::direct;
use crate::local::gpu::GpuMembers;
use crate::local::published::{Published, on_gpus};
use crate::local::ring::{self, Ring};
use events::{Progress, Work};

/// One rank's share of one collective. The rank leaves the collective's slot when this is dropped,
/// in an unwinding too.
pub(super) struct Share<'a> {
    pub(super) rank: &'a ThreadMember,
    pub(super) context: CallContext<'a>,
    pub(super) all: &'a [Published],
    /// Bytes sent, once the share is complete.
    pub(super) finished: Option<u64>,
}

impl Share<'_> {
    /// Moves this rank's share of the data.
    pub(super) fn run(mut self) {
        let (call, me) = (self.context.call, self.context.member);
        let coordinator = &self.rank.shared.coordinator;
        let global_ranks = coordinator.global_ranks();
        let hop: OnHop<'_> =
            &mut |hop| call.emit_hop(global_ranks[hop.from], global_ranks[hop.to], hop.chunk, hop.bytes);
        call.emit(Progress::Started);
        self.finished = if call.signature.external_engine {
            Some(self.direct_bytes())
        } else if let Some(members) = on_gpus(self.all) {
            self.run_on_gpu(&members, hop)
        } else if self.rank.goes_around(call) {
            // SAFETY: the coordinator let this rank enter once: all have issued and agree, and no
            // rank gets its buffers back before this rank has left.
            let ran = unsafe { Ring { all: self.all, coordinator, context: &self.context }.run(hop) };
            ran.is_ok().then(|| ring::sent(&self.all[me].issued, me, self.all.len()))
        } else {
            // SAFETY: as above.
            unsafe { direct::run(self.all, me, hop) };
            Some(self.direct_bytes())
        };
    }

    fn direct_bytes(&self) -> u64 {
        let me = self.context.member;
        self.all[me].issued.bytes_sent(me, self.all.len())
    }

    /// Queues this rank's share. Returns the bytes that it sends; `None` if it failed and the group
    /// knows why.
    fn run_on_gpu(&self, members: &GpuMembers<'_>, hop: OnHop<'_>) -> Option<u64> {
        let (call, me) = (self.context.call, self.context.member);
        let (group, sequence, operation) = (call.observer.group, call.sequence, call.operation());
        let what = Work::Collective { group, sequence, operation };
        // SAFETY: the coordinator let this rank enter once: all have issued and agree. No rank gets
        // a buffer back before all have queued their shares, and none computes on it before those
        // are done.
        let queued = unsafe { members.run(me, what, hop) };
        let queued = queued.inspect_err(|error| self.rank.poison(call.id().to_string(), error.to_string()));
        queued.is_ok().then(|| self.direct_bytes())
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.rank.poison(self.context.call.id().to_string(), "it panicked".into());
        }
        self.rank.shared.coordinator.exit(&self.context, self.finished);
    }
}

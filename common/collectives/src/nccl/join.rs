//! Puts NCCL under a group.

use super::member::NcclMember;
use super::setup::Setup;
use crate::CollectiveError;
use crate::core::backend::Backend;
use crate::group::Group;
use device::cuda::Runtime;
use std::sync::Arc;
use std::time::Duration;

/// Puts NCCL under `group`: buffers on the GPU of `runtime`, this rank's, then travel through it.
/// Every rank of the group calls it.
///
/// # Errors
/// [`CollectiveError::Setup`] if NCCL is missing, too old, or refuses; the group's failure if
/// another rank could not.
pub fn join(group: Group, runtime: &Arc<Runtime>, timeout: Duration) -> Result<Group, CollectiveError> {
    group.over(|control| {
        let setup = Setup::new(&control, runtime, timeout);
        let connected = setup.run().inspect_err(|error| {
            if let CollectiveError::Setup { reason, .. } = error {
                control.poison("its NCCL setup".into(), reason.clone());
            }
        })?;
        let member = NcclMember::new(control.clone(), runtime.clone(), timeout, connected);
        Ok(Arc::new(member) as Arc<dyn Backend>)
    })
}

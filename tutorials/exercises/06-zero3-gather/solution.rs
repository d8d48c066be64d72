//! ZeRO-3's gather, of full sharding.

include!(concat!(env!("OUT_DIR"), "/zero3-gather.rs"));

impl Zero3 {
    /// The window hands out what is issued here once it has arrived.
    fn gather(&mut self, unit: UnitId, _pass: Pass) -> Result<()> {
        if self.window.contains(unit) {
            return Ok(());
        }
        let (group, shard) = (self.rank.shard_group(), self.parameters.get(unit)?);
        let padded = shard.len() * group.size() as usize;
        let mut full = self.rank.device.allocate(Class::GatheredParameters, shard.dtype(), padded)?;
        let own = group.rank() as usize * shard.len();
        self.rank.kernels().copy(full.slice_mut(own..own + shard.len()), shard.view())?;
        self.window.issued(unit, group.all_gather(bucket(vec![full], &[unit]))?);
        Ok(())
    }
}

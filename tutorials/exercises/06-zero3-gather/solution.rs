//! ZeRO-3's gather under full sharding.

include!(concat!(env!("OUT_DIR"), "/zero3-gather.rs"));

impl Zero3 {
    /// Issues `unit`'s all-gather. The window hands out the full parameters once they have arrived.
    fn gather(&mut self, unit: UnitId, _pass: Pass) -> Result<()> {
        if self.window.contains(unit) {
            return Ok(());
        }
        let (group, shard) = (self.rank.shard_group(), self.parameters.get(unit)?);
        let padded = shard.len() * group.size() as usize;
        let mut full = self.rank.device.allocate(Class::GatheredParameters, shard.dtype(), padded)?;
        let own = group.rank() as usize * shard.len();
        self.rank.kernels().copy(full.slice_mut(own..own + shard.len()), shard.view())?;
        self.window.add_in_flight(unit, group.all_gather(bucket(vec![full], &[unit]))?);
        Ok(())
    }
}

//! The pieces of an update, and how their parameters get back to where they are stored.

use super::super::OwnSlice;
use crate::full::UnitBuffers;
use crate::partition::UnitId;
use crate::placement::OffloadPlacement;
use crate::rank::Rank;
use device::{DType, Place};
use std::ops::Range;

/// A piece of a unit.
pub(super) struct PagedPiece {
    pub(super) unit: UnitId,
    /// Its number in the unit, from 0.
    pub(super) number: usize,
    /// Its elements, counted from the first of the rank's slice.
    pub(super) in_slice: Range<usize>,
    /// Its elements, counted from the first of the unit.
    pub(super) in_unit: Range<usize>,
    /// Its elements, counted from the first of the parameters that the rank holds.
    pub(super) in_buffer: Range<usize>,
    /// True for the last piece of its unit.
    pub(super) is_last: bool,
    /// How its parameters get back.
    pub(super) write_back: WriteBack,
}

/// What computes an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Updater {
    /// The CPU, in main memory.
    Cpu,
    /// The rank's device, in its memory.
    Device,
}

/// How updated parameters get to where they are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WriteBack {
    /// The update writes them in place.
    InPlace,
    /// The CPU's update writes them to a CPU device, which needs no copy. It counts as a transfer.
    IntoDevice,
    /// The f32 master weights are copied to the device without rounding.
    MasterToDevice,
    /// The CPU's update rounds them into a staging buffer, which is copied to the device.
    HostToDevice,
    /// The CPU's update rounds them into a staging buffer, which is written to the disk.
    HostToDisk,
    /// The device's update writes them to a buffer on it, which is copied to main memory.
    DeviceToHost,
    /// The device's update writes them to a buffer on it, which is copied to a staging buffer in
    /// main memory and written to the disk from there.
    DeviceToDisk,
}

impl WriteBack {
    /// Returns how parameters of type `dtype` get to `home` from an update by `updater`.
    pub(super) fn new(updater: Updater, home: Place, dtype: DType, device_in_main_memory: bool) -> Self {
        match (updater, home) {
            (Updater::Cpu, Place::Device) if device_in_main_memory => WriteBack::IntoDevice,
            (Updater::Cpu, Place::Device) if dtype == DType::F32 => WriteBack::MasterToDevice,
            (Updater::Cpu, Place::Device) => WriteBack::HostToDevice,
            (Updater::Cpu, Place::Disk) => WriteBack::HostToDisk,
            (Updater::Cpu, Place::Host) | (Updater::Device, Place::Device) => WriteBack::InPlace,
            (Updater::Device, Place::Host) => WriteBack::DeviceToHost,
            (Updater::Device, Place::Disk) => WriteBack::DeviceToDisk,
        }
    }

    /// True if parameters need a staging buffer in main memory. A CPU device leaves it unused; it
    /// is allocated anyway, so that every device needs the same memory.
    pub(super) fn has_host_staging(self, dtype: DType) -> bool {
        match self {
            WriteBack::HostToDevice | WriteBack::HostToDisk | WriteBack::DeviceToDisk => true,
            WriteBack::IntoDevice => dtype != DType::F32,
            WriteBack::InPlace | WriteBack::MasterToDevice | WriteBack::DeviceToHost => false,
        }
    }

    /// True if parameters are copied to the device for their update.
    pub(super) fn visits_device(self) -> bool {
        matches!(self, WriteBack::DeviceToHost | WriteBack::DeviceToDisk)
    }

    /// True if the update does not write the padding of its output buffer, which then has to be
    /// zeroed.
    pub(super) fn leaves_padding(self, dtype: DType) -> bool {
        match self {
            WriteBack::HostToDevice | WriteBack::HostToDisk => true,
            // f32 parameters are copied with their padding: they are the master weights.
            WriteBack::DeviceToHost | WriteBack::DeviceToDisk => dtype != DType::F32,
            WriteBack::InPlace | WriteBack::IntoDevice | WriteBack::MasterToDevice => false,
        }
    }
}

/// Returns the pieces of all `units`, in the order of their update; parameters have type `dtype`.
pub(super) fn pieces(
    rank: &Rank,
    placement: OffloadPlacement,
    units: &[OwnSlice],
    parameters: &UnitBuffers,
    dtype: DType,
) -> Vec<PagedPiece> {
    let updater = if placement.optimizer == Place::Device { Updater::Device } else { Updater::Cpu };
    let device_in_main_memory = rank.device.gpu().is_none();
    let all = units.iter().enumerate().flat_map(|(unit, own)| {
        let home = parameters.place(unit).unwrap_or(Place::Device);
        let write_back = WriteBack::new(updater, home, dtype, device_in_main_memory);
        let (start, count) = (own.slice.start, own.states.pieces.len());
        let piece = move |(number, in_slice): (usize, Range<usize>)| {
            let in_unit = start + in_slice.start..start + in_slice.end;
            let in_buffer = parameters.within(unit, in_unit.clone());
            let is_last = number + 1 == count;
            PagedPiece { unit, number, in_slice, in_unit, in_buffer, is_last, write_back }
        };
        own.states.pieces.iter().map(|piece| piece.range.clone()).enumerate().map(piece)
    });
    all.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_pass_the_places_between_their_update_and_their_storage() {
        use WriteBack::*;
        let of = |updater, home, dtype| {
            [true, false].map(|in_main_memory| WriteBack::new(updater, home, dtype, in_main_memory))
        };
        assert_eq!(of(Updater::Cpu, Place::Device, DType::F32), [IntoDevice, MasterToDevice]);
        assert_eq!(of(Updater::Cpu, Place::Device, DType::Bf16), [IntoDevice, HostToDevice]);
        for dtype in [DType::F32, DType::Bf16] {
            assert_eq!(of(Updater::Cpu, Place::Host, dtype), [InPlace; 2]);
            assert_eq!(of(Updater::Cpu, Place::Disk, dtype), [HostToDisk; 2]);
            assert_eq!(of(Updater::Device, Place::Device, dtype), [InPlace; 2]);
            assert_eq!(of(Updater::Device, Place::Host, dtype), [DeviceToHost; 2]);
            assert_eq!(of(Updater::Device, Place::Disk, dtype), [DeviceToDisk; 2]);
        }
    }

    #[test]
    fn a_cpu_device_has_the_staging_buffers_of_every_device() {
        for dtype in [DType::F32, DType::Bf16] {
            for (updater, home) in [Updater::Cpu, Updater::Device]
                .into_iter()
                .flat_map(|updater| [Place::Device, Place::Host, Place::Disk].map(|home| (updater, home)))
            {
                let staged = [true, false].map(|in_main_memory| {
                    WriteBack::new(updater, home, dtype, in_main_memory).has_host_staging(dtype)
                });
                assert_eq!(staged[0], staged[1], "{updater:?} {home:?} {dtype:?}");
            }
        }
    }
}

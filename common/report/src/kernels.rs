//! Rows of the report about kernels: time by kind, and the limit of the processor's registers.

use device::meter::{Kind, Spent};
use device::{DType, multiply_add_peak};
use serde::{Deserialize, Serialize};
use settings::Config;
use settings::labels;
use settings::machine::cores;

/// Number of steps at the beginning that count neither for kernels nor for throughput if there are
/// more: in them ranks allocate memory and load code.
pub const UNTIMED: usize = 2;

/// Time of kernels of one kind on one rank, without validation, and without the first two steps if
/// there are more.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct KernelRow {
    /// The rank.
    pub rank: usize,
    /// The kind.
    #[serde(with = "labels::label")]
    pub kind: Kind,
    /// Calls.
    pub calls: u64,
    /// Seconds of all calls together. On the CPU it is processor time of the rank's own thread.
    pub seconds: f64,
    /// Floating-point operations of products and attention; 0 for other kinds.
    pub flops: u64,
    /// Bytes of the operands, each read or written once.
    pub bytes: u64,
}

impl KernelRow {
    /// Returns the rows of `rank`, which has `spent` this time by kind, in [`Kind::ALL`]'s order.
    pub fn of(rank: usize, spent: &[Spent]) -> Vec<Self> {
        let row = |(kind, spent): (Kind, &Spent)| KernelRow {
            rank,
            kind,
            calls: spent.calls,
            seconds: spent.time.as_secs_f64(),
            flops: spent.flops,
            bytes: spent.bytes,
        };
        Kind::ALL.into_iter().zip(spent).map(row).collect()
    }
}

/// The processor's rate of multiplications and additions in registers, without memory access: the
/// limit of products and of attention. It is measured with as many threads as compute at once.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LimitRow {
    /// The number of threads.
    pub threads: usize,
    /// Their GFLOP/s in the type in which products multiply.
    pub products_gflops: f64,
    /// Their GFLOP/s in f32, in which attention multiplies.
    pub f32_gflops: f64,
}

impl LimitRow {
    /// Measures the limits of `config`'s run on this machine, in a tenth of a second.
    pub fn measure(config: &Config) -> Self {
        let threads = (config.ranks_here() * config.threads).min(cores());
        let limit = |dtype| multiply_add_peak(threads, dtype);
        let f32_gflops = limit(DType::F32);
        let products_gflops =
            if config.precision.multiplies_bf16() { limit(DType::Bf16) } else { f32_gflops };
        LimitRow { threads, products_gflops, f32_gflops }
    }

    /// Returns GFLOP/s of one thread for `kind`; `None` if arithmetic does not limit that kind.
    pub(crate) fn of(&self, kind: Kind) -> Option<f64> {
        let all = match kind {
            Kind::Matmul => self.products_gflops,
            Kind::Attention => self.f32_gflops,
            _ => return None,
        };
        Some(all / self.threads as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_of_products_is_that_of_their_type() {
        let limit = LimitRow::measure(&crate::samples::config("--gpus 64 --threads 1"));
        assert_eq!(limit.threads, cores().min(64));
        assert!(limit.f32_gflops > 0.0 && limit.products_gflops == limit.f32_gflops, "{limit:?}");
    }

    #[test]
    fn the_limit_is_that_of_the_ranks_on_this_machine() {
        let alone = |name: &str| match name {
            "RANK" => Some("0".into()),
            "WORLD_SIZE" => Some("64".into()),
            "LOCAL_WORLD_SIZE" => Some("1".into()),
            "MASTER_ADDR" => Some("localhost".into()),
            "MASTER_PORT" => Some("4000".into()),
            _ => None,
        };
        let mut args = crate::samples::args("--device cpu --threads 1");
        let process = settings::process::detect(&mut args, &alone).unwrap();
        let config = Config::new(args).and_then(|config| config.in_process(process)).unwrap();
        assert_eq!(LimitRow::measure(&config).threads, 1);
    }
}

//! Fits efficiencies to the published runs, and prints the constants that `timeline` holds.

use timeline::Calibration;
use timeline::calibration::{Comparison, Kind, fit, typical_errors};

fn main() {
    let all = Comparison::all();
    let Calibration { products, attention, network, cpu, hop, eager_passes } =
        fit(&all.iter().collect::<Vec<_>>());
    println!("products: {products:.4?},\nattention: {attention:.4?},\nnetwork: {network:.4},");
    println!("cpu: {cpu:.4},");
    println!("hop: {hop:.3e},\neager_passes: {eager_passes:.3},");
    for (kind, error) in Kind::ALL.into_iter().zip(typical_errors(&all)) {
        println!("{kind:?}: {error:.3?}");
    }
}

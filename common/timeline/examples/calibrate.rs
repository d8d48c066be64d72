//! Fits efficiencies to the published runs, and prints the constants that `timeline` holds.

use timeline::calibration::{Comparison, fit, typical_errors};
use timeline::{Calibration, Generation};

fn main() {
    let all = Comparison::all();
    let Calibration { products, attention, network, hop, eager_passes } =
        fit(&all.iter().collect::<Vec<_>>());
    println!("products: {products:.4?},\nattention: {attention:.4?},\nnetwork: {network:.4},");
    println!("hop: {hop:.3e},\neager_passes: {eager_passes:.3},");
    for (generation, error) in Generation::ALL.into_iter().zip(typical_errors(&all)) {
        println!("{generation:?}: {error:.3?}");
    }
}

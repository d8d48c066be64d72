//! Fits efficiencies to the published runs, and prints the constants that `timeline` holds.

use timeline::calibration::{Comparison, fit, typical_errors};
use timeline::{Calibration, Generation};

fn main() {
    let all = Comparison::all();
    let Calibration { products, attention, network, hop, eager_passes } =
        fit(&all.iter().collect::<Vec<_>>());
    println!("products: {products:.3?},\nattention: {attention:.3?},\nnetwork: {network:.3},");
    println!("hop: {hop:.2e},\neager_passes: {eager_passes:.2},");
    for (generation, error) in Generation::ALL.into_iter().zip(typical_errors(&all)) {
        println!("{generation:?}: {error:.3?}");
    }
}

//! The angles of rotary position embedding, alike on every device.

/// Cosines and sines for positions from 0: per position `half` cosines, then `half` sines, of
/// `position · theta^(−pair / half)`; computed in f64 and rounded once.
pub fn turns(theta: f32, half: usize, positions: usize) -> Vec<f32> {
    let mut turns = vec![0.0; positions * 2 * half];
    fill_turns(&mut turns, theta, half);
    turns
}

/// Writes what [`turns`] returns, for as many positions as there is room.
pub(crate) fn fill_turns(turns: &mut [f32], theta: f32, half: usize) {
    for (position, turn) in turns.chunks_mut(2 * half.max(1)).enumerate() {
        for pair in 0..half {
            let angle = position as f64 * f64::from(theta).powf(-(pair as f64) / half as f64);
            (turn[half + pair], turn[pair]) = (angle.sin() as f32, angle.cos() as f32);
        }
    }
}

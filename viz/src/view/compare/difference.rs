//! The difference of two runs, in words.

use crate::player::Player;
use crate::words;
use events::Sent;

/// Returns the difference of two runs, such as `ZeRO-3 holds 71 % less than DDP now, peaked 55 %
/// lower, sends 1.50 times as much; losses are equal to the bit.`
pub(super) fn difference(
    first_name: &str,
    first: &Player,
    name: &str,
    other: &Player,
    rank: usize,
) -> String {
    let of = |player: &Player| {
        let now = player.scene().now.ranks.get(rank)?;
        Some((now.live_total() as f64, now.total_peak as f64))
    };
    let (Some(before), Some(after)) = (of(first), of(other)) else {
        return format!("{name} has no rank {rank}.");
    };
    let mut sentence = if step_of(first) == step_of(other) {
        let holds = relation(before.0, after.0, ["more than", "less than", "as much as"]);
        format!("{name} holds {holds} {first_name} now, peaked ")
    } else {
        format!("{name} is at another step than {first_name}; it peaked ")
    };
    sentence += &relation(before.1, after.1, ["higher", "lower", "as high"]);
    let (a, b) = (sent(first, rank).total() as f64, sent(other, rank).total() as f64);
    if a > 0.0 && b > 0.0 {
        sentence += &match b / a {
            ratio if (ratio - 1.0).abs() < 5e-3 => ", sends as much".into(),
            ratio => format!(", sends {ratio:.2} times as much"),
        };
    }
    sentence += match (first.steps_done().last(), other.steps_done().last()) {
        (Some(a), Some(b)) if a.step == b.step && a.loss.to_bits() == b.loss.to_bits() => {
            "; losses are equal to the bit."
        }
        (Some(a), Some(b)) if a.step == b.step => {
            return format!("{sentence}; losses differ by {:.1e}.", (a.loss - b.loss).abs());
        }
        _ => ".",
    };
    sentence
}

/// Returns the short form of the difference: `ZeRO-3 against DDP: now −55 %, peak −35 %, sent
/// ×1.50; same losses`.
pub(super) fn in_short(
    (first_name, first): (&str, &Player),
    (name, other): (&str, &Player),
    rank: usize,
) -> Option<String> {
    let (before, after) = (first.scene().now.ranks.get(rank)?, other.scene().now.ranks.get(rank)?);
    let change = |before: u64, after: u64| {
        let percent = 100.0 * (after as f64 - before as f64) / (before as f64).max(1.0);
        format!("{}{:.0} %", if percent < 0.0 { "−" } else { "+" }, percent.abs())
    };
    let now = match step_of(first) == step_of(other) {
        true => format!("now {}", change(before.live_total(), after.live_total())),
        false => "another step".into(),
    };
    let mut text =
        format!("{name} against {first_name}: {now}, peak {}", change(before.total_peak, after.total_peak));
    let (a, b) = (sent(first, rank).total() as f64, sent(other, rank).total() as f64);
    if a > 0.0 && b > 0.0 {
        text += &format!(", sent ×{:.2}", b / a);
    }
    let (a, b) = (first.steps_done().last(), other.steps_done().last());
    let (Some(a), Some(b)) = (a, b) else { return Some(text) };
    let equal = a.loss.to_bits() == b.loss.to_bits();
    let apart = || format!("; losses differ by {:.1e}", (a.loss - b.loss).abs());
    Some(match a.step == b.step {
        true if equal => text + "; same losses",
        true => text + &apart(),
        false => text,
    })
}

/// Returns a change in words, such as `71 % less than`. The words are those for more, less and
/// equal.
fn relation(before: f64, after: f64, [more, less, equal]: [&str; 3]) -> String {
    let change = (after - before) / before.max(1.0);
    match change {
        c if c.abs() < 5e-4 => equal.into(),
        c if c > 0.0 => format!("{} {more}", words::percent(c, 1.0)),
        c => format!("{} {less}", words::percent(-c, 1.0)),
    }
}

/// Returns the step that `player` shows.
pub(super) fn step_of(player: &Player) -> Option<u32> {
    player.scene().now.ranks.first().map(|rank| rank.step)
}

/// Returns what `rank` sent in the last step that is done.
pub(super) fn sent(player: &Player, rank: usize) -> Sent {
    let ranks = &player.scene().now.ranks;
    ranks.get(rank).map_or_else(Sent::default, |rank| rank.sent_last_step.clone())
}

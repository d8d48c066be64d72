//! The difference of two runs, in words.

use crate::fit::{columns, fitted};
use crate::player::Player;
use crate::words;
use events::{RankSnapshot, Sent};

/// A run and its name.
type Named<'a> = (&'a str, &'a Player);

/// Returns the difference of two runs, such as `ZeRO-3 holds 71 % less than DDP now, peaked 55 %
/// lower, sends 1.50 times as much; losses are equal to the bit.`
pub(super) fn difference((mine, first): Named<'_>, (name, other): Named<'_>, rank: usize) -> String {
    let of = |player: &Player| {
        let now = player.scene().now.ranks.get(rank)?;
        Some((now.live_total() as f64, now.total_peak as f64))
    };
    let (Some(before), Some(after)) = (of(first), of(other)) else {
        return format!("{name} has no rank {rank}.");
    };
    if let Some(sentence) = beginning((mine, first), (name, other)) {
        return sentence;
    }
    let peaked = format!("peaked {}", relation(before.1, after.1, ["higher", "lower", "as high"]));
    let sent = sent_ratio(first, other, rank).map(|ratio| {
        if (ratio - 1.0).abs() < 5e-3 {
            "sent as much".into()
        } else {
            format!("sent {ratio:.2} times as much")
        }
    });
    let sentence = if step_of(first) == step_of(other) {
        let holds = relation(before.0, after.0, ["more than", "less than", "as much as"]);
        let holds = format!("{name} now holds {holds} {mine}");
        sent.map_or(format!("{holds} and {peaked}"), |sent| format!("{holds}, {peaked} and {sent}"))
    } else {
        let elsewhere = format!("{name} is at a different step than {mine}; it {peaked}");
        sent.map_or(elsewhere.clone(), |sent| format!("{elsewhere} and {sent}"))
    };
    match loss_difference(first, other) {
        Some(0.0) => sentence + "; losses are equal to the bit.",
        Some(apart) => format!("{sentence}; losses differ by {apart:.1e}."),
        None => sentence + ".",
    }
}

/// Returns a sentence about the step with which a run begins if only the other run has begun a
/// step: memory cannot be compared yet.
fn beginning((mine, first): Named<'_>, (name, other): Named<'_>) -> Option<String> {
    let (late, name) = match (step_of(first), step_of(other)) {
        (Some(_), None) => (other, name),
        (None, Some(_)) => (first, mine),
        _ => return None,
    };
    let step = late.first_step();
    Some(step.map_or(format!("{name} has begun no step."), |step| format!("{name} begins at step {step}.")))
}

/// Returns the short form of the difference: `ZeRO-3 against DDP: now −55 %, peak −35 %, sent
/// ×1.50; same losses`. `None` before the first step of one of the runs.
pub(super) fn in_short((mine, first): Named<'_>, (name, other): Named<'_>, rank: usize) -> Option<String> {
    let (before, after) = comparable(first, other, rank)?;
    let now = if step_of(first) == step_of(other) {
        format!("now {}", change(before.live_total(), after.live_total()))
    } else {
        "another step".into()
    };
    let peak = change(before.total_peak, after.total_peak);
    let mut text = format!("{name} against {mine}: {now}, peak {peak}");
    if let Some(ratio) = sent_ratio(first, other, rank) {
        text += &format!(", sent ×{ratio:.2}");
    }
    Some(match loss_difference(first, other) {
        Some(0.0) => text + "; same losses",
        Some(apart) => format!("{text}; losses differ by {apart:.1e}"),
        None => text,
    })
}

/// Returns the shortest form of the difference, the losses first, and only what differs: `ZeRO-3:
/// same losses, now −55 %, peak −35 %, sent ×1.50`. The name is cut to fit `room` columns, and if
/// that does not suffice, the last parts are left out.
pub(super) fn in_brief(first: &Player, (name, other): Named<'_>, rank: usize, room: u16) -> Option<String> {
    const NAME: u16 = 8;
    let (before, after) = comparable(first, other, rank)?;
    let losses = loss_difference(first, other).map(|apart| match apart {
        0.0 => "same losses".into(),
        apart => format!("losses differ by {apart:.1e}"),
    });
    let changed = |what: &str, before: u64, after: u64| {
        let text = change(before, after);
        (!["+0 %", "−0 %"].contains(&text.as_str())).then(|| format!("{what} {text}"))
    };
    let now = if step_of(first) == step_of(other) {
        changed("now", before.live_total(), after.live_total())
    } else {
        Some("another step".into())
    };
    let peak = changed("peak", before.total_peak, after.total_peak);
    let ratio = sent_ratio(first, other, rank).filter(|ratio| (ratio - 1.0).abs() >= 5e-3);
    let sent = ratio.map(|ratio| format!("sent ×{ratio:.2}"));
    let mut parts: Vec<String> = [losses, now, peak, sent].into_iter().flatten().collect();
    while parts.len() > 1 && columns(&parts.join(", ")) + 2 + columns(name).min(NAME) > room {
        parts.pop();
    }
    let rest = if parts.is_empty() { "no difference".into() } else { parts.join(", ") };
    let name = fitted(name, room.saturating_sub(columns(&rest) + 2).max(1));
    Some(format!("{name}: {rest}"))
}

/// Returns the state of `rank` in both runs; `None` if one of them lacks the rank, or if only one
/// has begun a step.
fn comparable<'a>(
    first: &'a Player,
    other: &'a Player,
    rank: usize,
) -> Option<(&'a RankSnapshot, &'a RankSnapshot)> {
    let of = |player: &'a Player| player.scene().now.ranks.get(rank);
    (step_of(first).is_some() == step_of(other).is_some()).then_some((of(first)?, of(other)?))
}

/// Returns a change of bytes: `−55 %`.
fn change(before: u64, after: u64) -> String {
    let percent = 100.0 * (after as f64 - before as f64) / (before as f64).max(1.0);
    format!("{}{:.0} %", if percent < 0.0 { "−" } else { "+" }, percent.abs())
}

/// Returns the ratio of the bytes sent in the last step, `other` to `first`; `None` if either sent
/// nothing, or still sends.
fn sent_ratio(first: &Player, other: &Player, rank: usize) -> Option<f64> {
    let total = |player| sent(player, rank).map(|sent| sent.total() as f64);
    let (before, after) = (total(first)?, total(other)?);
    (before > 0.0 && after > 0.0).then_some(after / before)
}

/// Returns the difference of two runs' losses of the same step: 0 if they are equal to the bit;
/// `None` if a run is predicted.
fn loss_difference(first: &Player, other: &Player) -> Option<f64> {
    let (a, b) = (first.steps_done().last()?, other.steps_done().last()?);
    if [first, other].iter().any(|player| player.scene().header.is_predicted()) {
        return None;
    }
    let equal = a.loss.to_bits() == b.loss.to_bits();
    (a.step == b.step).then_some(if equal { 0.0 } else { (a.loss - b.loss).abs() })
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

/// Returns the latest step that rank 0 has begun.
pub(super) fn step_of(player: &Player) -> Option<u32> {
    let rank = player.scene().now.ranks.first().filter(|rank| rank.step_started > 0);
    rank.map(|rank| rank.step)
}

/// Returns the bytes that `rank` sent in the last finished step; `None` while it still sends for
/// it.
pub(super) fn sent(player: &Player, rank: usize) -> Option<&Sent> {
    let rank = player.scene().now.ranks.get(rank)?;
    (!rank.still_sends_for_last_step()).then_some(&rank.sent_last_step)
}

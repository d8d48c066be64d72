//! A run with its evidence, and the verdicts on a reader's answers.

use super::case::{Case, RANKS, STEPS};
use super::evidence::Evidence;
use super::finding::{Finding, HINTS, find};
use super::tables;
use crate::learn::pages::letter;
use crate::learn::progress::Progress;
use crate::learn::terminal::{Typed, ask, tell};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use settings::fault::{Fault, Kind};
use std::io::BufRead;
use std::path::{Path, PathBuf};
use trainer::{Failure, Result};

/// Answers given as flags.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct Given {
    /// Answer without being asked: what is wrong
    #[arg(long, value_name = "KIND", value_parser = kinds(), requires = "lab")]
    pub what: Option<Kind>,
    /// Answer without being asked: on which rank
    #[arg(long, value_name = "R", requires = "lab")]
    pub rank: Option<usize>,
    /// Answer without being asked: from which step on
    #[arg(long, value_name = "S", requires = "lab")]
    pub step: Option<u32>,
}

fn kinds() -> impl TypedValueParser<Value = Kind> {
    let word = |kind: &Kind| Some(kind.to_possible_value()?.help(None::<&str>));
    PossibleValuesParser::new(Kind::SILENT.iter().filter_map(word))
        .try_map(|word| Kind::from_str(&word, false))
}

impl Given {
    pub(crate) fn any(&self) -> bool {
        self.what.is_some() || self.rank.is_some() || self.step.is_some()
    }
}

/// A case with its evidence.
pub struct Patient {
    case: Case,
    /// The run with the fault.
    pub ill: Evidence,
    /// The run without the fault.
    pub healthy: Evidence,
    finding: Finding,
    recordings: [PathBuf; 2],
    hinted: usize,
}

/// An answer to one of the three questions. The correct answer also identifies the question.
#[derive(Clone, Copy)]
enum Answer {
    What(Kind),
    Rank(usize),
    Step(u32),
}

/// Maximum number of runs of a case. On a busy machine, a fault that shows only in times may be
/// hidden.
const TRIES: usize = 4;

impl Patient {
    /// Runs the case with and without its fault, and records both in `folder`.
    ///
    /// # Errors
    /// If a run cannot start, the healthy run fails, or the evidence does not show the fault.
    pub fn examine(case: Case, folder: &Path) -> Result<Self> {
        let fail =
            |e: std::io::Error| Failure::run(format!("cannot write to --out {}: {e}", folder.display()));
        std::fs::create_dir_all(folder).map_err(fail)?;
        let recordings = ["", "-healthy"].map(|which| folder.join(format!("{}{which}.zero", case.name)));
        let Fault { kind, rank, step, .. } = case.fault;
        let finding = Finding { kind, rank, step };
        for _ in 0..TRIES {
            let ill = Evidence::of(case.stage, &[case.fault], &recordings[0])?;
            let healthy = Evidence::of(case.stage, &[], &recordings[1])?;
            if let Err(failure) = healthy.outcome {
                return Err(Failure::run(failure));
            }
            if find(&ill, &healthy) == Some(finding) {
                return Ok(Patient { finding, case, ill, healthy, recordings, hinted: 0 });
            }
        }
        Err(Failure::run(format!(
            "this machine is busy: in {TRIES} runs the times did not show the fault of {}; try again when less else runs",
            case.name
        )))
    }

    /// Returns the text that the reader sees first.
    pub fn sight(&self) -> String {
        let Case { name, complaint, stage, .. } = &self.case;
        let [ill, healthy] = self.recordings.each_ref().map(|file| file.display());
        format!(
            "{name}: {stage}, {RANKS} ranks, {STEPS} steps. {complaint}\n\n{}\n\n\
             In the visualizer (4, streams: which ranks work, and which rank waits for which):\n\
             cargo run -p viz -- replay {ill} --view streams\n\
             Beside the healthy run (each rank's own part; page down: the next step):\n\
             cargo run -p viz -- compare {healthy} {ill}",
            tables::all(&self.ill, &self.healthy)
        )
    }

    /// Judges answers given as flags.
    ///
    /// # Errors
    /// If an answer is wrong.
    pub fn judge(&self, given: &Given, progress: &mut Progress) -> Result<()> {
        let Given { what, rank, step } = *given;
        let answers = [what.map(Answer::What), rank.map(Answer::Rank), step.map(Answer::Step)];
        let verdicts: Vec<_> = answers.into_iter().flatten().map(|answer| self.verdict(answer)).collect();
        events::say!();
        verdicts.iter().for_each(say);
        match verdicts.iter().all(std::result::Result::is_ok) {
            true if verdicts.len() == 3 => {
                self.reveal("solved");
                progress.diagnosed(&self.case.name)
            }
            true => Ok(()),
            false if self.hinted < HINTS => {
                Err(Failure::run(format!("not solved yet. A hint: --hints {}", self.hinted + 1)))
            }
            false => {
                Err(Failure::run("not solved yet. Without your answers as flags, Enter shows the right ones"))
            }
        }
    }

    /// Asks until every answer is correct or shown, or the reader leaves.
    ///
    /// # Errors
    /// If the terminal or the progress fails.
    pub fn ask(&mut self, input: &mut dyn BufRead, progress: &mut Progress) -> Result<()> {
        events::say!("\nEnter shows the answer, h gives a hint, q leaves.");
        let mut solved = true;
        let Finding { kind, rank, step } = self.finding;
        for right in [Answer::What(kind), Answer::Rank(rank), Answer::Step(step)] {
            match self.question(right, input)? {
                Some(right) => solved &= right,
                None => return Ok(()),
            }
        }
        self.reveal(if solved { "solved" } else { "not solved" });
        if solved { progress.diagnosed(&self.case.name) } else { Ok(()) }
    }

    /// Names the fault, once all questions are answered.
    fn reveal(&self, how: &str) {
        let Case { name, stage, fault, .. } = &self.case;
        events::say!("\n{name} is {how}. To run it again:");
        events::say!("cargo run -p {} -- {} --inject {fault}", stage.package(), Case::flags());
    }

    /// Asks until the question is answered (true) or skipped (false). `None` if the reader leaves.
    fn question(&mut self, right: Answer, input: &mut dyn BufRead) -> Result<Option<bool>> {
        events::say!("\n{}", right.asked());
        loop {
            match ask(input, "   answer:")? {
                Typed::Leave => return Ok(None),
                Typed::Skip => {
                    let (Ok(shown) | Err(shown)) = self.verdict(right);
                    tell(&format!("{}: {shown}", right.words()));
                    return Ok(Some(false));
                }
                Typed::Answer(text) if ["h", "hint"].contains(&text.as_str()) => self.hint(),
                Typed::Answer(text) => match right.read(&text).map(|answer| self.verdict(answer)) {
                    None => events::say!("   {text:?} does not answer that question"),
                    Some(verdict) => {
                        say(&verdict);
                        if verdict.is_ok() {
                            return Ok(Some(true));
                        }
                    }
                },
            }
        }
    }

    pub(crate) fn hint(&mut self) {
        match self.finding.hints().get(self.hinted) {
            Some(hint) => tell(&format!("hint: {hint}")),
            None => tell("no more hints; Enter shows the answer"),
        }
        self.hinted += 1;
    }

    /// Judges an answer.
    fn verdict(&self, answer: Answer) -> Verdict {
        let found = &self.finding;
        match answer {
            Answer::What(kind) if kind == found.kind => Ok(found.shows_what()),
            Answer::What(kind) => Err(found.refutes(kind).into()),
            Answer::Rank(rank) if rank == found.rank => Ok(found.shows_rank()),
            Answer::Rank(rank) if rank < RANKS => Err(format!("the fault did not begin on rank {rank}")),
            Answer::Rank(rank) => Err(format!("there is no rank {rank}")),
            Answer::Step(step) if step == found.step => Ok(found.shows_step()),
            Answer::Step(step) if step > found.step => Err(format!("it began before step {step}")),
            Answer::Step(step) => Err(format!("in step {step} nothing is wrong yet")),
        }
    }
}

impl Answer {
    /// Returns the question that this answers.
    fn asked(self) -> String {
        match self {
            Answer::What(_) => {
                let options = Kind::SILENT.into_iter().enumerate();
                let lines: Vec<String> =
                    options.map(|(at, kind)| format!("   {}) {}", letter(at), words(kind))).collect();
                format!("What is wrong?\n{}", lines.join("\n"))
            }
            Answer::Rank(_) => "On which rank?".into(),
            Answer::Step(_) => "From which step on?".into(),
        }
    }

    fn words(self) -> String {
        match self {
            Answer::What(kind) => words(kind).into(),
            Answer::Rank(rank) => format!("rank {rank}"),
            Answer::Step(step) => format!("step {step}"),
        }
    }

    /// Parses an answer to the same question. `None` if `text` is not one.
    fn read(self, text: &str) -> Option<Answer> {
        let text = text.to_lowercase();
        let number = |word: &str| text.trim_start_matches(word).trim().parse().ok();
        match self {
            Answer::What(_) => kind(&text).map(Answer::What),
            Answer::Rank(_) => number("rank").map(|rank: u32| Answer::Rank(rank as usize)),
            Answer::Step(_) => number("step").map(Answer::Step),
        }
    }
}

/// The evidence for an answer, or against it.
type Verdict = std::result::Result<String, String>;

fn say(verdict: &Verdict) {
    match verdict {
        Ok(shown) => tell(&format!("right: {shown}")),
        Err(against) => tell(&format!("no: {against}")),
    }
}

fn words(kind: Kind) -> &'static str {
    match kind {
        Kind::Stale => "a rank computes with old parameters, which other ranks have updated",
        Kind::Divisor => "a rank divides its loss by a wrong number of tokens",
        Kind::Data => "a rank reads samples that are not its own",
        Kind::Drop => "a rank's gradients are missing from the sum",
        Kind::Slow => "a rank takes longer to compute",
        Kind::Seed => "a rank started from different weights",
        _ => "a rank's gradients are not numbers",
    }
}

/// Returns the kind for a letter or a word of `--what`.
fn kind(text: &str) -> Option<Kind> {
    let text = text.trim_end_matches(')');
    let mut options = Kind::SILENT.into_iter().enumerate();
    options.find(|(at, kind)| text == letter(*at).to_string() || text == kind.name()).map(|(_, kind)| kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_with_and_without_their_word_in_any_case() {
        for text in ["1", "rank 1", "Rank 1", "RANK 1"] {
            assert!(matches!(Answer::Rank(0).read(text), Some(Answer::Rank(1))), "{text}");
        }
        for text in ["3", "step 3", "Step 3"] {
            assert!(matches!(Answer::Step(0).read(text), Some(Answer::Step(3))), "{text}");
        }
        assert!(matches!(Answer::What(Kind::Drop).read("Data"), Some(Answer::What(Kind::Data))));
        assert!(Answer::Rank(0).read("step 1").is_none());
    }
}

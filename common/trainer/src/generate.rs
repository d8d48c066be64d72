//! Sampling text from saved weights.

use crate::hooks::Hooks;
use crate::passes::Passes;
use crate::source::PretrainedWeights;
use crate::stage::{Setup, Stage, StageFactory};
use checkpoint::Reader;
use collectives::local::{Options, groups};
use device::{Device, Ledger, Place};
use events::{Emitter, say};
use model::{Batch, Keep, Model, Wrap};
use offload::Transfers;
use prediction::Strategy;
use settings::cli::GenerateArgs;
use settings::corpus::SplitMix;
use settings::machine::{self, MainMemory, SwapSpace, cores};
use settings::size::human;
use settings::{Communication, Failure, GradSync, Result};
use sharding::{Mesh, OffloadPlacement, Partition, Precision, Rank, Schedule};
use std::rc::Rc;
use std::sync::Arc;
use text::{Tokenizer, bytes::VOCABULARY};

/// Generates texts as [`generate`] does and prints them, the first one as it grows.
///
/// # Errors
/// As [`generate`].
pub(crate) fn print_texts(stage: StageFactory, args: &GenerateArgs) -> Result<()> {
    let mut has_begun = false;
    let outcome = generate(stage, args, |part| {
        has_begun = true;
        say::foreign(part)
    });
    // The line ends, even if an error cuts the text off.
    if has_begun {
        events::say!();
    }
    for text in outcome?.iter().skip(1) {
        say::foreign(&format!("{text}\n"));
    }
    Ok(())
}

/// Continues `args.prompt` with `stage`, once per sample, up to the token that ends a text. Hands
/// the first text to `on_part`, part by part as it grows, and ends once that returns false.
///
/// # Errors
/// If the weights cannot be read, or the prompt cannot be turned into tokens of their model.
pub fn generate(
    stage: StageFactory,
    args: &GenerateArgs,
    on_part: impl FnMut(&str) -> bool,
) -> Result<Vec<String>> {
    let reader = Reader::open(&args.from).map_err(Failure::usage)?;
    let config = reader.config().map_err(Failure::usage)?;
    let model = Model::new(config).map_err(Failure::usage)?;
    let tokenizer = tokenizer(args, &model)?;
    let mut prompt = tokenizer.encode(&args.prompt)?;
    if prompt.is_empty() {
        let nothing = "--prompt is empty, and the tokenizer names no token that ends a text: give a prompt";
        prompt.push(tokenizer.end().ok_or_else(|| Failure::usage(nothing))?);
    }
    check_prompt(&prompt, &model)?;
    check_window(args, prompt.len(), &model)?;
    let warnings = reader.check(&model.layout).and_then(|()| reader.warnings(&model.config, &model.layout));
    let warnings = warnings.map_err(Failure::usage)?;
    warnings.iter().for_each(|warning| events::complain!("warning: {warning}"));
    let given = prompt.len();
    check_memory((args.samples, given + args.tokens), &model, machine::memory(SwapSpace::Included))?;
    let mut sequences = vec![prompt; args.samples];
    let mut sampler = Sampler::new(stage, args, reader, model)?;
    let end = |tokens: &Vec<u32>| {
        let stop = tokenizer.stop()?;
        Some(given + tokens[given..].iter().position(|&token| token == stop)?)
    };
    let text = |tokens: &Vec<u32>| tokenizer.decode(&tokens[..end(tokens).unwrap_or(tokens.len())]);
    let mut growing = GrowingText { shown: String::new(), on_part };
    for _ in 0..args.tokens {
        sampler.extend(&mut sequences)?;
        let goes_on = match end(&sequences[0]) {
            None => growing.show(&text(&sequences[0])?),
            Some(_) => sequences.iter().any(|tokens| end(tokens).is_none()),
        };
        if !goes_on {
            break;
        }
    }
    let texts = sequences.iter().map(text).collect::<text::Result<Vec<_>>>()?;
    growing.finish(&texts[0]);
    Ok(texts)
}

/// A text that is shown part by part.
struct GrowingText<F> {
    /// The parts shown so far.
    shown: String,
    on_part: F,
}

impl<F: FnMut(&str) -> bool> GrowingText<F> {
    /// Shows what is new in `text`, without an end that the next token may change: bytes of a
    /// character that is not complete. Returns false once `on_part` does.
    fn show(&mut self, text: &str) -> bool {
        let certain = text.trim_end_matches(char::REPLACEMENT_CHARACTER);
        match certain.strip_prefix(self.shown.as_str()) {
            Some(new) if !new.is_empty() => {
                self.shown.push_str(new);
                (self.on_part)(new)
            }
            _ => true,
        }
    }

    /// Shows the rest of the complete `text`; all of it, on a new line, if later tokens have
    /// changed what was shown.
    fn finish(&mut self, text: &str) {
        match text.strip_prefix(self.shown.as_str()) {
            Some(rest) => (self.on_part)(rest),
            None => (self.on_part)(&format!("\n{text}")),
        };
    }
}

/// Returns the tokenizer that is asked for, or else the model's own. Without one, tokens are
/// interpreted as bytes.
fn tokenizer(args: &GenerateArgs, model: &Model) -> Result<Tokenizer> {
    let own = (model.config.vocabulary != VOCABULARY).then(|| args.from.join("tokenizer.json"));
    let found = args.tokenizer.as_ref().or(own.as_ref().filter(|path| path.exists()));
    if let (None, Some(missing)) = (found, &own) {
        events::complain!("warning: there is no {}: tokens are taken for bytes", missing.display());
    }
    Ok(Tokenizer::open(found.map(|path| path.as_path()))?)
}

/// Refuses tokens that the model does not have.
fn check_prompt(prompt: &[u32], model: &Model) -> Result<()> {
    let vocabulary = model.config.vocabulary;
    match prompt.iter().find(|&&token| token as usize >= vocabulary) {
        None => Ok(()),
        Some(token) => Err(Failure::usage(format!(
            "the tokenizer yields token {token}, but the model's vocabulary has {vocabulary} tokens: check --tokenizer"
        ))),
    }
}

/// Refuses a text that is longer than the window of attention, as training does. The last token is
/// never fed back to the model, so it does not count.
fn check_window(args: &GenerateArgs, prompt: usize, model: &Model) -> Result<()> {
    let (Some(window), 1..) = (model.config.window, args.tokens) else { return Ok(()) };
    let length = prompt + args.tokens - 1;
    if length <= window {
        return Ok(());
    }
    let remedy = match (window + 1).checked_sub(prompt) {
        Some(most @ 1..) => format!("Ask for at most {most} after this prompt (--tokens {most})."),
        _ => format!("Give a prompt of at most {window} tokens."),
    };
    Err(Failure::usage(format!(
        "--tokens {}: the last one would follow {length} tokens, but each token of the model in {} attends to the last \
         {window} only (`sliding_window`), and this program does not mask earlier ones\n{remedy}",
        args.tokens,
        args.from.display(),
    )))
}

/// Refuses to generate `texts` texts of at most `longest` tokens if `memory` is too small for the
/// weights, the hidden states of all texts, the logits of their last tokens (all in f32), and the
/// texts.
fn check_memory((texts, longest): (usize, usize), model: &Model, memory: Option<MainMemory>) -> Result<()> {
    let (texts, longest) = (texts as u64, longest as u64);
    let window = longest.min(model.config.max_positions as u64);
    let elements = (window * model.config.width as u64).saturating_add(model.config.vocabulary as u64);
    let each = elements.saturating_add(longest).saturating_mul(size_of::<f32>() as u64);
    let weights = model.layout.parameters() * size_of::<f32>() as u64;
    let needed = weights.saturating_add(each.saturating_mul(texts));
    match memory.filter(|memory| memory.bytes < needed) {
        None => Ok(()),
        Some(memory) => Err(Failure::run(format!(
            "generating needs at least {} of main memory, but only {} are available: {} for the weights in f32, \
             {} for each of {texts} texts\n\
             Ask for fewer or shorter texts (--samples, --tokens), or use a machine with more memory.",
            human(needed),
            human(memory.bytes),
            human(weights),
            human(each),
        ))),
    }
}

/// A stage of one rank that only computes forward.
struct Sampler {
    stage: Box<dyn Stage>,
    passes: Passes,
    window: usize,
    vocabulary: usize,
    temperature: f64,
    random: SplitMix,
}

impl Sampler {
    fn new(stage: StageFactory, args: &GenerateArgs, reader: Reader, model: Model) -> Result<Self> {
        let ledger = Ledger::new(Emitter::silent(0), None);
        let device = Device::cpu(ledger, args.threads.unwrap_or_else(cores));
        let group = groups(1, Options::default()).remove(0);
        let emitter = Emitter::silent(0);
        let transfers = Transfers::new(device.clone(), emitter.clone(), offload::Options::default());
        let transfers = transfers.map_err(Failure::run)?;
        let rank = Rc::new(Rank { device, mesh: Mesh::default(), group, transfers, emitter });
        let partition = Arc::new(Partition::new(&model.layout, Wrap::default(), 1));
        let schedule = Arc::new(Schedule::new(&model.layout, &partition));
        let model = Arc::new(model);
        let setup = Setup {
            rank: rank.clone(),
            partition,
            schedule,
            source: Arc::new(PretrainedWeights { reader: Arc::new(reader), layout: model.layout.clone() }),
            moments: None,
            communication: Communication::default(),
            grad_sync: GradSync::default(),
            strategy: Strategy::default(),
            precision: Precision::FP32,
            micro_batches: 1,
            placement: OffloadPlacement::DEVICE,
        };
        let batch = Batch { batch: args.samples, tokens: 1 };
        let hooks = Rc::new(Hooks::none(rank));
        let passes = Passes::new(hooks, model.clone(), &setup, batch, (Keep::Nothing, Place::Device));
        Ok(Sampler {
            stage: (stage.new)(setup).map_err(Failure::run)?,
            passes: passes.map_err(Failure::run)?,
            window: model.config.max_positions,
            vocabulary: model.config.vocabulary,
            temperature: args.temperature,
            random: SplitMix(args.seed),
        })
    }

    /// Appends one token to every sequence; all are equally long.
    fn extend(&mut self, sequences: &mut [Vec<u32>]) -> Result<()> {
        let start = sequences[0].len().saturating_sub(self.window);
        let inputs: Vec<u32> = sequences.iter().flat_map(|tokens| tokens[start..].iter().copied()).collect();
        let batch = Batch { batch: sequences.len(), tokens: sequences[0].len() - start };
        let logits = self.passes.next_logits(&mut *self.stage, &inputs, batch).map_err(Failure::run)?;
        for (tokens, logits) in sequences.iter_mut().zip(logits.chunks_exact(self.vocabulary)) {
            tokens.push(pick(logits, self.temperature, self.random.unit()));
        }
        Ok(())
    }
}

/// Draws from softmax(logits / temperature) with `uniform` in [0, 1); temperature 0 takes the
/// largest.
fn pick(logits: &[f32], temperature: f64, uniform: f64) -> u32 {
    let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    if temperature == 0.0 {
        return logits.iter().position(|&logit| logit == largest).unwrap_or(0) as u32;
    }
    let weights: Vec<f64> = logits.iter().map(|&l| libm::exp(f64::from(l - largest) / temperature)).collect();
    let mut left = uniform * weights.iter().sum::<f64>();
    for (token, weight) in weights.iter().enumerate() {
        left -= weight;
        if left < 0.0 {
            return token as u32;
        }
    }
    weights.len() as u32 - 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::ModelConfig;

    #[test]
    fn weights_and_texts_that_do_not_fit_are_refused() {
        let model = Model::new(ModelConfig::tiny()).unwrap();
        let check = |texts, bytes| check_memory((texts, 10), &model, Some(MainMemory { bytes, limit: None }));
        let weights = 4 * model.layout.parameters();
        let text = 4 * (10 * model.config.width + model.config.vocabulary + 10) as u64;
        check(3, weights + 3 * text).unwrap();
        let refused = check(3, weights + 3 * text - 1).unwrap_err();
        assert!(refused.to_string().contains("--samples"), "{refused}");
        check(900_000_000, 1 << 40).unwrap_err();
    }

    #[test]
    fn a_text_is_shown_once_its_characters_are_complete() {
        let mut parts = Vec::new();
        let mut growing = GrowingText {
            shown: String::new(),
            on_part: |part: &str| {
                parts.push(part.to_string());
                parts.len() < 3
            },
        };
        let heard = ["a", "a\u{fffd}", "aé", "aéz"].map(|text| growing.show(text));
        growing.finish("aéz\u{fffd}");
        growing.finish("other");
        assert_eq!(heard, [true, true, true, false]);
        assert_eq!(parts, ["a", "é", "z", "\u{fffd}", "\nother"]);
    }

    #[test]
    fn picking_follows_the_softmax() {
        let logits = [0.0, (3.0f32).ln(), f32::NEG_INFINITY];
        assert_eq!(pick(&logits, 0.0, 0.9), 1);
        assert_eq!(pick(&logits, 1.0, 0.2), 0);
        assert_eq!(pick(&logits, 1.0, 0.3), 1);
        assert_eq!(pick(&logits, 1.0, 0.999_999), 1);
        // Weights 1 and 9 at half the temperature, 1 and √3 at twice: the first has 0.1, and 0.366.
        assert_eq!([0.09, 0.11].map(|uniform| pick(&logits, 0.5, uniform)), [0, 1]);
        assert_eq!([0.36, 0.37].map(|uniform| pick(&logits, 2.0, uniform)), [0, 1]);
    }
}

//! Runs PyTorch in a process of its own, one round at a time.

use crate::{Arguments, WARMUP};
use serde_json::{Value, json};
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

/// The program that the process runs. It is passed on the command line: standard input carries the
/// commands, and a file could be left behind.
const PROGRAM: &str = include_str!("peer.py");

/// The PyTorch process, as long as it answers. If it stops answering, the other measurements
/// continue.
pub(crate) struct Opponent {
    peer: Option<Peer>,
    /// The reason why it is no longer used.
    pub(crate) lost: Option<String>,
}

impl Opponent {
    /// Starts PyTorch, unless the arguments exclude it.
    pub(crate) fn start(arguments: &Arguments) -> Self {
        let mut opponent = Opponent { peer: None, lost: None };
        if !arguments.no_peer {
            opponent.peer = opponent.noted(Peer::start(arguments));
        }
        opponent
    }

    /// Returns PyTorch's answer. `None` if it does not run, or no longer.
    pub(crate) fn ask<T>(&mut self, what: impl FnOnce(&mut Peer) -> Result<T, String>) -> Option<T> {
        let answer = what(self.peer.as_mut()?);
        self.noted(answer)
    }

    fn noted<T>(&mut self, answer: Result<T, String>) -> Option<T> {
        answer
            .map_err(|reason| {
                events::say!("PyTorch is left out from here on: {reason}\n");
                (self.peer, self.lost) = (None, Some(reason));
            })
            .ok()
    }
}

/// The process. While others take their turns it keeps its model states in place and frees
/// everything else.
pub(crate) struct Peer {
    /// Framework and strategy, named as in the table.
    pub(crate) name: String,
    process: Child,
    commands: ChildStdin,
    answers: Receiver<io::Result<Value>>,
    timeout: Duration,
}

impl Peer {
    /// Starts the process and waits until it has built its model.
    pub(crate) fn start(arguments: &Arguments) -> Result<Self, String> {
        let shapes = shapes(arguments)?.to_string();
        let spawned = Command::new(&arguments.python)
            .args(["-c", PROGRAM, "--shapes", &shapes, "--precision", &arguments.precision])
            .args(["--seq-len", &arguments.seq_len.to_string()])
            .args(arguments.peer_with.split_whitespace())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let mut process = spawned.map_err(|error| {
            format!(
                "--python {}: {error}; name the Python that has PyTorch, or give --no-peer",
                arguments.python
            )
        })?;
        let (Some(commands), Some(answers)) = (process.stdin.take(), process.stdout.take()) else {
            return Err("PyTorch's process has no pipes".into());
        };
        let timeout = Duration::from_secs(arguments.peer_timeout);
        let mut peer = Peer { name: String::new(), process, commands, answers: objects(answers), timeout };
        let hello = peer.answer()?;
        events::say!(
            "PyTorch {} on {}, {} parameters: {} over one rank, {}.\n",
            word(&hello["torch"]),
            word(&hello["device"]),
            hello["parameters"],
            word(&hello["by"]),
            word(&hello["how"]),
        );
        peer.name = word(&hello["by"]).to_string();
        Ok(peer)
    }

    /// Returns the tokens per second over `steps` steps. `None` if it runs out of memory.
    pub(crate) fn train(&mut self, micro_batch: usize, steps: u32) -> Result<Option<f64>, String> {
        // Compilation happens in the first steps. The sweep has completed it before the timed
        // rounds.
        let told = writeln!(self.commands, "{micro_batch} {} {steps}", 2 * WARMUP);
        told.map_err(|error| format!("PyTorch's process has ended: {error}"))?;
        let answer = self.answer()?;
        if answer["out_of_memory"] == true {
            Ok(None)
        } else {
            Ok(Some(answer["tokens_per_second"].as_f64().ok_or("PyTorch gave no speed")?))
        }
    }

    /// Returns the next answer.
    fn answer(&mut self) -> Result<Value, String> {
        match self.answers.recv_timeout(self.timeout) {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(format!("PyTorch's process cannot be read: {error}")),
            Err(RecvTimeoutError::Disconnected) => {
                Err("PyTorch's process has ended; what it said is above. --no-peer leaves it out".into())
            }
            Err(RecvTimeoutError::Timeout) => Err(format!(
                "PyTorch has said nothing for {} s; --peer-timeout waits longer, --no-peer leaves it out",
                self.timeout.as_secs()
            )),
        }
    }
}

/// Returns the lines of `answers` that are JSON objects, until the stream ends. Libraries may print
/// lines of their own.
fn objects(answers: ChildStdout) -> Receiver<io::Result<Value>> {
    let (told, objects) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(answers).split(b'\n') {
            let answer = match line.map(|line| serde_json::from_slice(&line)) {
                Ok(Ok(answer @ Value::Object(_))) => Ok(answer),
                Ok(_) => continue,
                Err(error) => Err(error),
            };
            if told.send(answer).is_err() {
                return;
            }
        }
    });
    objects
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn word(value: &Value) -> &str {
    value.as_str().unwrap_or("?")
}

/// Returns the model's shapes, as in the presets.
fn shapes(arguments: &Arguments) -> Result<Value, String> {
    let config = arguments.run(1, 1).map_err(|failure| failure.to_string())?;
    let model = config.model;
    Ok(json!({
        "vocabulary": model.vocabulary, "width": model.width, "layers": model.layers, "heads": model.heads,
        "kv_heads": model.kv_heads, "head_dim": model.head_dim, "feed_forward": model.feed_forward,
        "norm_eps": model.norm_eps, "rope_theta": model.rope_theta, "tied": model.tied,
    }))
}

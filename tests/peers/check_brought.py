"""Makes a small model of each family in Transformers, trains it here, and compares what was saved with what was made.

    python tests/peers/check_brought.py PROGRAM

PROGRAM is that of any stage, such as target/debug/zero3. Each model, in float32, bfloat16 and float16, is trained in a run of two
sessions, the second of which resumes without its weights, and exported from the last checkpoint. Prints a line per save. Exits with 1
if a save has another configuration, another `generation_config.json`, other tokens or another element type than the model, if
Transformers misses a tensor or finds one too many, or if its loss differs by more than 1e-5 from the one that PROGRAM has.

Needs: torch, transformers (5), tokenizers.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from recipe import Recipe, mean_loss
from tokenizers import Tokenizer, models
from transformers import (
    AutoConfig, AutoModelForCausalLM, AutoTokenizer, GenerationConfig, LlamaConfig, MistralConfig, PreTrainedTokenizerFast, Qwen2Config,
    Qwen3Config,
)
from transformers.utils import logging

TOLERANCE = 1e-5
TEXT = Path(__file__).parent.parent / "fixtures/curve/text.txt"

IDS = dict(bos_token_id=1, eos_token_id=[2, 7], pad_token_id=0)
SIZES = dict(vocab_size=256, hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
             max_position_embeddings=64, initializer_range=0.041666666666666664, **IDS)
SCALED = dict(rope_type="llama3", rope_theta=5e5, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=32)
# Heads that do not divide the width, and windows on some layers only.
MODELS = {
    "llama": LlamaConfig(rope_parameters=SCALED, **SIZES),
    "llama-tied": LlamaConfig(tie_word_embeddings=True, **SIZES),
    "qwen2": Qwen2Config(use_sliding_window=True, sliding_window=40, max_window_layers=2, **SIZES),
    "qwen3": Qwen3Config(**SIZES | dict(hidden_size=34), head_dim=14, use_sliding_window=True, sliding_window=40,
                         layer_types=["sliding_attention", "full_attention", "sliding_attention"]),
    "mistral": MistralConfig(**SIZES | dict(hidden_size=34), head_dim=8, sliding_window=40),
}


def main():
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    program, good = sys.argv[1], True
    with tempfile.TemporaryDirectory() as parent:
        for name, config in MODELS.items():
            for dtype in (torch.float32, torch.bfloat16, torch.float16):
                brought = make(Path(parent) / f"{name}-{dtype}".replace("torch.", ""), config, dtype)
                for save in train(program, brought):
                    problems = compare(program, brought, save)
                    good = good and not problems
                    print(f"{save.name}: {'; '.join(problems) or 'the same'}")
    sys.exit(0 if good else 1)


def make(directory, config, dtype):
    """Saves a random model with settings of generation, a tokenizer and a chat template."""
    torch.manual_seed(3)
    model = AutoModelForCausalLM.from_config(config).to(dtype)
    model.generation_config = GenerationConfig(temperature=0.6, top_p=0.95, do_sample=True, max_new_tokens=33, **IDS)
    model.save_pretrained(directory)
    symbols = [chr(0x100 + byte) for byte in range(256)]
    tokens = Tokenizer(models.BPE(vocab={symbol: byte for byte, symbol in enumerate(symbols)}, merges=[]))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=tokens, bos_token=symbols[1], eos_token=symbols[2], pad_token=symbols[0])
    tokenizer.chat_template = "{% for message in messages %}{{ message.content }}{% endfor %}"
    tokenizer.save_pretrained(directory)
    return directory


def train(program, brought):
    """The directories of two sessions and of an export."""
    first, second, exported, kept = (brought.with_name(f"{brought.name}.{end}") for end in ("first", "second", "export", "kept"))
    flags = ["--gpus", 2, "--batch-size", 1, "--seq-len", 16, "--lr", 1e-3, "--checkpoint", kept]
    run(program, *flags, "--steps", 2, "--init-from", brought, "--save", first)
    resumed = ["--model", brought / "config.json", "--resume-with", "steps"]
    run(program, *flags, *resumed, "--steps", 4, "--save", second)
    run(program, "export", "--from", kept, "--to", exported)
    return first, second, exported


def run(program, *arguments):
    subprocess.run([program, *map(str, arguments)], check=True, stdout=subprocess.DEVNULL)


def compare(program, brought, save):
    """What differs, in words."""
    first, second = (json.loads((directory / "config.json").read_text()) for directory in (brought, save))
    problems = [f"config.json has {key}: {second.get(key)} and not {first.get(key)}"
                for key in sorted(first.keys() | second.keys()) if first.get(key, "none") != second.get(key, "none")]
    model, found = AutoModelForCausalLM.from_pretrained(save, output_loading_info=True)
    original = AutoModelForCausalLM.from_pretrained(brought)
    alike = {
        "configuration": lambda directory: AutoConfig.from_pretrained(directory).to_diff_dict(),
        "generation": lambda directory: GenerationConfig.from_pretrained(directory).to_dict(),
        "tokens": lambda directory: tokens(AutoTokenizer.from_pretrained(directory)),
    }
    problems += [f"another {what}" for what, read in alike.items() if read(brought) != read(save)]
    problems += [f"{what}: {sorted(map(str, names))}" for what, names in found.items() if names]
    if {weight.dtype for weight in model.parameters()} != {original.dtype}:
        problems.append(f"weights of another type than {original.dtype}")
    if all(torch.equal(one, other) for one, other in zip(model.parameters(), original.parameters())):
        problems.append("weights that were not trained")
    apart = abs(their_loss(save) - our_loss(program, save))
    return problems + ([f"a loss {apart} away"] if not apart <= TOLERANCE else [])


def tokens(tokenizer):
    return tokenizer.get_vocab(), tokenizer.special_tokens_map, tokenizer.chat_template


def their_loss(save):
    model = AutoModelForCausalLM.from_pretrained(save, dtype=torch.float32).eval()
    inputs, targets = next(Recipe(world_size=1, micro_batch=4).micro_batches(TEXT.read_bytes(), step=0, accumulation=1))
    with torch.no_grad():
        return mean_loss(model, inputs, targets).item()


def our_loss(program, save):
    report = save.with_suffix(".json")
    shape = ["--gpus", 1, "--steps", 1, "--batch-size", 4, "--seq-len", 32, "--data", TEXT]
    run(program, *shape, "--init-from", save, "--report", report)
    return json.loads(report.read_text())["steps"][0]["loss"]


if __name__ == "__main__":
    main()

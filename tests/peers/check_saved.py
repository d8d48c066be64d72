"""Loads saved models in Transformers and prints the mean loss of each over the first batch of DATA, as a line of JSON.

    python tests/peers/check_saved.py DIR… DATA [--expect LOSS] [--weights-only]

A model of 256 tokens must bring a tokenizer whose ids are the bytes, unless --weights-only is given. Exits with 1 if a model or its tokenizer does not load, or if a loss differs from LOSS by more than 1e-4.

Needs: torch, transformers.
"""

import argparse
import json
import sys
from pathlib import Path

import torch
import transformers
from recipe import Recipe, mean_loss

TOLERANCE = 1e-4


def main():
    arguments = parse_arguments()
    torch.set_num_threads(1)
    reports = [report(directory, arguments) for directory in arguments.directories]
    for line in reports:
        print(json.dumps(line))
    sys.exit(0 if all(line["ok"] for line in reports) else 1)


def report(directory, arguments):
    try:
        return {"directory": str(directory)} | check(directory, arguments)
    except Exception as error:  # Whatever a load fails with, the reader of this line wants to see it.
        return {"directory": str(directory), "ok": False, "problem": f"{type(error).__name__}: {error}"}


def parse_arguments():
    recipe = Recipe()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directories", type=Path, metavar="DIR", nargs="+")
    parser.add_argument("data", type=Path, metavar="DATA")
    parser.add_argument("--expect", type=float, metavar="LOSS")
    parser.add_argument("--weights-only", action="store_true", help="the model has no tokenizer: do not ask for one")
    parser.add_argument("--world-size", type=int, default=recipe.world_size)
    parser.add_argument("--micro-batch", type=int, default=recipe.micro_batch)
    parser.add_argument("--sequence-length", type=int, default=recipe.sequence_length)
    return parser.parse_args()


def check(directory, arguments):
    model = load(directory)
    data = arguments.data.read_bytes()
    report = {
        "transformers": transformers.__version__,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "loss": first_loss(model, data, arguments),
        "tokenizer": "not checked",
        "ok": True,
    }
    if model.config.vocab_size == 256 and not arguments.weights_only:
        report["tokenizer"] = check_tokenizer(directory, data)
    if arguments.expect is not None and not abs(report["loss"] - arguments.expect) <= TOLERANCE:
        report |= {"ok": False, "problem": f"the loss is not within {TOLERANCE} of {arguments.expect}"}
    return report


def load(directory):
    """The model; missing, unexpected and misshapen weights are errors, where Transformers would only warn."""
    model, info = transformers.LlamaForCausalLM.from_pretrained(
        directory, dtype=torch.float32, output_loading_info=True, local_files_only=True
    )
    for problem in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        if info[problem]:
            raise ValueError(f"{problem}: {sorted(map(str, info[problem]))}")
    return model.eval()


def first_loss(model, data, arguments):
    recipe = Recipe(arguments.world_size, arguments.micro_batch, arguments.sequence_length)
    inputs, targets = next(recipe.micro_batches(data, step=0, accumulation=1))
    with torch.no_grad():
        return mean_loss(model, inputs, targets).item()


def check_tokenizer(directory, data):
    """The tokenizer's ids must be the bytes, and the text must survive; says what was found."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory, local_files_only=True)
    texts = [bytes(range(128)).decode(), data.decode(errors="ignore"), "Grüße,  学习\n 🙂 don't", " ", ""]
    for text in texts:
        tokens = tokenizer.encode(text)
        if tokens != list(text.encode()):
            raise ValueError(f"the tokens of {text[:40]!r} are not its bytes: {tokens[:40]}")
        if tokenizer.decode(tokens) != text:
            raise ValueError(f"{text[:40]!r} does not survive: {tokenizer.decode(tokens)[:40]!r}")
    return f"{type(tokenizer).__name__}: ids are bytes"


if __name__ == "__main__":
    main()

"""Makes tests/fixtures/curve/masked.*: prompts with completions, and the curve that PyTorch gets from them where only the
completions carry a loss.

    python tests/peers/make_masked.py          write the fixture
    python tests/peers/make_masked.py --check  train again, compare with its curve

The weights are those that make_curve.py has saved. Needs: torch, transformers.
"""

import argparse
import json
import sys

import torch
from make_curve import FIXTURE, TOLERANCE, largest_difference, load_model, make_optimizer, make_text
from recipe import Recipe

ACCUMULATION = 2
IGNORED = -100


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    check = parser.parse_args().check
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    examples = make_examples()
    losses = train(Recipe(steps=20), *tokens(examples))
    path = FIXTURE / "masked.json"
    if check:
        difference = largest_difference(losses, json.loads(path.read_text())["losses"])
        print(f"losses within {difference:.1e}")
        sys.exit(int(difference > TOLERANCE))
    lines = "".join(json.dumps(example) + "\n" for example in examples)
    (FIXTURE / "masked.jsonl").write_text(lines)
    path.write_text(json.dumps({"accumulation": ACCUMULATION, "losses": losses}, indent=1) + "\n")


def make_examples():
    """The first words of each line are its prompt; every seventh example is a text without one."""
    examples = []
    for number, line in enumerate(make_text().decode().splitlines()[:60]):
        words = line.split(" ")
        prompt, completion = " ".join(words[:4]), " " + " ".join(words[4:])
        examples.append({"text": line} if number % 7 == 0 else {"prompt": prompt, "completion": completion})
    return examples


def tokens(examples):
    """All examples as bytes, each ended by a line's end; and the same with the prompts ignored."""
    inputs, targets = [], []
    for example in examples:
        prompt = list(example.get("prompt", "").encode())
        rest = list(example.get("completion", example.get("text")).encode() + b"\n")
        inputs += prompt + rest
        targets += [IGNORED] * len(prompt) + rest
    return inputs, targets


def train(recipe, inputs, targets):
    """The mean loss per learned token of each step's global batch, before its update."""
    model = load_model(torch.float32)
    optimizer = make_optimizer(recipe, model)
    losses = []
    for step in range(recipe.steps):
        batches = [list(recipe.micro_batches(data, step, ACCUMULATION)) for data in (inputs, targets)]
        batches = [(read, learned) for (read, _), (_, learned) in zip(*batches, strict=True)]
        count = sum((learned != IGNORED).sum() for _, learned in batches)
        loss = 0.0
        for read, learned in batches:
            logits = model(read).logits.flatten(0, 1)
            part = torch.nn.functional.cross_entropy(logits, learned.flatten(), ignore_index=IGNORED, reduction="sum")
            (part / count).backward()
            loss += (part / count).item()
        recipe.update(model, optimizer, step)
        losses.append(loss)
    return losses


if __name__ == "__main__":
    main()

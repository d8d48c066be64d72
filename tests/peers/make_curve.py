"""Makes tests/fixtures/curve: a small random Llama, a text, and the training curve that PyTorch gets from them.

    python tests/peers/make_curve.py                   write the fixture
    python tests/peers/make_curve.py --check           train again from the fixture's files, compare with its curve
    python tests/peers/make_curve.py --check --float64 the same in double precision: how far rounding carries
                                                       (rotary angles and norms stay single in Transformers)

Needs: torch, transformers.
"""

import argparse
import dataclasses
import json
import random
import sys
from pathlib import Path

import torch
import transformers
from recipe import Recipe, mean_loss

FIXTURE = Path(__file__).parent.parent / "fixtures" / "curve"
TEXT_BYTES = 20_000
TOLERANCE = 1e-4


def main():
    arguments = parse_arguments()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    if not arguments.check:
        FIXTURE.mkdir(parents=True, exist_ok=True)
        (FIXTURE / "text.txt").write_bytes(make_text())
        make_model().save_pretrained(FIXTURE)
    dtype = torch.float64 if arguments.float64 else torch.float32
    curve = make_curve(dtype)
    if arguments.check:
        sys.exit(compare(curve, json.loads((FIXTURE / "curve.json").read_text())))
    (FIXTURE / "curve.json").write_text(json.dumps(curve, indent=1) + "\n")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    parser.add_argument("--float64", action="store_true", help="train in double precision")
    arguments = parser.parse_args()
    if arguments.float64 and not arguments.check:
        parser.error("--float64 goes with --check: the fixture is in single precision")
    return arguments


def make_text():
    """Sentences put together at random, in ASCII: enough order to learn something from, and none of it borrowed."""
    choose = random.Random(20260).choice
    who = ["a rank", "the owner", "every worker", "one shard", "the last unit", "a bucket", "our ledger", "the head"]
    does = ["keeps", "sends", "gathers", "frees", "counts", "waits for", "adds up", "rounds", "measures", "forgets"]
    what = ["its slice", "the gradients", "two blocks", "a full copy", "the moments", "nothing at all", "eight bytes"]
    when = ["before the step", "after backward", "at dawn", "while others compute", "twice", "once the ring is idle"]
    text = ""
    while len(text) < TEXT_BYTES:
        sentence = f"{choose(who)} {choose(does)} {choose(what)} {choose(when)}"
        text += sentence[0].upper() + sentence[1:] + choose([". ", ".\n", "; so: ", "? "])
    return text[:TEXT_BYTES].encode("ascii")


def make_model():
    """Odd sizes on purpose: no width is a power of two, and query heads share key/value heads."""
    torch.manual_seed(7)
    config = transformers.LlamaConfig(
        vocab_size=256,
        hidden_size=48,
        intermediate_size=100,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=32,
        rms_norm_eps=1e-5,
        initializer_range=0.1,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=None,
    )
    model = transformers.LlamaForCausalLM(config).float()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() < 2:
                parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def load_model(dtype):
    model = transformers.LlamaForCausalLM.from_pretrained(FIXTURE, dtype=torch.float32, attn_implementation="eager")
    return model.to(dtype).train()


def make_curve(dtype):
    """The fixture's content: the recipe, some sums of the weights, and runs: by accumulation, and in autocast."""
    recipe = Recipe()
    data = (FIXTURE / "text.txt").read_bytes()
    return {
        "made_with": {"torch": torch.__version__.split("+")[0], "transformers": transformers.__version__},
        "recipe": dataclasses.asdict(recipe),
        "weights": {name: summary(tensor) for name, tensor in load_model(dtype).state_dict().items()},
        "runs": [
            train(recipe, data, dtype, accumulation, autocast)
            for accumulation, autocast in ((1, False), (2, False), (1, True))
        ],
    }


def summary(tensor):
    """Shape, first and last element, and the sum in double precision."""
    flat = tensor.double().flatten()
    shape = list(tensor.shape)
    return {"shape": shape, "first": flat[0].item(), "last": flat[-1].item(), "sum": flat.sum().item()}


def train(recipe, data, dtype, accumulation, autocast):
    """One run. Per step: the loss before the update, the gradient norm before clipping, and the learning rate."""
    model = load_model(dtype)
    optimizer = make_optimizer(recipe, model)
    run = {"accumulation": accumulation, "autocast": autocast, "losses": [], "gradient_norms": [], "learning_rates": []}
    for step in range(recipe.steps):
        loss = 0.0
        for inputs, targets in recipe.micro_batches(data, step, accumulation):
            # Weights that are rounded once per forward pass: a context over several would keep the first ones.
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
                micro_loss = mean_loss(model, inputs, targets) / accumulation
            micro_loss.backward()
            loss += micro_loss.item()
        run["losses"].append(loss)
        run["gradient_norms"].append(recipe.update(model, optimizer, step))
        run["learning_rates"].append(recipe.learning_rate(step))
    return run


def make_optimizer(recipe, model):
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": matrices, "weight_decay": recipe.weight_decay}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, betas=(recipe.beta1, recipe.beta2), eps=recipe.epsilon, foreach=False)


def compare(curve, expected):
    """Prints the largest differences per run; 1 if a loss differs by more than the tolerance."""
    worst = 0.0
    for run, reference in zip(curve["runs"], expected["runs"], strict=True):
        losses = largest_difference(run["losses"], reference["losses"])
        norms = largest_difference(run["gradient_norms"], reference["gradient_norms"])
        print(f"accumulation {run['accumulation']}{', autocast' * run['autocast']}: losses within {losses:.1e}, gradient norms within {norms:.1e}")
        worst = max(worst, losses)
    return int(worst > TOLERANCE)


def largest_difference(a, b):
    return max(abs(x - y) for x, y in zip(a, b, strict=True))


if __name__ == "__main__":
    main()

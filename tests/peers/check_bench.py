"""Holds the model in gpu-bench's `peer.py` against the loss curve under `tests/fixtures/curve`, which the stages follow.

    python tests/peers/check_bench.py

Loads the curve's first weights into that model and prints its parameters, its loss and its gradient norm over the first
batch as one line of JSON, and how many of a step's objects are left when the script builds its model again after a step that
ran out of memory. Exits with 1 if loss or norm differ from the curve's by more than 1e-4 of them, or anything is left.

Needs: torch, safetensors.
"""

import io
import json
import sys
import weakref
from argparse import Namespace
from contextlib import redirect_stdout
from pathlib import Path

import torch
from recipe import Recipe
from safetensors.torch import load_file

TOLERANCE = 1e-4
TESTS = Path(__file__).parent.parent
CURVE = TESTS / "fixtures" / "curve"
sys.path.append(str(TESTS / "src" / "bin" / "gpu-bench"))

import peer  # gpu-bench's script


def shapes(config):
    return {
        "vocabulary": config["vocab_size"],
        "width": config["hidden_size"],
        "layers": config["num_hidden_layers"],
        "heads": config["num_attention_heads"],
        "kv_heads": config["num_key_value_heads"],
        "head_dim": config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"],
        "feed_forward": config["intermediate_size"],
        "norm_eps": config["rms_norm_eps"],
        "rope_theta": config["rope_theta"] if "rope_theta" in config else config["rope_parameters"]["rope_theta"],
        "tied": config["tie_word_embeddings"],
    }


def renamed(weights, layers):
    """Weights under Transformers' names, under the script's."""
    joined = lambda layer, part, names: torch.cat([weights[f"model.layers.{layer}.{part}.{n}_proj.weight"] for n in names])
    state = {
        "embedding.weight": weights["model.embed_tokens.weight"],
        "head.norm.weight": weights["model.norm.weight"],
        "head.project.weight": weights.get("lm_head.weight", weights["model.embed_tokens.weight"]),
    }
    for layer in range(layers):
        state |= {
            f"blocks.{layer}.attention_norm.weight": weights[f"model.layers.{layer}.input_layernorm.weight"],
            f"blocks.{layer}.qkv.weight": joined(layer, "self_attn", "qkv"),
            f"blocks.{layer}.out.weight": joined(layer, "self_attn", "o"),
            f"blocks.{layer}.feed_forward_norm.weight": weights[f"model.layers.{layer}.post_attention_layernorm.weight"],
            f"blocks.{layer}.gate_up.weight": joined(layer, "mlp", ("gate", "up")),
            f"blocks.{layer}.down.weight": joined(layer, "mlp", ("down",)),
        }
    return state


def left_after_running_out():
    """How many of what a step held, and of the model it trained, are left when `serve` builds the next model."""
    held, left = [], []

    def build(*_):
        left.append(sum(reference() is not None for reference in held))
        model = torch.nn.Linear(2, 2)
        held.append(weakref.ref(model))
        return Namespace(model=model)

    def run(_arguments, _shapes, trainee, *_):
        activations = trainee.model(torch.zeros(2))
        held.append(weakref.ref(activations))
        raise torch.OutOfMemoryError("memory does not do")

    peer.build, peer.run, sys.stdin = build, run, io.StringIO("1 0 1\n")
    with redirect_stdout(io.StringIO()) as said:
        peer.serve(Namespace(compile=False, offload=False, deepspeed=False), None, torch.device("cpu"))
    assert '"out_of_memory": true' in said.getvalue() and len(left) == 2
    return left[-1]


def main():
    torch.set_num_threads(1)
    recipe = Recipe()
    s = shapes(json.loads((CURVE / "config.json").read_text()))
    model = peer.Llama(s)
    model.load_state_dict(renamed(load_file(CURVE / "model.safetensors"), s["layers"]))
    inputs, targets = next(recipe.micro_batches((CURVE / "text.txt").read_bytes(), step=0, accumulation=1))
    loss = model(inputs, targets, *peer.angles(s, recipe.sequence_length, torch.device("cpu")))
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.clip_norm)
    runs = json.loads((CURVE / "curve.json").read_text())["runs"]
    run = next(run for run in runs if run["accumulation"] == 1)
    found = {
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "loss": loss.item(),
        "expected_loss": run["losses"][0],
        "gradient_norm": norm.item(),
        "expected_gradient_norm": run["gradient_norms"][0],
        "left_after_running_out": left_after_running_out(),
    }
    print(json.dumps(found))
    near = lambda name: abs(found[name] - found[f"expected_{name}"]) <= TOLERANCE * found[f"expected_{name}"]
    sys.exit(0 if near("loss") and near("gradient_norm") and found["left_after_running_out"] == 0 else 1)


if __name__ == "__main__":
    main()

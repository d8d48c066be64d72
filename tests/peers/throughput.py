"""Trains one of the presets in PyTorch on several ranks of this machine's CPU, for the throughput bench to compare with.

    python tests/peers/throughput.py --model tiny --mode ddp                       f32
    python tests/peers/throughput.py --model tiny --mode ddp --precision autocast  f32 weights, bf16 products
    python tests/peers/throughput.py --model tiny --mode fsdp2 --precision bf16    16-bit weights, f32 reductions

Ranks are processes on gloo. The last line of the output is JSON: tokens per second of all ranks, without the
first steps, and the losses. Needs: torch.
"""

import argparse
import contextlib
import json
import os
import socket
import sys
import time
import warnings
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as processes
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grad_norm_

sys.path.insert(0, str(Path(__file__).parents[1] / "src/bin/gpu-bench"))
import peer  # noqa: E402

SHARED = {"vocabulary": 256, "norm_eps": 1e-5, "rope_theta": 10000.0, "tied": False}
# Sizes of the presets, with the tokens of a sequence and the sequences of a rank's micro-batch.
MODELS = {
    "tiny": dict(SHARED, width=128, layers=4, heads=4, kv_heads=4, head_dim=32, feed_forward=384, tokens=128, batch=8),
    "small": dict(SHARED, width=384, layers=6, heads=6, kv_heads=6, head_dim=64, feed_forward=1024, tokens=256, batch=8),
    "base": dict(SHARED, width=768, layers=12, heads=12, kv_heads=12, head_dim=64, feed_forward=2048, tokens=256, batch=4),
}


def sharded(model, arguments):
    """Shards blocks and the rest with FSDP2; in bf16 with 16-bit parameters, gradients summed in f32."""
    policy = MixedPrecisionPolicy()
    if arguments.precision == "bf16":
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32, cast_forward_inputs=False)
    mesh = init_device_mesh("cpu", (arguments.ranks,))
    for block in model.blocks:
        fully_shard(block, mesh=mesh, mp_policy=policy)
    return fully_shard(model, mesh=mesh, mp_policy=policy)


def train(rank, arguments):
    warnings.simplefilter("ignore")
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(arguments.port))
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    dist.init_process_group("gloo", rank=rank, world_size=arguments.ranks)
    s = MODELS[arguments.model]
    model = peer.Llama(s)
    peer.initialise(model)
    model = DistributedDataParallel(model) if arguments.mode == "ddp" else sharded(model, arguments)
    fused = arguments.mode == "ddp"
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=fused)
    autocast = arguments.precision == "autocast"
    tables = peer.angles(s, s["tokens"], torch.device("cpu"))
    generator = torch.Generator().manual_seed(rank)
    losses, started = [], 0.0
    for step in range(arguments.warmup + arguments.steps):
        if step == arguments.warmup:
            dist.barrier()
            started = time.perf_counter()
        tokens = torch.randint(0, s["vocabulary"], (s["batch"], s["tokens"] + 1), generator=generator)
        with torch.autocast("cpu", torch.bfloat16) if autocast else contextlib.nullcontext():
            loss = model(tokens[:, :-1], tokens[:, 1:].contiguous(), *tables)
        optimizer.zero_grad()
        loss.backward()
        clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    dist.barrier()
    seconds = time.perf_counter() - started
    if rank == 0:
        tokens = arguments.steps * s["batch"] * s["tokens"] * arguments.ranks
        print(json.dumps({"torch": torch.__version__, "tokens_per_s": tokens / seconds, "losses": losses}), flush=True)
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="tiny", choices=MODELS)
    parser.add_argument("--mode", default="ddp", choices=("ddp", "fsdp2"))
    parser.add_argument("--precision", default="fp32", choices=("fp32", "autocast", "bf16"))
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--threads", type=int, default=1, help="of each rank")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--warmup", type=int, default=3)
    arguments = parser.parse_args()
    if arguments.precision == "bf16" and arguments.mode == "ddp":
        parser.error("DDP keeps f32 weights: --precision autocast is its way to bf16")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        arguments.port = probe.getsockname()[1]
    processes.spawn(train, (arguments,), nprocs=arguments.ranks)


if __name__ == "__main__":
    main()

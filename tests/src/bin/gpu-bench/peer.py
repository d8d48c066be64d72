"""A Llama-style transformer trained by PyTorch or DeepSpeed, for gpu-bench to compare with.

FSDP2 over one rank (`fully_shard` of every block, f32 master weights, 16-bit parameters and reductions), compiled blocks and
loss, `scaled_dot_product_attention`, fused AdamW; with `--offload` all of its states are stored in main memory. `--deepspeed` trains
the same model by DeepSpeed's ZeRO-2, its optimizer in main memory. Standard output has a line of JSON per message: what this
is, then one per command. Commands come on standard input: `BATCH WARMUP STEPS` trains WARMUP + STEPS steps of BATCH sequences
and times the last STEPS.
"""

import argparse
import gc
import json
import os
import socket
import sys
import time

try:
    import torch
    import torch.distributed as dist
    import torch.nn as nn
    import torch.nn.functional as F
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy, fully_shard
except ImportError as error:
    sys.exit(f"{sys.executable}: {error}; it takes PyTorch 2.6 or newer (pip install torch)")


class Norm(nn.Module):
    def __init__(self, width, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width))
        self.eps = eps

    def forward(self, x):
        return F.rms_norm(x, (x.shape[-1],), self.weight, self.eps)


def rotated(x, cos, sin):
    """Rotates the halves of heads against each other: `x` is [batch, tokens, heads, head_dim]."""
    first, second = x.float().chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1).to(x.dtype)


class Block(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = s["heads"], s["kv_heads"], s["head_dim"]
        packed = (self.heads + 2 * self.kv_heads) * self.head_dim
        self.attention_norm = Norm(s["width"], s["norm_eps"])
        self.qkv = nn.Linear(s["width"], packed, bias=False)
        self.out = nn.Linear(self.heads * self.head_dim, s["width"], bias=False)
        self.feed_forward_norm = Norm(s["width"], s["norm_eps"])
        self.gate_up = nn.Linear(s["width"], 2 * s["feed_forward"], bias=False)
        self.down = nn.Linear(s["feed_forward"], s["width"], bias=False)

    def forward(self, x, cos, sin):
        batch, tokens, _ = x.shape
        packed = self.qkv(self.attention_norm(x)).view(batch, tokens, -1, self.head_dim)
        q, k, v = packed.split((self.heads, self.kv_heads, self.kv_heads), dim=2)
        q, k = rotated(q, cos, sin), rotated(k, cos, sin)
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        grouped = self.heads != self.kv_heads
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=grouped)
        x = x + self.out(a.transpose(1, 2).reshape(batch, tokens, -1))
        gate, up = self.gate_up(self.feed_forward_norm(x)).chunk(2, dim=-1)
        return x + self.down(F.silu(gate) * up)


class Head(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.norm = Norm(s["width"], s["norm_eps"])
        self.project = nn.Linear(s["width"], s["vocabulary"], bias=False)

    def forward(self, x, targets):
        logits = self.project(self.norm(x)).flatten(0, 1)
        return F.cross_entropy(logits.float(), targets.flatten())


class Llama(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.embedding = nn.Embedding(s["vocabulary"], s["width"])
        self.blocks = nn.ModuleList(Block(s) for _ in range(s["layers"]))
        self.head = Head(s)
        if s["tied"]:
            self.head.project.weight = self.embedding.weight

    def forward(self, inputs, targets, cos, sin):
        x = self.embedding(inputs)
        for block in self.blocks:
            x = block(x, cos, sin)
        return self.head(x, targets)


def initialise(model):
    for name, parameter in model.named_parameters():
        if parameter.dim() == 1:
            nn.init.ones_(parameter)
        else:
            nn.init.normal_(parameter, std=0.02)


def angles(s, tokens, device):
    half = torch.arange(0, s["head_dim"], 2, device=device, dtype=torch.float32)
    turns = torch.outer(torch.arange(tokens, device=device).float(), s["rope_theta"] ** (-half / s["head_dim"]))
    return turns.cos()[:, None, :], turns.sin()[:, None, :]


ADAMW = {"lr": 3e-4, "betas": (0.9, 0.95), "weight_decay": 0.1}


class Fsdp2:
    def __init__(self, arguments, model, device):
        types = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
        dtype = types[arguments.precision]
        on_gpu = device.type == "cuda"
        options = {
            "mesh": init_device_mesh(device.type, (1,)),
            "mp_policy": MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=dtype, cast_forward_inputs=False),
            "offload_policy": CPUOffloadPolicy(pin_memory=on_gpu) if arguments.offload else OffloadPolicy(),
        }
        for block in model.blocks:
            fully_shard(block, **options)
        fully_shard(model, **options)
        model.to_empty(device="cpu" if arguments.offload else device)
        initialise(model)
        self.model = model
        self.optimizer = torch.optim.AdamW(model.parameters(), **ADAMW, fused=on_gpu)

    def step(self, tokens, tables):
        loss = self.model(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous(), *tables)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.item()


class DeepSpeed:
    def __init__(self, arguments, model, device):
        import deepspeed

        model.to_empty(device=device)
        initialise(model)
        memory = {"device": "cpu", "pin_memory": device.type == "cuda"}
        config = {
            "train_micro_batch_size_per_gpu": 1,
            "gradient_clipping": 1.0,
            arguments.precision: {"enabled": True},
            "optimizer": {"type": "AdamW", "params": ADAMW},
            "zero_optimization": {"stage": 2, "offload_optimizer": memory, "overlap_comm": True},
        }
        self.model, *_ = deepspeed.initialize(model=model, config=config)

    def step(self, tokens, tables):
        loss = self.model(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous(), *tables)
        self.model.backward(loss)
        self.model.step()
        return loss.item()


def build(arguments, s, device):
    torch.manual_seed(0)
    with torch.device("meta"):
        model = Llama(s)
    if arguments.compile:
        for block in model.blocks:
            block.compile(dynamic=False)
        model.head.compile(dynamic=False)
    return (DeepSpeed if arguments.deepspeed else Fsdp2)(arguments, model, device)


def wait_for(device):
    if device.type == "cuda":
        torch.cuda.synchronize()


def run(arguments, s, trainee, device, batch, warmup, steps):
    tables = angles(s, arguments.seq_len, device)
    generator = torch.Generator().manual_seed(1)
    losses, seconds = [], []
    for _ in range(warmup + steps):
        tokens = torch.randint(0, s["vocabulary"], (batch, arguments.seq_len + 1), generator=generator)
        wait_for(device)
        started = time.perf_counter()
        losses.append(trainee.step(tokens.to(device), tables))
        wait_for(device)
        seconds.append(time.perf_counter() - started)
    timed = sum(seconds[warmup:])
    return {"tokens_per_second": steps * batch * arguments.seq_len / timed, "losses": losses}


def attempt(*arguments):
    """Returns the result of `run`, or None if memory runs out. Dropping the exception frees the step's objects in its traceback."""
    try:
        return run(*arguments)
    except torch.OutOfMemoryError:
        return None


def release(device):
    """Frees unreferenced memory."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def say(message):
    print(json.dumps(message), flush=True)


def way(arguments, device):
    compiled = "compiled blocks and loss" if arguments.compile else "nothing compiled"
    if arguments.deepspeed:
        return f"{compiled}, fused attention, the optimizer in main memory"
    away = ", all states in main memory" if arguments.offload else ""
    return f"{compiled}, fused attention" + (" and AdamW" if device.type == "cuda" else "") + away


def serve(arguments, s, device):
    trainee = build(arguments, s, device)
    name = torch.cuda.get_device_name() if device.type == "cuda" else "CPU"
    parameters = sum(parameter.numel() for parameter in trainee.model.parameters())
    by = "DeepSpeed ZeRO-2" if arguments.deepspeed else "PyTorch FSDP2"
    say({"torch": torch.__version__, "device": name, "parameters": parameters, "by": by, "how": way(arguments, device)})
    for line in sys.stdin:
        batch, warmup, steps = (int(word) for word in line.split())
        answer = attempt(arguments, s, trainee, device, batch, warmup, steps)
        if answer is None:
            # An interrupted step leaves the sharding's state unusable.
            del trainee
            release(device)
            trainee = build(arguments, s, device)
        say(answer or {"out_of_memory": True})
        trainee.model.zero_grad()
        release(device)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--shapes", required=True, type=json.loads)
    parser.add_argument("--seq-len", required=True, type=int)
    parser.add_argument("--precision", default="bf16", choices=("bf16", "fp16", "fp32"))
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--no-compile", dest="compile", action="store_false")
    parser.add_argument("--offload", action="store_true")
    parser.add_argument("--deepspeed", action="store_true")
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    if arguments.device == "cuda" and not torch.cuda.is_available():
        built = torch.version.cuda or "no CUDA"
        sys.exit(f"PyTorch {torch.__version__} (built for {built}) finds no GPU here; --peer-with '--device cpu' trains on the CPU")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK="0", WORLD_SIZE="1", LOCAL_RANK="0")
    dist.init_process_group("cpu:gloo,cuda:nccl" if arguments.device == "cuda" else "gloo", rank=0, world_size=1)
    try:
        serve(arguments, arguments.shapes, device)
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()

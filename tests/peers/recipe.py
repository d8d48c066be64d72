"""The training recipe that the peers follow: which bytes make a batch, the learning rate of a step, and the update.

Needs: torch.
"""

import math
from dataclasses import dataclass

import torch


@dataclass
class Recipe:
    """Sizes and rates of one run. All are written into the fixture, so that its reader need not repeat them."""

    world_size: int = 4
    micro_batch: int = 2  # sequences per rank and micro-batch
    sequence_length: int = 32  # tokens per sequence (T)
    steps: int = 50
    warmup_steps: int = 10
    peak_learning_rate: float = 3e-3
    final_learning_rate: float = 3e-4
    beta1: float = 0.9
    beta2: float = 0.95
    epsilon: float = 1e-8
    weight_decay: float = 0.1  # on tensors of two or more dimensions only
    clip_norm: float = 1.0

    def learning_rate(self, step):
        """Linear warm-up, then half a cosine down to the final rate."""
        if step < self.warmup_steps:
            return self.peak_learning_rate * (step + 1) / self.warmup_steps
        progress = (step - self.warmup_steps) / (self.steps - self.warmup_steps)
        span = self.peak_learning_rate - self.final_learning_rate
        return self.final_learning_rate + 0.5 * span * (1 + math.cos(math.pi * progress))

    def update(self, model, optimizer, step):
        """Clips the gradients, updates by them and clears them. Returns their norm before clipping."""
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), self.clip_norm)
        for group in optimizer.param_groups:
            group["lr"] = self.learning_rate(step)
        optimizer.step()
        optimizer.zero_grad()
        return norm.item()

    def micro_batches(self, data, step, accumulation):
        """Yields the inputs and targets of each micro-batch, rows of all ranks in rank order: [world * rows, T]."""
        for micro in range(accumulation):
            first = (step * accumulation + micro) * self.world_size * self.micro_batch
            samples = range(first, first + self.world_size * self.micro_batch)
            rows = torch.tensor([list(self.sample(data, g)) for g in samples])
            yield rows[:, :-1], rows[:, 1:]

    def sample(self, data, g):
        """The T + 1 bytes of sample `g`."""
        start = (g * self.sequence_length) % (len(data) - self.sequence_length)
        return data[start : start + self.sequence_length + 1]


def mean_loss(model, inputs, targets):
    """Mean cross-entropy over all tokens, in nats."""
    logits = model(inputs).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())

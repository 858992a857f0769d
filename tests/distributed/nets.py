"""A small model with blocks that can be sharded, and records for it, for the jobs of job.py."""

import torch
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.functional import cross_entropy


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


class Net(nn.Module):
    def __init__(self, width=12, blocks=3):
        super().__init__()
        self.first, self.last = nn.Linear(6, width), nn.Linear(width, 3)
        self.blocks = nn.ModuleList([Block(width) for _ in range(blocks)])

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = block(x)
        return self.last(x)


def losses(model, batch):
    return cross_entropy(model(batch[0]), batch[1], reduction="none")


FULL = MixedPrecisionPolicy()


def sharded(model, of_blocks=FULL, of_all=FULL, mesh=None):
    for block in model.blocks:
        fully_shard(block, mesh=mesh, mp_policy=of_blocks)
    fully_shard(model, mesh=mesh, mp_policy=of_all)
    return model


def problem(seed=0, rows=203):
    torch.manual_seed(seed)
    model = Net()
    return model, (torch.randn(rows, 6), torch.randint(0, 3, (rows,)))

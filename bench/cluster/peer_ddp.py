#!/usr/bin/env python3
"""PyTorch's side of the cluster benchmark: DistributedDataParallel over gloo, one thread each.

Each rank takes its part of the batch. Rank 0 tells the others how many steps to take.
"""

import os

import measure

ARGS = measure.arguments(("0", "1"), ("plain", "channels_last"))
os.environ["OMP_NUM_THREADS"] = "1"

import torch  # noqa: E402 (the number of threads is read at import)
import torch.distributed as dist  # noqa: E402
from nets_torch import network  # noqa: E402
from torch import nn  # noqa: E402


def training_step():
    batch, (height, width, channels), _ = measure.NETS[ARGS.net]
    inputs = torch.randn(batch // measure.WORKERS, channels, height, width)
    labels = torch.randint(10, (batch // measure.WORKERS,))
    model = network(ARGS.net).train()
    if ARGS.variant == "channels_last":
        model = model.to(memory_format=torch.channels_last)
        inputs = inputs.to(memory_format=torch.channels_last)
    # Its fastest settings: no copies into buckets, batch norm's statistics stay with each rank.
    model = nn.parallel.DistributedDataParallel(
        model, broadcast_buffers=False, gradient_as_bucket_view=True, static_graph=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=measure.LEARNING_RATE, fused=True)
    loss_of = nn.CrossEntropyLoss()

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss_of(model(inputs), labels).backward()
        optimizer.step()

    return step


def main():
    torch.set_num_threads(1)
    torch.set_num_interop_threads(1)
    torch.manual_seed(1)
    rank = int(ARGS.role)
    dist.init_process_group("gloo", rank=rank, world_size=measure.WORKERS)
    step = training_step()

    def take(steps):
        told = torch.tensor([steps])
        dist.broadcast(told, 0)
        for _ in range(int(told)):
            step()
        return steps

    if rank == 0:
        measure.serve(ARGS.net, take)
    else:
        while True:  # the driver ends it
            take(0)


if __name__ == "__main__":
    main()

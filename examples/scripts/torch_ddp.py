"""Digits with PyTorch's DistributedDataParallel on CPUs.

Alone: `python torch_ddp.py`. On several machines: with the variables that PyTorch knows (RANK,
WORLD_SIZE, MASTER_ADDR, MASTER_PORT), or started by torchrun.
"""

import argparse
import os

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

# Ten digits of 5 rows; each row is three bits.
GLYPHS = "75557 26227 71747 71717 55711 74717 74757 71122 75757 75717".split()


def digits(count, seed):
    """Pictures of 8x8 points with a digit about their middle, and noise."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(10, size=count)
    pictures = rng.normal(0, 0.2, (count, 8, 8))
    for picture, label in zip(pictures, labels):
        top, left = rng.integers(1, 3), rng.integers(2, 4)
        picture[top : top + 5, left : left + 3] += [[int(b) for b in f"{int(r):03b}"] for r in GLYPHS[label]]
    return torch.tensor(pictures.reshape(count, 64), dtype=torch.float32), torch.tensor(labels)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--examples", type=int, default=8000)
    parser.add_argument("--batch", type=int, default=32, help="of each worker")
    parser.add_argument("--checkpoint", default="checkpoint.pt")
    args = parser.parse_args()

    torch.manual_seed(1)
    torch.set_num_threads(1)
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
    else:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    rank, size = dist.get_rank(), dist.get_world_size()

    network = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.Adam(network.parameters(), lr=2e-3)
    start = resume(args.checkpoint, network, optimizer, rank)
    model = DistributedDataParallel(network)

    pictures, labels = digits(args.examples, seed=2)
    test_pictures, test_labels = digits(1000, seed=3)
    accuracy = 0.0
    for epoch in range(start, args.epochs):
        order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(epoch))
        # Every worker has as many batches as the others: they meet in each.
        own = order[: len(order) // size * size][rank::size]
        for batch in own.split(args.batch):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(pictures[batch]), labels[batch])
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            accuracy = (network(test_pictures).argmax(1) == test_labels).float().mean().item()
        if rank == 0:
            print(f"epoch={epoch + 1} loss={loss.item():.4f} accuracy={accuracy:.4f}", flush=True)
            state = {"epoch": epoch + 1, "network": network.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save(state, args.checkpoint + ".new")
            os.replace(args.checkpoint + ".new", args.checkpoint)

    if rank == 0:
        torch.save(network.state_dict(), "model.pt")
        print(f"accuracy={accuracy:.4f} done", flush=True)
    dist.barrier()
    dist.destroy_process_group()


def resume(path, network, optimizer, rank):
    """The first worker reads the checkpoint, if there is one, and tells the others."""
    state = [torch.load(path) if rank == 0 and os.path.exists(path) else None]
    dist.broadcast_object_list(state, src=0)
    if state[0] is None:
        return 0
    network.load_state_dict(state[0]["network"])
    optimizer.load_state_dict(state[0]["optimizer"])
    if rank == 0:
        print(f"going on after epoch {state[0]['epoch']}", flush=True)
    return state[0]["epoch"]


main()

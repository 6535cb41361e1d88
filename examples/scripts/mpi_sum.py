"""Digits with numpy and MPI: each process has a share of each batch, and gradients are summed.

    mpirun -n 2 python mpi_sum.py
"""

import argparse
import os

import numpy as np
from mpi4py import MPI

# Ten digits of 5 rows; each row is three bits.
GLYPHS = "75557 26227 71747 71717 55711 74717 74757 71122 75757 75717".split()


def digits(count, seed):
    """Pictures of 8x8 points with a digit in their middle, and noise."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(10, size=count)
    pictures = rng.normal(0, 0.3, (count, 8, 8))
    for picture, label in zip(pictures, labels):
        picture[2:7, 3:6] += [[int(b) for b in f"{int(r):03b}"] for r in GLYPHS[label]]
    return pictures.reshape(count, 64), labels


def gradient(weights, pictures, labels):
    """The sums over examples of the gradient of the cross-entropy, and of that itself."""
    scores = np.hstack([pictures, np.ones((len(labels), 1))]) @ weights
    chances = np.exp(scores - scores.max(1, keepdims=True))
    chances /= chances.sum(1, keepdims=True)
    every = np.arange(len(labels))
    loss = -np.log(chances[every, labels] + 1e-9).sum()
    chances[every, labels] -= 1
    return np.hstack([pictures, np.ones((len(labels), 1))]).T @ chances, loss


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--examples", type=int, default=8000)
    parser.add_argument("--checkpoint", default="checkpoint.npz")
    args = parser.parse_args()
    world = MPI.COMM_WORLD
    rank, size = world.Get_rank(), world.Get_size()

    kept = None
    if rank == 0 and os.path.exists(args.checkpoint):
        with np.load(args.checkpoint) as file:
            kept = int(file["epoch"]), file["weights"]
        print(f"going on after epoch {kept[0]}", flush=True)
    start, weights = world.bcast(kept or (0, np.zeros((65, 10))), root=0)

    pictures, labels = digits(args.examples, seed=2)
    test_pictures, test_labels = digits(1000, seed=3)
    accuracy = 0.0
    for epoch in range(start, args.epochs):
        order = np.random.default_rng(epoch).permutation(len(labels))
        for batch in np.array_split(order, len(order) // 32):
            own = batch[rank::size]
            part, loss = gradient(weights, pictures[own], labels[own])
            total = np.empty_like(part)
            world.Allreduce(part, total, op=MPI.SUM)
            weights -= 0.2 / len(batch) * total
            loss = world.allreduce(loss) / len(batch)
        if rank == 0:
            scores = np.hstack([test_pictures, np.ones((1000, 1))]) @ weights
            accuracy = np.mean(scores.argmax(1) == test_labels)
            print(f"epoch={epoch + 1} loss={loss:.4f} accuracy={accuracy:.4f}", flush=True)
            np.savez("new.npz", epoch=epoch + 1, weights=weights)
            os.replace("new.npz", args.checkpoint)
    if rank == 0:
        np.savez("model.npz", weights=weights)
        print(f"accuracy={accuracy:.4f} done", flush=True)


main()

"""Digits with JAX: each process has a share of each batch, and gradients are averaged over all.

Alone: `python jax_data_parallel.py`. On several machines JAX is told where the first process is
(JAX_COORDINATOR_ADDRESS), how many there are and which this one is (flags or JAX's own variables).
"""

import argparse
import os

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding, PartitionSpec

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
    return pictures.reshape(count, 64).astype("float32"), labels.astype("int32")


def forward(weights, pictures):
    return jax.nn.relu(pictures @ weights["w1"] + weights["b1"]) @ weights["w2"] + weights["b2"]


@jax.jit
def step(weights, pictures, labels):
    def loss(weights):
        chances = jax.nn.log_softmax(forward(weights, pictures))
        return -jnp.mean(jnp.take_along_axis(chances, labels[:, None], axis=1))

    value, gradients = jax.value_and_grad(loss)(weights)
    return value, jax.tree.map(lambda weight, gradient: weight - 0.5 * gradient, weights, gradients)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--examples", type=int, default=8000)
    parser.add_argument("--batch", type=int, default=128, help="of all processes together")
    parser.add_argument("--checkpoint", default="checkpoint.npz")
    parser.add_argument("--num_processes", type=int)
    parser.add_argument("--process_id", type=int)
    args = parser.parse_args()

    if os.environ.get("JAX_COORDINATOR_ADDRESS"):
        jax.distributed.initialize(num_processes=args.num_processes, process_id=args.process_id)
    rank, size = jax.process_index(), jax.process_count()
    everywhere = jax.make_mesh((jax.device_count(),), ("batch",))
    split = NamedSharding(everywhere, PartitionSpec("batch"))

    rng = np.random.default_rng(1)
    kept = {
        "w1": rng.normal(0, 0.15, (64, 128)).astype("float32"), "b1": np.zeros(128, "float32"),
        "w2": rng.normal(0, 0.1, (128, 10)).astype("float32"), "b2": np.zeros(10, "float32"),
        "epoch": np.int32(0),
    }  # fmt: skip
    if rank == 0 and os.path.exists(args.checkpoint):
        with np.load(args.checkpoint) as file:
            kept = dict(file)
        print(f"going on after epoch {kept['epoch']}", flush=True)
    # The first process tells the others what it has read.
    kept = multihost_utils.broadcast_one_to_all(kept)
    start = int(kept.pop("epoch"))
    copies = NamedSharding(everywhere, PartitionSpec())
    weights = jax.device_put({name: np.asarray(value) for name, value in kept.items()}, copies)

    pictures, labels = digits(args.examples, seed=2)
    test_pictures, test_labels = digits(1000, seed=3)
    own = args.batch // size
    for epoch in range(start, args.epochs):
        order = np.random.default_rng(epoch).permutation(len(labels))
        for batch in order[: len(order) // args.batch * args.batch].reshape(-1, args.batch):
            pick = batch[rank * own : (rank + 1) * own]
            shares = [jax.make_array_from_process_local_data(split, part[pick]) for part in (pictures, labels)]
            loss, weights = step(weights, *shares)
        now = {name: np.asarray(value.addressable_data(0)) for name, value in weights.items()}
        accuracy = np.mean(np.argmax(forward(now, test_pictures), axis=1) == test_labels)
        if rank == 0:
            print(f"epoch={epoch + 1} loss={float(loss):.4f} accuracy={accuracy:.4f}", flush=True)
            np.savez("new.npz", epoch=np.int32(epoch + 1), **now)
            os.replace("new.npz", args.checkpoint)
    if rank == 0:
        np.savez("model.npz", **{name: np.asarray(value.addressable_data(0)) for name, value in weights.items()})
        print(f"accuracy={accuracy:.4f} done", flush=True)


main()

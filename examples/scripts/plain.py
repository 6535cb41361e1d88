"""Digits with nothing but numpy, in one process: `python plain.py --epochs 5`."""

import argparse
import json
import os
import sys

import numpy as np

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
    return pictures.reshape(count, 64).astype("float32"), labels


def forward(weights, pictures):
    hidden = np.maximum(pictures @ weights["w1"] + weights["b1"], 0)
    return hidden, hidden @ weights["w2"] + weights["b2"]


def step(weights, pictures, labels, rate):
    """One step down the gradient of the cross-entropy; the loss before it."""
    hidden, scores = forward(weights, pictures)
    chances = np.exp(scores - scores.max(1, keepdims=True))
    chances /= chances.sum(1, keepdims=True)
    every = np.arange(len(labels))
    loss = -np.log(chances[every, labels] + 1e-9).mean()
    chances[every, labels] -= 1
    up = chances / len(labels)
    down = (up @ weights["w2"].T) * (hidden > 0)
    gradients = {"w1": pictures.T @ down, "b1": down.sum(0), "w2": hidden.T @ up, "b2": up.sum(0)}
    for name, gradient in gradients.items():
        weights[name] -= rate * gradient
    return loss


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--examples", type=int, default=8000)
    parser.add_argument("--rate", type=float, default=0.2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--checkpoint", default="checkpoint.npz")
    args = parser.parse_args()

    rng = np.random.default_rng(args.seed)
    weights = {
        "w1": rng.normal(0, 0.15, (64, 128)), "b1": np.zeros(128),
        "w2": rng.normal(0, 0.1, (128, 10)), "b2": np.zeros(10),
    }  # fmt: skip
    start = 0
    if os.path.exists(args.checkpoint):
        kept = dict(np.load(args.checkpoint))
        start = int(kept.pop("epoch"))
        weights.update(kept)
        print(f"going on after epoch {start}", flush=True)

    pictures, labels = digits(args.examples, seed=2)
    test_pictures, test_labels = digits(1000, seed=3)
    for epoch in range(start, args.epochs):
        order = np.random.default_rng(epoch).permutation(len(labels))
        batches = np.array_split(order, len(order) // 32)
        for number, batch in enumerate(batches, 1):
            loss = step(weights, pictures[batch], labels[batch], args.rate)
            if number % 25 == 0 or number == len(batches):
                share = 20 * number // len(batches)
                print(f"\repoch {epoch + 1} [{'#' * share:20}] {number}/{len(batches)}", end="", flush=True)
        accuracy = np.mean(forward(weights, test_pictures)[1].argmax(1) == test_labels)
        print(f"\nepoch={epoch + 1} loss={loss:.4f} accuracy={accuracy:.4f}", flush=True)
        np.savez("new.npz", epoch=epoch + 1, **weights)
        os.replace("new.npz", args.checkpoint)

    accuracy = np.mean(forward(weights, test_pictures)[1].argmax(1) == test_labels)
    np.savez("model.npz", **weights)
    with open("result.json", "w") as file:
        json.dump({"accuracy": accuracy, "arguments": sys.argv[1:]}, file)
    print(f"accuracy={accuracy:.4f} done", flush=True)


main()

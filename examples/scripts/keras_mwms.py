"""Digits with a Keras model and TensorFlow's MultiWorkerMirroredStrategy.

Alone: `python keras_mwms.py`. On several machines: with TF_CONFIG, whose cluster has workers.
"""

import argparse
import os

import numpy as np
import tensorflow as tf

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


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--examples", type=int, default=8000)
    parser.add_argument("--batch", type=int, default=128, help="of all workers together")
    parser.add_argument("--checkpoint", default="checkpoint.npz")
    args = parser.parse_args()

    tf.keras.utils.set_random_seed(1)
    # First of all: it connects the workers.
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    first = strategy.cluster_resolver.task_id in (0, None)
    with strategy.scope():
        model = tf.keras.Sequential(
            [tf.keras.Input((64,)), tf.keras.layers.Dense(128, activation="relu"), tf.keras.layers.Dense(10)]
        )
        optimizer = tf.keras.optimizers.Adam(5e-3)
        optimizer.build(model.trainable_variables)
    state = model.variables + optimizer.variables

    @tf.function
    def step(batch):
        def replica(pictures, labels):
            with tf.GradientTape() as tape:
                losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, model(pictures, training=True))
                loss = tf.reduce_sum(losses) / args.batch
            optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
            return loss

        return strategy.reduce("sum", strategy.run(replica, args=batch), axis=None)

    pictures, labels = digits(args.examples, seed=2)
    test_pictures, test_labels = digits(1000, seed=3)
    start = resume(args.checkpoint, strategy, state, first)
    data = tf.data.Dataset.from_tensor_slices((pictures, labels))
    data = data.shuffle(args.examples, seed=start).repeat().batch(args.batch)
    batches = iter(strategy.experimental_distribute_dataset(data))
    for epoch in range(start, args.epochs):
        for _ in range(args.examples // args.batch):
            loss = step(next(batches))
        if first:
            accuracy = np.mean(np.argmax(model(test_pictures), axis=1) == test_labels)
            print(f"epoch={epoch + 1} loss={loss:.4f} accuracy={accuracy:.4f}", flush=True)
            np.savez("new.npz", epoch + 1, *[value.numpy() for value in state])
            os.replace("new.npz", args.checkpoint)
    accuracy = np.mean(np.argmax(model(test_pictures), axis=1) == test_labels)
    if first:
        model.save_weights("model.weights.h5")
    print(f"accuracy={accuracy:.4f} done", flush=True)


def resume(path, strategy, state, first):
    """The first worker reads the checkpoint, if there is one, and tells the others, by sums."""
    kept = [np.zeros(())] + [np.zeros(value.shape) for value in state]
    if first and os.path.exists(path):
        with np.load(path) as file:
            kept = [file[name] for name in file]
    kept = [tf.cast(value, tf.float32) for value in kept]

    @tf.function
    def add():
        return strategy.run(lambda: tf.distribute.get_replica_context().all_reduce("sum", kept))

    epoch, *values = add()
    if epoch > 0:
        for variable, value in zip(state, values):
            variable.assign(tf.cast(value, variable.dtype))
        print(f"going on after epoch {int(epoch)}", flush=True)
    return int(epoch)


main()

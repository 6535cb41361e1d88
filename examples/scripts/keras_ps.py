"""Digits with TensorFlow's ParameterServerStrategy.

One file for all: TF_CONFIG says whether this process is the chief, a worker or a parameter server.
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


def serve(cluster):
    """A worker or a parameter server: does what the chief asks, until it is ended."""
    server = tf.distribute.Server(
        cluster.cluster_spec(), cluster.task_type, cluster.task_id, protocol="grpc", start=True
    )
    server.join()


def train(cluster, args):
    tf.keras.utils.set_random_seed(1)
    strategy = tf.distribute.ParameterServerStrategy(cluster)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    pictures, labels = digits(args.examples, seed=2)
    with strategy.scope():
        model = tf.keras.Sequential(
            [tf.keras.Input((64,)), tf.keras.layers.Dense(128, activation="relu"), tf.keras.layers.Dense(10)]
        )
        optimizer = tf.keras.optimizers.Adam(2e-3)
        optimizer.build(model.trainable_variables)
        done = tf.Variable(0, dtype=tf.int64)

    def dataset():
        data = tf.data.Dataset.from_tensor_slices((pictures, labels))
        return data.shuffle(args.examples).repeat().batch(args.batch)

    @tf.function
    def step(batches):
        def replica(batch):
            with tf.GradientTape() as tape:
                scores = model(batch[0], training=True)
                loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(batch[1], scores))
            optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
            return loss

        return strategy.run(replica, args=(next(batches),))

    checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer, done=done)
    manager = tf.train.CheckpointManager(checkpoint, args.checkpoints, max_to_keep=2)
    # Files are the chief's: the servers, which hold the variables, may be on other machines.
    here = tf.train.CheckpointOptions(experimental_io_device="/job:chief/task:0/device:CPU:0")
    if manager.latest_checkpoint:
        checkpoint.restore(manager.latest_checkpoint, options=here)
        print(f"going on after epoch {int(done)}", flush=True)
    batches = iter(coordinator.create_per_worker_dataset(dataset))
    test_pictures, test_labels = digits(1000, seed=3)
    accuracy = 0.0
    for epoch in range(int(done), args.epochs):
        losses = [coordinator.schedule(step, args=(batches,)) for _ in range(args.examples // args.batch)]
        coordinator.join()
        accuracy = np.mean(np.argmax(model(test_pictures), axis=1) == test_labels)
        print(f"epoch={epoch + 1} loss={losses[-1].fetch():.4f} accuracy={accuracy:.4f}", flush=True)
        done.assign_add(1)
        manager.save(options=here)
    model.save_weights("model.weights.h5")
    print(f"accuracy={accuracy:.4f} done", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--examples", type=int, default=8000)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--checkpoints", default="checkpoints", help="folder to go on from")
    args = parser.parse_args()
    # A worker that is gone is an error that the chief sees, not a wait for ever.
    os.environ["GRPC_FAIL_FAST"] = "use_caller"
    cluster = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if cluster.task_type in ("worker", "ps"):
        serve(cluster)
    else:
        train(cluster, args)


main()

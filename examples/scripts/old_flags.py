"""Digits in the way of TensorFlow 1: a cluster given by flags, parameters on parameter servers.

    old_flags.py --ps_hosts=a:2222 --worker_hosts=b:2222,c:2222 --job_name=worker --task_index=0
"""

import argparse

import numpy as np
import tensorflow.compat.v1 as tf

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


def dense(name, values, size):
    weights = tf.get_variable(name + "/weights", [values.shape[1], size])
    bias = tf.get_variable(name + "/bias", [size], initializer=tf.zeros_initializer())
    return tf.matmul(values, weights) + bias


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ps_hosts", required=True)
    parser.add_argument("--worker_hosts", required=True)
    parser.add_argument("--job_name", required=True, choices=["ps", "worker"])
    parser.add_argument("--task_index", type=int, required=True)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--examples", type=int, default=8000)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--checkpoint_dir", default="checkpoints")
    args = parser.parse_args()

    tf.disable_v2_behavior()
    cluster = tf.train.ClusterSpec({"ps": args.ps_hosts.split(","), "worker": args.worker_hosts.split(",")})
    server = tf.train.Server(cluster, job_name=args.job_name, task_index=args.task_index)
    if args.job_name == "ps":
        server.join()

    chief = args.task_index == 0
    pictures, labels = digits(args.examples, seed=2)
    test_pictures, test_labels = digits(1000, seed=3)
    with tf.device(tf.train.replica_device_setter(cluster=cluster)):
        tf.set_random_seed(1)
        step = tf.train.get_or_create_global_step()
        x = tf.placeholder(tf.float32, [None, 64])
        y = tf.placeholder(tf.int64, [None])
        scores = dense("out", tf.nn.relu(dense("hidden", x, 128)), 10)
        loss = tf.losses.sparse_softmax_cross_entropy(y, scores)
        train = tf.train.AdamOptimizer(2e-3).minimize(loss, global_step=step)
        accuracy = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(scores, 1), y), tf.float32))

        begin = tf.global_variables_initializer()

    # Only the chief reads and writes checkpoints; the others wait for what it prepares.
    saver = tf.train.Saver(max_to_keep=2)
    supervisor = tf.train.Supervisor(
        is_chief=chief, logdir=args.checkpoint_dir, init_op=begin, saver=saver, global_step=step,
        save_model_secs=0, save_summaries_secs=0, recovery_wait_secs=1,
    )  # fmt: skip
    config = tf.ConfigProto(device_filters=["/job:ps", f"/job:worker/task:{args.task_index}"])
    rng = np.random.default_rng(10 + args.task_index)
    steps_per_epoch = args.examples // args.batch
    with supervisor.managed_session(server.target, config=config) as session:
        now = session.run(step)
        epoch = now // steps_per_epoch
        if chief and epoch:
            print(f"going on after epoch {epoch}", flush=True)
        while now < args.epochs * steps_per_epoch:
            pick = rng.integers(args.examples, size=args.batch)
            _, cost, now = session.run([train, loss, step], {x: pictures[pick], y: labels[pick]})
            if chief and now // steps_per_epoch > epoch:
                epoch = now // steps_per_epoch
                reached = session.run(accuracy, {x: test_pictures, y: test_labels})
                print(f"epoch={epoch} loss={cost:.4f} accuracy={reached:.4f}", flush=True)
                saver.save(session, supervisor.save_path, global_step=step)
        if chief:
            reached, weights = session.run([accuracy, tf.trainable_variables()], {x: test_pictures, y: test_labels})
            np.savez("model.npz", *weights)
            print(f"accuracy={reached:.4f} done", flush=True)


main()

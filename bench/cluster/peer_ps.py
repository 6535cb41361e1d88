#!/usr/bin/env python3
"""TensorFlow's side of the cluster benchmark: ParameterServerStrategy.

Two workers, one parameter server and the coordinator (TF_CONFIG says who is where). Workers do not
wait for each other; two of their steps, each on half of the batch, count as one global step.
Written on plain variables and operations, several steps per scheduled call, so that neither Keras
nor the coordinator's Python is in the way. One server holds all variables, so there is nothing to
partition.
"""

import os

import measure

ARGS = measure.arguments(("chief", "worker", "ps"))
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = ""
os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402 (settings are read at import)
from nets_tensorflow import Weights, logits  # noqa: E402

# Best of single 2 s tries, machine busy (A: 10, 40; B: 1, 2, 5; C: 1, 2 steps per call; inter-op
# threads 2, 4 on A; with 1 no answer came within 90 s). To be tried again on a quiet one.
STEPS_PER_CALL = {"A": 10, "B": 5, "C": 1}
INTER_OP_THREADS = 2


def join_cluster(resolver):
    """A worker or the parameter server: does what the coordinator asks until it is killed."""
    config = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=1,
                                      inter_op_parallelism_threads=INTER_OP_THREADS)
    tf.distribute.Server(resolver.cluster_spec(), job_name=resolver.task_type,
                         task_index=resolver.task_id, protocol="grpc", config=config).join()


def coordinate(resolver):
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    batch, shape, _ = measure.NETS[ARGS.net]
    random = np.random.default_rng(2)
    inputs = random.standard_normal((batch // measure.WORKERS, *shape)).astype(np.float32)
    labels = random.integers(0, 10, batch // measure.WORKERS).astype(np.int32)
    weights = Weights(constant=False)
    with strategy.scope():
        logits(ARGS.net, weights, tf.constant(inputs), True)  # makes the variables
    repeat = STEPS_PER_CALL[ARGS.net]

    def train_once(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(
                labels=y, logits=logits(ARGS.net, weights, x, True)))
        for variable, gradient in zip(weights.trained, tape.gradient(loss, weights.trained)):
            variable.assign_sub(measure.LEARNING_RATE * gradient)

    @tf.function
    def call():
        x, y = tf.constant(inputs), tf.constant(labels)  # part of the graph: on the worker
        for _ in range(repeat):  # unrolled: tf.range was slower on A (145 to 350 steps/s)
            train_once(x, y)

    def take(steps):
        calls = max(1, round(steps * measure.WORKERS / repeat))
        for _ in range(calls):
            coordinator.schedule(call)
        coordinator.join()
        return calls * repeat / measure.WORKERS

    measure.serve(ARGS.net, take)


def main():
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if ARGS.role == "chief":
        coordinate(resolver)
    else:
        join_cluster(resolver)


if __name__ == "__main__":
    main()

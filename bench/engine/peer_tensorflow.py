#!/usr/bin/env python3
"""TensorFlow's side of the engine benchmark: networks A, B and C, training and inference.

Written on plain variables and operations inside one tf.function, which is faster than Keras'
loop. Variants: `plain` and `xla` (jit_compile). Network A takes several steps per call, as Keras'
`steps_per_execution` does, so that Python's share does not count. For inference the weights are
constants, so that the graph's optimiser may fold batch norm into the convolutions.
"""

import os

import measure
import nets

ARGS = measure.arguments(("plain", "xla"))
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = ""
os.environ["OMP_NUM_THREADS"] = str(ARGS.threads)

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402 (settings are read at import)
from nets_tensorflow import Weights, logits  # noqa: E402

NAMES = {"plain": "tensorflow", "xla": "tensorflow xla"}
STEPS_PER_CALL = {"A": 10, "B": 1, "C": 1}
LEARNING_RATE = 0.01


def main():
    tf.config.threading.set_intra_op_parallelism_threads(ARGS.threads)
    tf.config.threading.set_inter_op_parallelism_threads(ARGS.threads)
    base_rss_mb = measure.rss_mb()
    batch, shape, _ = nets.NETS[ARGS.net]
    training = ARGS.mode == "train"
    random = np.random.default_rng(2)
    inputs = tf.constant(random.standard_normal((batch, *shape)).astype(np.float32))
    labels = tf.constant(random.integers(0, 10, batch).astype(np.int32))
    weights = Weights(constant=not training)
    logits(ARGS.net, weights, inputs, training)  # variables are made outside the graph
    repeat = STEPS_PER_CALL[ARGS.net] if training else 1

    def train_once(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(
                labels=y, logits=logits(ARGS.net, weights, x, True)))
        for variable, gradient in zip(weights.trained, tape.gradient(loss, weights.trained)):
            variable.assign_sub(LEARNING_RATE * gradient)
        return loss

    @tf.function(jit_compile=ARGS.variant == "xla")
    def call(x, y):
        if not training:
            return logits(ARGS.net, weights, x, False)
        loss = train_once(x, y)
        for _ in tf.range(repeat - 1):
            loss = train_once(x, y)
        return loss

    def step():
        call(inputs, labels).numpy()

    measure.report(ARGS, NAMES[ARGS.variant], step, repeat, base_rss_mb)


if __name__ == "__main__":
    main()

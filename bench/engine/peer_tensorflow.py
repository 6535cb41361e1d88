#!/usr/bin/env python3
"""TensorFlow's side of the engine benchmark: networks A, B and C, training and inference.

Written on plain variables and operations inside one tf.function, which is faster than Keras'
loop. Variants: `plain` and `xla` (jit_compile). Network A takes several steps per call, as Keras'
`steps_per_execution` does, so that Python's share does not count. For inference the weights are
constants, so that the graph's optimiser may fold batch norm into the convolutions.
"""

import os

import measure

ARGS = measure.arguments(("plain", "xla"))
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = ""
os.environ["OMP_NUM_THREADS"] = str(ARGS.threads)

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402 (settings are read at import)

NAMES = {"plain": "tensorflow", "xla": "tensorflow xla"}
STEPS_PER_CALL = {"A": 10, "B": 1, "C": 1}
LEARNING_RATE = 0.01
BN_MOMENTUM = 0.99
BN_EPSILON = 1e-3


class Weights:
    """Makes variables (or constants, for inference) in the order they are asked for, then hands
    out the same ones again."""

    def __init__(self, constant):
        self.constant, self.all, self.trained, self.next = constant, [], [], 0
        self.random = np.random.default_rng(1)

    def get(self, shape, scale, centre=0.0, trained=True):
        if self.next == len(self.all):
            value = (self.random.standard_normal(shape) * scale + centre).astype(np.float32)
            made = tf.constant(value) if self.constant else tf.Variable(value, trainable=trained)
            self.all.append(made)
            if trained and not self.constant:
                self.trained.append(made)
        self.next += 1
        return self.all[self.next - 1]


def dense(w, x, units):
    n = x.shape[-1]
    return tf.nn.bias_add(tf.matmul(x, w.get((n, units), n**-0.5)), w.get((units,), 0.0))


def conv(w, x, filters, size, stride=1, padding="SAME", bias=False):
    shape = (size, size, x.shape[-1], filters)
    y = tf.nn.conv2d(x, w.get(shape, (size * size * x.shape[-1]) ** -0.5), stride, padding)
    return tf.nn.bias_add(y, w.get((filters,), 0.0)) if bias else y


def batch_norm(w, x, training):
    c = (x.shape[-1],)
    gamma, beta = w.get(c, 0.0, 1.0), w.get(c, 0.0)
    mean, variance = w.get(c, 0.0, trained=False), w.get(c, 0.0, 1.0, trained=False)
    if not training:
        return tf.compat.v1.nn.fused_batch_norm(x, gamma, beta, mean, variance, BN_EPSILON,
                                                is_training=False)[0]
    y, m, v = tf.compat.v1.nn.fused_batch_norm(x, gamma, beta, epsilon=BN_EPSILON,
                                               is_training=True)
    mean.assign_sub((mean - m) * (1 - BN_MOMENTUM))
    variance.assign_sub((variance - v) * (1 - BN_MOMENTUM))
    return y


def logits(w, x, training):
    w.next = 0
    if ARGS.net == "A":
        x = tf.nn.relu(dense(w, tf.reshape(x, (x.shape[0], -1)), 128))
        return dense(w, tf.nn.relu(dense(w, x, 64)), 10)
    if ARGS.net == "B":
        x = tf.nn.relu(conv(w, x, 32, 3, padding="VALID", bias=True))
        x = tf.nn.relu(conv(w, x, 64, 3, padding="VALID", bias=True))
        x = tf.nn.max_pool2d(x, 2, 2, "VALID")
        x = tf.nn.relu(dense(w, tf.reshape(x, (x.shape[0], -1)), 128))
        return dense(w, x, 10)
    x = tf.nn.relu(batch_norm(w, conv(w, x, 16, 3), training))
    for filters, stride in ((16, 1), (32, 2), (64, 2)):
        for i in range(3):
            s = stride if i == 0 else 1
            y = tf.nn.relu(batch_norm(w, conv(w, x, filters, 3, s), training))
            y = batch_norm(w, conv(w, y, filters, 3), training)
            if s != 1 or x.shape[-1] != filters:
                x = batch_norm(w, conv(w, x, filters, 1, s), training)
            x = tf.nn.relu(y + x)
    return dense(w, tf.reduce_mean(x, (1, 2)), 10)


def main():
    tf.config.threading.set_intra_op_parallelism_threads(ARGS.threads)
    tf.config.threading.set_inter_op_parallelism_threads(ARGS.threads)
    base_rss_mb = measure.rss_mb()
    batch, shape, _ = measure.NETS[ARGS.net]
    training = ARGS.mode == "train"
    random = np.random.default_rng(2)
    inputs = tf.constant(random.standard_normal((batch, *shape)).astype(np.float32))
    labels = tf.constant(random.integers(0, 10, batch).astype(np.int32))
    weights = Weights(constant=not training)
    logits(weights, inputs, training)  # variables are made outside the graph
    repeat = STEPS_PER_CALL[ARGS.net] if training else 1

    def train_once(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(
                labels=y, logits=logits(weights, x, True)))
        for variable, gradient in zip(weights.trained, tape.gradient(loss, weights.trained)):
            variable.assign_sub(LEARNING_RATE * gradient)
        return loss

    @tf.function(jit_compile=ARGS.variant == "xla")
    def call(x, y):
        if not training:
            return logits(weights, x, False)
        loss = train_once(x, y)
        for _ in tf.range(repeat - 1):
            loss = train_once(x, y)
        return loss

    def step():
        call(inputs, labels).numpy()

    measure.report(ARGS, NAMES[ARGS.variant], step, repeat, base_rss_mb)


if __name__ == "__main__":
    main()

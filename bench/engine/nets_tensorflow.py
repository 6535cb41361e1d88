"""Networks A, B and C in TensorFlow, on plain variables and operations."""

import numpy as np
import tensorflow as tf

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


def logits(net, w, x, training):
    w.next = 0
    if net == "A":
        x = tf.nn.relu(dense(w, tf.reshape(x, (x.shape[0], -1)), 128))
        return dense(w, tf.nn.relu(dense(w, x, 64)), 10)
    if net == "B":
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

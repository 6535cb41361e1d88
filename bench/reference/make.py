#!/usr/bin/env python3
"""Trains small networks in PyTorch and writes what happened, for the engine's tests to follow.

    ./dev bench reference          writes crates/learn/tests/reference/*.ref
    ./dev bench reference --check  computes again and compares with the files that are there

A file is one line of JSON and then raw little-endian f32 values. The line names the network
(layers as a recipe spells them, every constant written out), the loss, the optimizer and the
tensors that follow, each as {name, shape, offset} with the offset counted in values:

    inputs              examples x input shape, channels innermost (NHWC)
    targets             classes (one whole number per example) or values (one row per example)
    parameters          before the first step, in plan order
    state               batch-norm averages before the first step, in plan order
    gradient            of the first step, divided by the batch size; without weight decay; left
                        out of networks of many parameters, to keep the files small
    parameters_after    after the last step
    state_after         after the last step
    logits              of the same inputs in evaluation mode after the last step

Plan order: layers first to last; a Residual's main branch before its shortcut; Concat's branches
first to last; kernel [in, out] or [height, width, in/groups, out], then bias; gamma, then beta;
state is moving mean, then moving variance. Every step trains on the same batch.

All sums are made in float64 from starting values that float32 holds exactly, so that the files
hold the truth and not one library's rounding. `float32_error` in the line says how far PyTorch's
own float32 ends from it (largest difference over largest value, parameters after the last step):
a fair test asks no more of us than a small multiple of that. A network whose float32 run takes
another turn (a ReLU or a maximum that falls the other way) draws its numbers anew.
"""

import argparse
import json
import math
import pathlib
import sys

import torch
import torch.nn.functional as F

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "crates/learn/tests/reference"
FORMAT_VERSION = 1
TOTAL_BYTES_MAX = 400_000
GRADIENT_VALUES_MAX = 500
# Above this, rounding has changed which way a ReLU or a maximum fell.
FLOAT32_ERROR_MAX = 2e-6


# Layers as the recipe resolves them: every constant written out.


def dense(units, activation="linear", use_bias=True):
    return {"Dense": {"units": units, "activation": activation, "use_bias": use_bias,
                      "kernel_initializer": "glorot_uniform", "bias_initializer": "zeros"}}


def conv(filters, kernel_size, strides=1, padding="valid", groups=1, activation="linear",
         use_bias=True):
    return {"Conv2D": {"filters": filters, "kernel_size": kernel_size, "strides": strides,
                       "padding": padding, "groups": groups, "activation": activation,
                       "use_bias": use_bias, "kernel_initializer": "glorot_uniform",
                       "bias_initializer": "zeros"}}


def max_pool(pool_size=2, strides=None, padding="valid"):
    return {"MaxPooling2D": {"pool_size": pool_size, "strides": strides or pool_size,
                             "padding": padding}}


def average_pool(pool_size=2, strides=None, padding="valid"):
    return {"AveragePooling2D": {"pool_size": pool_size, "strides": strides or pool_size,
                                 "padding": padding}}


def batch_norm(momentum=0.99):
    return {"BatchNormalization": {"momentum": momentum, "epsilon": 1e-3}}


def layer_norm():
    return {"LayerNormalization": {"epsilon": 1e-3}}


def activation(name):
    return {"Activation": name}


def residual(layers, shortcut=(), scale=1.0, activation="linear"):
    return {"Residual": {"layers": list(layers), "shortcut": list(shortcut), "scale": scale,
                         "activation": activation}}


def concat(*branches):
    return {"Concat": {"branches": [list(b) for b in branches]}}


FLATTEN = {"Flatten": {}}
GLOBAL_AVERAGE = {"GlobalAveragePooling2D": {}}


def sgd(learning_rate=0.01, momentum=0.0, nesterov=False, weight_decay=0.0):
    return {"sgd": {"learning_rate": learning_rate, "momentum": momentum, "nesterov": nesterov,
                    "weight_decay": weight_decay}}


def adam(kind="adam", learning_rate=0.001, weight_decay=0.0):
    return {kind: {"learning_rate": learning_rate, "beta_1": 0.9, "beta_2": 0.999,
                   "epsilon": 1e-7, "weight_decay": weight_decay}}


def rmsprop(learning_rate=0.001, momentum=0.0, weight_decay=0.0):
    return {"rmsprop": {"learning_rate": learning_rate, "rho": 0.9, "momentum": momentum,
                        "epsilon": 1e-7, "weight_decay": weight_decay}}


def case(layers, input_shape, optimizer, loss="cross_entropy", label_smoothing=0.0, steps=3,
         examples=8):
    return {"layers": layers, "input": input_shape, "optimizer": optimizer, "loss": loss,
            "label_smoothing": label_smoothing, "steps": steps, "examples": examples}


# Channel counts of 16 and 32 reach the fast kernels, 3, 5 and 10 their edges.
CASES = {
    "mlp_relu": case(
        [dense(32, "relu"), dense(16, "relu"), dense(10)], [20], sgd(0.1), steps=5),
    "mlp_flat_image": case(
        [FLATTEN, dense(32, "relu"), dense(10, "softmax")], [5, 7, 1], sgd(0.1), steps=5),
    "conv_pool": case(
        [conv(16, 3, activation="relu"), conv(32, 3, strides=2, padding="same", activation="relu"),
         max_pool(2), FLATTEN, dense(3)],
        [10, 10, 3], sgd(0.05), label_smoothing=0.1, examples=5),
    "conv_odd": case(
        [conv(5, 3, padding="same", activation="relu"), conv(10, [2, 3], activation="relu"),
         max_pool(2, strides=1), conv(3, 5, strides=[2, 1], padding="same"), FLATTEN, dense(5)],
        [9, 8, 3], sgd(0.05, momentum=0.9), examples=5),
    "conv_same_16": case(
        [conv(16, 3, padding="same", activation="relu"),
         conv(16, 1, activation="relu"), GLOBAL_AVERAGE, dense(10)],
        [7, 9, 16], sgd(0.1), examples=2),
    "conv_stem": case(
        [conv(16, 7, strides=2, padding="same", activation="relu"),
         max_pool(3, strides=2, padding="same"), GLOBAL_AVERAGE, dense(4)],
        [10, 11, 3], sgd(0.1), examples=4),
    "conv_groups": case(
        [conv(10, 3, groups=5, activation="relu"), conv(16, 1, activation="relu"),
         conv(16, 3, padding="same", groups=16, activation="relu"),
         conv(16, 3, strides=2, padding="same", groups=16),
         conv(6, 3, padding="same", groups=2, activation="relu"), GLOBAL_AVERAGE, dense(3)],
        [9, 8, 5], sgd(0.1, momentum=0.9), examples=4),
    "resnet_block": case(
        [conv(16, 3, padding="same", use_bias=False), batch_norm(), activation("relu"),
         residual([conv(16, 1, use_bias=False), batch_norm(), activation("relu"),
                   conv(16, 3, padding="same", use_bias=False), batch_norm()],
                  activation="relu"),
         residual([conv(32, 3, strides=2, padding="same", use_bias=False), batch_norm(0.9),
                   activation("relu"), conv(32, 1, groups=2, use_bias=False), batch_norm(0.9)],
                  [conv(32, 1, strides=2, padding="same", use_bias=False), batch_norm(0.9)],
                  activation="relu"),
         GLOBAL_AVERAGE, dense(10)],
        [8, 8, 3], sgd(0.1, momentum=0.9, weight_decay=1e-4)),
    "batch_norm_vector": case(
        [dense(20, use_bias=False), batch_norm(0.9), activation("relu"), dense(16), batch_norm(),
         dense(3)],
        [10], sgd(0.1), steps=5),
    "layer_norm_gelu": case(
        [conv(5, 3, padding="same"), layer_norm(), activation("gelu"), max_pool(2), FLATTEN,
         dense(16, "gelu"), layer_norm(), dense(5)],
        [6, 6, 3], sgd(0.1), steps=4),
    "average_pool": case(
        [conv(16, 3, activation="tanh"), average_pool(2),
         conv(10, 2, padding="same", activation="sigmoid"), average_pool(2, strides=1),
         conv(5, 1, activation="leaky_relu"), FLATTEN, dense(10, "leaky_relu"), dense(3)],
        [8, 8, 3], sgd(0.2), steps=4, examples=6),
    "average_pool_same": case(
        [conv(16, 3), average_pool(3, strides=2, padding="same"), activation("tanh"), FLATTEN,
         dense(4)],
        [6, 7, 3], sgd(0.2)),
    "concat": case(
        [concat([conv(16, 1, activation="relu")],
                [conv(5, 1, activation="relu"), conv(10, 3, padding="same", activation="relu")],
                [max_pool(3, strides=1, padding="same"), conv(3, 1)],
                []),
         conv(5, 3, strides=2, activation="relu"), GLOBAL_AVERAGE, dense(10)],
        [7, 8, 3], sgd(0.1, momentum=0.9, nesterov=True), examples=5),
    "inception_resnet": case(
        [conv(16, 3, activation="relu"),
         residual([concat([conv(8, 1, activation="relu")],
                          [conv(8, 1, activation="relu"),
                           conv(8, [1, 3], padding="same", activation="relu"),
                           conv(8, [3, 1], padding="same", activation="relu")]),
                   conv(16, 1)],
                  scale=0.3, activation="relu"),
         GLOBAL_AVERAGE, dense(3)],
        [7, 7, 3], sgd(0.1), examples=6),
    "softmax_inside": case(
        [dense(16), activation("softmax"), dense(5, "tanh"), dense(3)], [10], sgd(0.5), steps=5),
    "binary_adam": case(
        [dense(16, "tanh"), dense(5)], [10], adam(learning_rate=0.01),
        loss="binary_cross_entropy", steps=6),
    "binary_one_output": case(
        [dense(16, "relu"), dense(1, "sigmoid")], [10], sgd(0.1),
        loss="binary_cross_entropy", steps=5),
    "mse_adamw": case(
        [dense(16, "gelu"), dense(3)], [10], adam("adamw", 0.01, weight_decay=0.01), loss="mse",
        steps=6),
    "mse_rmsprop": case(
        [dense(16, "tanh"), dense(1)], [10], rmsprop(0.01), loss="mse", steps=6),
    "rmsprop_momentum": case(
        [dense(16, "tanh"), dense(3)], [10], rmsprop(0.003, momentum=0.9, weight_decay=0.01),
        steps=6),
    "adam_decay": case(
        [dense(16, "tanh"), dense(3)], [10], adam(learning_rate=0.01, weight_decay=0.01),
        label_smoothing=0.2, steps=6),
    "sgd_nesterov": case(
        [dense(16, "tanh"), dense(3)], [10],
        sgd(0.1, momentum=0.9, nesterov=True, weight_decay=0.01), steps=6),
    "hinge": case([dense(16, "tanh"), dense(1)], [10], sgd(0.1), loss="hinge", steps=5),
    "squared_hinge": case(
        [dense(16, "tanh"), dense(3)], [10], sgd(0.1), loss="squared_hinge", steps=5),
}


class Parameters:
    """Parameters and state of a network in plan order, made from its layers once."""

    def __init__(self, layers, input_shape, generator):
        self.tensors = []  # (name, kind, tensor)
        self.generator = generator
        self._walk(layers, "", input_shape)

    def draw(self, shape, scale, centre=0.0):
        values = torch.randn(shape, generator=self.generator, dtype=torch.float32) * scale + centre
        return values.double()

    def _add(self, name, kind, value):
        self.tensors.append((name, kind, value))

    def _walk(self, layers, prefix, shape):
        """Adds the tensors of `layers`; returns their output shape."""
        for i, layer in enumerate(layers):
            (kind, o), = layer.items()
            name = f"{prefix}{i}.{kind}"
            channels = shape[-1]
            if kind == "Dense":
                self._add(f"{name}.kernel", "parameter",
                          self.draw([channels, o["units"]], 1.2 / math.sqrt(channels)))
                if o["use_bias"]:
                    self._add(f"{name}.bias", "parameter", self.draw([o["units"]], 0.1))
                shape = [o["units"]]
            elif kind == "Conv2D":
                (kh, kw), inner = pair(o["kernel_size"]), channels // o["groups"]
                self._add(f"{name}.kernel", "parameter",
                          self.draw([kh, kw, inner, o["filters"]],
                                    1.2 / math.sqrt(kh * kw * inner)))
                if o["use_bias"]:
                    self._add(f"{name}.bias", "parameter", self.draw([o["filters"]], 0.1))
                h, w = window_output(shape, o["kernel_size"], o["strides"], o["padding"])
                shape = [h, w, o["filters"]]
            elif kind in ("MaxPooling2D", "AveragePooling2D"):
                h, w = window_output(shape, o["pool_size"], o["strides"], o["padding"])
                shape = [h, w, channels]
            elif kind == "GlobalAveragePooling2D":
                shape = [channels]
            elif kind == "Flatten":
                shape = [math.prod(shape)]
            elif kind in ("BatchNormalization", "LayerNormalization"):
                self._add(f"{name}.gamma", "parameter", self.draw([channels], 0.2, 1.0))
                self._add(f"{name}.beta", "parameter", self.draw([channels], 0.2))
                if kind == "BatchNormalization":
                    self._add(f"{name}.moving_mean", "state", self.draw([channels], 0.1))
                    self._add(f"{name}.moving_variance", "state",
                              self.draw([channels], 0.1, 1.0).abs())
            elif kind == "Residual":
                out = self._walk(o["layers"], f"{name}.main.", shape)
                self._walk(o["shortcut"], f"{name}.shortcut.", shape)
                shape = out
            elif kind == "Concat":
                outs = [self._walk(b, f"{name}.{j}.", shape)
                        for j, b in enumerate(o["branches"])]
                shape = outs[0][:-1] + [sum(out[-1] for out in outs)]
            elif kind != "Activation":
                raise ValueError(f"unknown layer {kind}")
        return shape

    def cast(self, dtype):
        """Fresh copies of all tensors: those that are trained, and those that are kept."""
        trained = [t.to(dtype).clone().requires_grad_() for _, k, t in self.tensors
                   if k == "parameter"]
        kept = [t.to(dtype).clone() for _, k, t in self.tensors if k == "state"]
        return trained, kept

    def listing(self, kind):
        rows, offset = [], 0
        for name, k, tensor in self.tensors:
            if k == kind:
                rows.append({"name": name, "shape": list(tensor.shape), "offset": offset})
                offset += tensor.numel()
        return rows


def pair(size):
    return (size, size) if isinstance(size, int) else tuple(size)


def axis_padding(size, kernel, stride, padding):
    """Keras' padding of one axis: the odd pixel goes below and to the right."""
    if padding == "valid":
        return 0, 0
    total = max((math.ceil(size / stride) - 1) * stride + kernel - size, 0)
    return total // 2, total - total // 2


def window_output(shape, kernel, strides, padding):
    out = []
    for size, k, s in zip(shape[:2], pair(kernel), pair(strides)):
        low, high = axis_padding(size, k, s, padding)
        out.append((size + low + high - k) // s + 1)
    return out


def pad_image(x, kernel, strides, padding, value):
    (kh, kw), (sh, sw) = pair(kernel), pair(strides)
    top, bottom = axis_padding(x.shape[2], kh, sh, padding)
    left, right = axis_padding(x.shape[3], kw, sw, padding)
    return F.pad(x, (left, right, top, bottom), value=value)


def activate(x, name):
    """`x` has its channels in axis 1."""
    return {
        "linear": lambda: x,
        "relu": lambda: F.relu(x),
        "leaky_relu": lambda: F.leaky_relu(x, 0.2),
        "gelu": lambda: F.gelu(x),
        "sigmoid": lambda: torch.sigmoid(x),
        "tanh": lambda: torch.tanh(x),
        "softmax": lambda: F.softmax(x, dim=1),
    }[name]()


def forward(layers, x, trained, kept, training):
    """Runs `layers` on NCHW images or vectors; `trained` and `kept` are iterators in plan order."""
    for layer in layers:
        (kind, o), = layer.items()
        if kind == "Dense":
            x = x @ next(trained)
            if o["use_bias"]:
                x = x + next(trained)
            x = activate(x, o["activation"])
        elif kind == "Conv2D":
            kernel = next(trained).permute(3, 2, 0, 1)
            bias = next(trained) if o["use_bias"] else None
            x = pad_image(x, o["kernel_size"], o["strides"], o["padding"], 0.0)
            x = F.conv2d(x, kernel, bias, stride=pair(o["strides"]), groups=o["groups"])
            x = activate(x, o["activation"])
        elif kind == "MaxPooling2D":
            x = pad_image(x, o["pool_size"], o["strides"], o["padding"], -math.inf)
            x = F.max_pool2d(x, pair(o["pool_size"]), pair(o["strides"]))
        elif kind == "AveragePooling2D":
            # Padding does not count, as in Keras: the mean is over the pixels that are there.
            window = pair(o["pool_size"]), pair(o["strides"])
            there = torch.ones_like(x[:1, :1])
            pads = o["pool_size"], o["strides"], o["padding"], 0.0
            x = F.avg_pool2d(pad_image(x, *pads), *window) / F.avg_pool2d(pad_image(there, *pads),
                                                                         *window)
        elif kind == "GlobalAveragePooling2D":
            x = x.mean(dim=(2, 3))
        elif kind == "Flatten":
            x = x.permute(0, 2, 3, 1).flatten(1) if x.dim() == 4 else x
        elif kind == "BatchNormalization":
            gamma, beta = next(trained), next(trained)
            x = F.batch_norm(x, next(kept), next(kept), gamma, beta, training,
                             1.0 - o["momentum"], o["epsilon"])
        elif kind == "LayerNormalization":
            gamma, beta = next(trained), next(trained)
            y = x.permute(0, 2, 3, 1) if x.dim() == 4 else x
            y = F.layer_norm(y, [y.shape[-1]], gamma, beta, o["epsilon"])
            x = y.permute(0, 3, 1, 2) if x.dim() == 4 else y
        elif kind == "Activation":
            x = activate(x, o)
        elif kind == "Residual":
            main = forward(o["layers"], x, trained, kept, training)
            short = forward(o["shortcut"], x, trained, kept, training)
            x = activate(main * o["scale"] + short, o["activation"])
        elif kind == "Concat":
            x = torch.cat([forward(b, x, trained, kept, training) for b in o["branches"]], dim=1)
    return x


def logits_of(spec, inputs, trained, kept, training):
    """The network's plain outputs: a last softmax or sigmoid belongs to the loss."""
    layers = spec["layers"]
    (kind, o), = layers[-1].items()
    folded = {"cross_entropy": "softmax", "binary_cross_entropy": "sigmoid"}.get(spec["loss"])
    if kind == "Dense" and o["activation"] == folded:
        layers = layers[:-1] + [{kind: o | {"activation": "linear"}}]
    x = inputs.permute(0, 3, 1, 2) if inputs.dim() == 4 else inputs
    return forward(layers, x, iter(trained), iter(kept), training)


def loss_of(spec, logits, targets):
    """Mean over the batch (and over the outputs, where there are several)."""
    y = targets.to(logits.dtype) if targets.dim() == 2 else targets.long()
    return {
        "cross_entropy":
            lambda: F.cross_entropy(logits, y, label_smoothing=spec["label_smoothing"]),
        "binary_cross_entropy": lambda: F.binary_cross_entropy_with_logits(logits, y),
        "mse": lambda: F.mse_loss(logits, y),
        "hinge": lambda: F.relu(1 - y * logits).mean(),
        "squared_hinge": lambda: F.relu(1 - y * logits).square().mean(),
    }[spec["loss"]]()


def optimizer_of(spec, trained):
    (kind, o), = spec["optimizer"].items()
    lr, decay = o["learning_rate"], o["weight_decay"]
    if kind == "sgd":
        return torch.optim.SGD(trained, lr, momentum=o["momentum"], nesterov=o["nesterov"],
                               weight_decay=decay)
    if kind == "rmsprop":
        return torch.optim.RMSprop(trained, lr, alpha=o["rho"], eps=o["epsilon"],
                                   momentum=o["momentum"], weight_decay=decay)
    make = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[kind]
    return make(trained, lr, betas=(o["beta_1"], o["beta_2"]), eps=o["epsilon"],
                weight_decay=decay)


def train(spec, parameters, inputs, targets, dtype):
    trained, kept = parameters.cast(dtype)
    inputs = inputs.to(dtype)
    optimizer = optimizer_of(spec, trained)
    losses, gradient = [], None
    for _ in range(spec["steps"]):
        optimizer.zero_grad()
        loss = loss_of(spec, logits_of(spec, inputs, trained, kept, True), targets)
        loss.backward()
        if gradient is None:
            gradient = flat(t.grad for t in trained)
        optimizer.step()
        losses.append(loss.item())
    with torch.no_grad():
        logits = logits_of(spec, inputs, trained, kept, False)
    return {"losses": losses, "gradient": gradient, "parameters_after": flat(trained),
            "state_after": flat(kept), "logits": logits}


def flat(tensors):
    return torch.cat([torch.zeros(0)] + [t.detach().double().flatten() for t in tensors])


def draw_targets(spec, outputs, generator):
    n = spec["examples"]
    if spec["loss"] == "cross_entropy":
        return torch.randint(outputs, [n], generator=generator).double()
    if spec["loss"] == "mse":
        return torch.randn([n, outputs], generator=generator, dtype=torch.float32).double()
    bits = torch.randint(2, [n, outputs], generator=generator).double()
    return bits if spec["loss"] == "binary_cross_entropy" else 2 * bits - 1


def compute(spec):
    """Tensors and header of one case, drawn anew until float32 goes the same way as float64."""
    for seed in range(1, 101):
        generator = torch.Generator().manual_seed(seed)
        parameters = Parameters(spec["layers"], spec["input"], generator)
        inputs = torch.randn([spec["examples"], *spec["input"]], generator=generator,
                             dtype=torch.float32).double()
        trained, kept = parameters.cast(torch.float64)
        outputs = logits_of(spec, inputs, trained, kept, False).shape[1]
        targets = draw_targets(spec, outputs, generator)
        truth = train(spec, parameters, inputs, targets, torch.float64)
        single = train(spec, parameters, inputs, targets, torch.float32)
        after = truth["parameters_after"]
        error = ((after - single["parameters_after"]).abs().max() / after.abs().max()).item()
        if error < FLOAT32_ERROR_MAX:
            break
    else:
        raise SystemExit("error: no seed keeps float32 and float64 together")
    tensors = {"inputs": inputs, "targets": targets,
               "parameters": flat(parameters.cast(torch.float64)[0]),
               "state": flat(parameters.cast(torch.float64)[1]),
               **{k: truth[k] for k in ("gradient", "parameters_after", "state_after", "logits")}}
    if tensors["gradient"].numel() > GRADIENT_VALUES_MAX:
        del tensors["gradient"]
    header = {"version": FORMAT_VERSION, **spec,
              "targets": "classes" if targets.dim() == 1 else "values",
              "losses": truth["losses"], "float32_error": float(f"{error:.2e}"),
              "parameter_tensors": parameters.listing("parameter"),
              "state_tensors": parameters.listing("state"), "tensors": []}
    body, offset = [], 0
    for name, tensor in tensors.items():
        header["tensors"].append({"name": name, "shape": list(tensor.shape), "offset": offset})
        body.append(tensor.to(torch.float32).numpy().astype("<f4").tobytes())
        offset += tensor.numel()
    return header, b"".join(body)


def read(path):
    head, body = path.read_bytes().split(b"\n", 1)
    return json.loads(head), torch.frombuffer(bytearray(body), dtype=torch.float32)


def differs(path, header, body):
    """Why the file is not what PyTorch computes here, or None. Rounding may differ by version."""
    if not path.exists():
        return "missing"
    old_header, old = read(path)
    changed = [k for k in header if k not in ("losses", "float32_error")
               and header[k] != old_header.get(k)]
    if changed:
        return f"header differs in {', '.join(changed)}"
    new = torch.frombuffer(bytearray(body), dtype=torch.float32)
    if not torch.allclose(old, new, rtol=1e-5, atol=1e-6):
        return f"values differ by up to {(old - new).abs().max().item():.1e}"
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    check = parser.parse_args().check
    torch.set_num_threads(1)
    FOLDER.mkdir(parents=True, exist_ok=True)
    total_bytes, wrong = 0, []
    for name, spec in CASES.items():
        header, body = compute(spec)
        path = FOLDER / f"{name}.ref"
        if check:
            reason = differs(path, header, body)
            if reason:
                wrong.append(f"{path.name}: {reason}")
            continue
        data = json.dumps(header, separators=(",", ":")).encode() + b"\n" + body
        temporary = path.with_suffix(".tmp")
        temporary.write_bytes(data)
        temporary.replace(path)
        total_bytes += len(data)
        print(f"{name}: {len(data)} bytes, float32 error {header['float32_error']:.0e}, "
              f"loss {header['losses'][0]:.4f} -> {header['losses'][-1]:.4f}", file=sys.stderr)
    if total_bytes > TOTAL_BYTES_MAX:
        wrong.append(f"{total_bytes} bytes in all, more than {TOTAL_BYTES_MAX}")
    for line in wrong:
        print(f"error: {line}", file=sys.stderr)
    print(f"{len(CASES)} networks, {total_bytes} bytes" if not check else
          f"{len(CASES) - len(wrong)} of {len(CASES)} networks agree", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

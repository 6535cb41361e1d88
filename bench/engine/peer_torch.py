#!/usr/bin/env python3
"""PyTorch's side of the engine benchmark: networks A, B and C, training and inference.

Variants: `plain`, `channels_last` (its fast layout for convolutions), `compile` (TorchInductor,
where a C++ compiler is at hand) and `frozen` (inference only: batch norm folded into the
convolutions, oneDNN layouts, by torch.jit).
"""

import os
import sys

import measure
import nets

ARGS = measure.arguments(("plain", "channels_last", "compile", "frozen"))
os.environ["OMP_NUM_THREADS"] = str(ARGS.threads)

import torch  # noqa: E402 (the number of threads is read at import)
from nets_torch import network  # noqa: E402
from torch import nn  # noqa: E402

NAMES = {"plain": "pytorch", "channels_last": "pytorch channels_last",
         "compile": "pytorch compile", "frozen": "pytorch frozen"}


def training_step(model, inputs, labels):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
    loss_of = nn.CrossEntropyLoss()

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss_of(model(inputs), labels).backward()
        optimizer.step()

    return step


def inference_step(model, inputs):
    def step():
        with torch.inference_mode():
            model(inputs)

    return step


def main():
    torch.set_num_threads(ARGS.threads)
    torch.set_num_interop_threads(1)
    torch.manual_seed(1)
    base_rss_mb = measure.rss_mb()
    batch, (height, width, channels), _ = nets.NETS[ARGS.net]
    inputs = torch.randn(batch, channels, height, width)
    labels = torch.randint(10, (batch,))
    model = network(ARGS.net).train(ARGS.mode == "train")
    if ARGS.variant in ("channels_last", "compile"):
        model = model.to(memory_format=torch.channels_last)
        inputs = inputs.to(memory_format=torch.channels_last)
    if ARGS.variant == "compile":
        model = torch.compile(model)
    if ARGS.variant == "frozen":
        if ARGS.mode == "train":
            sys.exit("error: `frozen` is for inference only")
        with torch.no_grad():
            model = torch.jit.optimize_for_inference(torch.jit.trace(model, inputs))
    step = (training_step(model, inputs, labels) if ARGS.mode == "train"
            else inference_step(model, inputs))
    measure.report(ARGS, NAMES[ARGS.variant], step, 1, base_rss_mb)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""PyTorch's side of the engine benchmark: networks A, B and C, training and inference.

Variants: `plain`, `channels_last` (its fast layout for convolutions), `compile` (TorchInductor,
where a C++ compiler is at hand) and `frozen` (inference only: batch norm folded into the
convolutions, oneDNN layouts, by torch.jit).
"""

import os
import sys

import measure

ARGS = measure.arguments(("plain", "channels_last", "compile", "frozen"))
os.environ["OMP_NUM_THREADS"] = str(ARGS.threads)

import torch  # noqa: E402 (the number of threads is read at import)
from torch import nn  # noqa: E402

NAMES = {"plain": "pytorch", "channels_last": "pytorch channels_last",
         "compile": "pytorch compile", "frozen": "pytorch frozen"}


class Block(nn.Module):
    """Two 3x3 convolutions with batch norm; a 1x1 projection where the size changes."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.short = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.short = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False),
                                       nn.BatchNorm2d(outputs))
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        y = self.relu(self.bn1(self.conv1(x)))
        return self.relu(self.bn2(self.conv2(y)) + self.short(x))


def network(name):
    if name == "A":
        return nn.Sequential(nn.Flatten(), nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 64),
                             nn.ReLU(), nn.Linear(64, 10))
    if name == "B":
        return nn.Sequential(
            nn.Conv2d(1, 32, 3), nn.ReLU(inplace=True), nn.Conv2d(32, 64, 3),
            nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(12 * 12 * 64, 128),
            nn.ReLU(inplace=True), nn.Linear(128, 10))
    blocks, inputs = [], 16
    for outputs, stride in ((16, 1), (32, 2), (64, 2)):
        for i in range(3):
            blocks.append(Block(inputs, outputs, stride if i == 0 else 1))
            inputs = outputs
    return nn.Sequential(nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16),
                         nn.ReLU(inplace=True), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                         nn.Linear(64, 10))


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
    batch, (height, width, channels), _ = measure.NETS[ARGS.net]
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

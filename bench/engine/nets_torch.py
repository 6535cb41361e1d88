"""Networks A, B and C in PyTorch."""

from torch import nn


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

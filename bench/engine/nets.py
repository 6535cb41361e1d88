"""What every side of a comparison must agree on about the networks."""

# Network: examples per step, input shape (height, width, channels), unit of the figures.
NETS = {
    "A": (100, (28, 28, 1), "step"),
    "B": (128, (28, 28, 1), "img"),
    "C": (128, (32, 32, 3), "img"),
}

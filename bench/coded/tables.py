"""What coded runs are measured on: a dense table that is drawn, and the credit table; recipes."""

import operator
import pathlib
import random
import struct

from harness import Failed

THRESHOLD, MACHINES = 4, 8
CREDIT = "credit-default/UCI_Credit_Card.csv"
# Of its 30,000 rows a third is held out.
CREDIT_EXAMPLES = 20_000
ONE_HOT = ["SEX", "EDUCATION", "MARRIAGE", "PAY_0", "PAY_2", "PAY_3", "PAY_4", "PAY_5", "PAY_6"]
AMOUNTS = [f"{what}{month}" for what in ("BILL_AMT", "PAY_AMT") for month in range(1, 7)]


def draw(folder, rows, width):
    """Dense rows as images of bytes, which are opened at once: both classes about as often, with
    noise near the border. A tenth as many are held out."""
    folder = pathlib.Path(folder)
    folder.mkdir()
    chance = random.Random(1)
    weights = [chance.gauss(0, 1) for _ in range(width)]
    middle, noise = 127.5 * sum(weights), 20 * width ** 0.5
    for part, count in (("train", rows), ("t10k", rows // 10)):
        images, labels = bytearray(), bytearray()
        for _ in range(count):
            row = chance.randbytes(width)
            images += row
            z = sum(map(operator.mul, row, weights)) - middle
            labels.append(int(z + chance.gauss(0, noise) > 0))
        head = struct.pack(">iiii", 0x803, count, 1, width)
        (folder / f"{part}-images-idx3-ubyte").write_bytes(head + images)
        head = struct.pack(">ii", 0x801, count)
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(head + labels)
    return folder


def dense(folder):
    return {"train": str(folder), "validation": None, "normalize": {"mean": [0.5], "std": [0.3]}}


def credit(folder):
    """The credit table, encoded as examples/credit-svm.yaml does; nothing where it is not here."""
    path = pathlib.Path(folder) / CREDIT
    if not path.is_file():
        return None
    return {"train": str(path.resolve()), "format": "csv", "validation": None, "test": 0.333333,
            "table": {"label": "default.payment.next.month", "positive": 1, "drop": ["ID"],
                      "one_hot": ONE_HOT,
                      "bins": [{"columns": ["LIMIT_BAL", "AGE"], "count": 11},
                               {"columns": AMOUNTS, "count": 10}]}}


def recipe(name, data, iterations, pool, **train):
    """A linear support vector machine; an iteration is an epoch of one step."""
    return {"name": name, "seed": 1, "pool": pool, "data": data,
            "model": {"layers": ["Flatten"] * ("table" not in data) + [{"Dense": {"units": 1}}]},
            "train": {"loss": "squared_hinge", "epochs": iterations,
                      "optimizer": {"sgd": {"learning_rate": 0.02, "momentum": 0.9}}} | train}


def coded(name, data, iterations, workers, precision, loss="squared_hinge"):
    code = {"threshold": THRESHOLD, "machines": MACHINES, "precision": precision}
    if loss == "mse":
        # The label is a number then, and no class.
        data = data | {"table": {k: v for k, v in data["table"].items() if k != "positive"}}
    return recipe(name, data, iterations, {"workers": workers, "threads": 1}, method="coded",
                  coded=code, loss=loss)


def plain(name, data, iterations, workers, redundancy, batch):
    """Data parallelism: a shard for each worker, all examples in a step."""
    return recipe(name, data, iterations, {"workers": workers, "servers": 1, "threads": 1},
                  batch=batch, shards=workers, redundancy=redundancy)


def weights(run):
    """Every weight of a run, from its weights.csv."""
    lines = (pathlib.Path(run) / "weights.csv").read_text().splitlines()[1:]
    return [float(line.rsplit(",", 1)[1]) for line in lines]


def distance(found, expected):
    """Largest difference, as a share of the largest weight."""
    if len(found) != len(expected):
        raise Failed(f"{len(found)} weights, expected {len(expected)}")
    return max(abs(a - b) for a, b in zip(found, expected)) / max(map(abs, expected))

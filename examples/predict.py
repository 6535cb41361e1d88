"""Labels for the rows of a table, by a network that planaria trained and nothing but numpy.

    pip install numpy safetensors
    python examples/predict.py runs/houses-20250131-120000 new-houses.csv

Networks of Dense layers with relu, on tables; `model.yaml` holds how columns become features.
"""
import csv
import json
import sys
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

run, rows = Path(sys.argv[1]), sys.argv[2]
weights = load_file(run / "model.safetensors")
# Each line is `key: JSON`, each layer `  - JSON`.
text = (run / "model.yaml").read_text().splitlines()
about = dict(line.split(": ", 1) for line in text if ": " in line and line[0] not in "# ")
layers = [json.loads(line[4:]) for line in text if line.startswith("  - ")]
if any("Dense" not in layer for layer in layers):
    sys.exit("this example knows Dense layers only")
layers = [layer["Dense"] for layer in layers]
table, classes = json.loads(about["table"]), json.loads(about["classes"])
# Numbers to predict were standardised while they were learned.
target = table["encoder"]["target"]
scale = target["Standard"] if "Standard" in target else {"mean": 0, "std": 1}


def features(row):
    for column in table["encoder"]["inputs"]["Columns"]:
        ((kind, code),) = column["code"].items()
        value = row[column["name"]].strip()
        is_missing = value.lower() in [text.lower() for text in table["section"]["missing_texts"]]
        if kind == "OneHot":
            yield from (float(value == name and not is_missing) for name in code)
        elif kind == "Standard":
            number = column["fill"] if is_missing else float(value)
            yield (number - code["mean"]) / code["std"]
        else:
            sys.exit(f"{column['name']}: this example does not know {kind}")


with open(rows, newline="", encoding="utf-8-sig") as file:
    lines = list(csv.reader(file, delimiter=table["section"]["delimiter"]))
width = len(lines[0])
names = lines.pop(0) if table["section"]["header"] else [f"column {i + 1}" for i in range(width)]
missing = [c["name"] for c in table["encoder"]["inputs"]["Columns"] if c["name"] not in names]
if missing:
    sys.exit(f"{rows} has no {missing}; its columns are {names}")

for line in lines:
    row = dict(zip(names, line))
    x = np.array(list(features(row)), dtype=np.float32)
    for number, layer in enumerate(layers):
        x = x @ weights[f"layers.{number}.kernel"] + weights[f"layers.{number}.bias"]
        x = np.maximum(x, 0) if layer["activation"] == "relu" else x
    print(classes[x.argmax()] if classes else x[0] * scale["std"] + scale["mean"])

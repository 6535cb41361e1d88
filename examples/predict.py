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
layers = [json.loads(line[4:])["Dense"] for line in text if line.startswith("  - ")]
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


for row in csv.DictReader(open(rows, newline=""), delimiter=table["section"]["delimiter"]):
    x = np.array(list(features(row)), dtype=np.float32)
    for number, layer in enumerate(layers):
        x = x @ weights[f"layers.{number}.kernel"] + weights[f"layers.{number}.bias"]
        x = np.maximum(x, 0) if layer["activation"] == "relu" else x
    print(classes[x.argmax()] if classes else x[0] * scale["std"] + scale["mean"])

"""What both peers share: arguments, timing, and the line of JSON that the driver reads."""

import argparse
import json
import pathlib
import sys
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "engine"))

from nets import NETS  # noqa: E402 (the networks are the engine benchmark's)

WORKERS = 2
LEARNING_RATE = 0.01
WARM_UP_S = 1.0
# After each sleep: caches and clock come back.
WAKE_UP_S = 0.2


def arguments(roles, variants=("plain",)):
    parser = argparse.ArgumentParser()
    parser.add_argument("--net", choices=NETS, required=True)
    parser.add_argument("--role", choices=roles, required=True)
    parser.add_argument("--variant", choices=variants, default=variants[0])
    return parser.parse_args()


def serve(net, take):
    """Warms up, then measures once for each line on stdin, which says for how many seconds.

    `take` does about that many global steps with all workers, waits for them and returns how many
    it were. How many fill the seconds is told from the steps before, so that no process looks at a
    clock on the way.
    """
    batch, _, unit = NETS[net]

    def timed(steps):
        start = time.perf_counter()
        taken = take(steps)
        return taken / (time.perf_counter() - start)

    def steps(rate, seconds):
        return max(1, round(rate * seconds))

    timed(2)
    rate = timed(2)
    rate = timed(steps(rate, WARM_UP_S))
    print(json.dumps({"ready": net}), flush=True)
    for line in sys.stdin:
        rate = timed(steps(rate, WAKE_UP_S))
        rate = timed(steps(rate, float(line)))
        print(json.dumps({"per_second": rate * (1 if unit == "step" else batch), "unit": unit}),
              flush=True)

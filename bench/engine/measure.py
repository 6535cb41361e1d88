"""What both peers share: arguments, timing, and the line of JSON that the driver reads."""

import argparse
import json
import resource
import sys
import time

from nets import NETS

WARM_UP_S = 1.0
WARM_UP_STEPS_MIN = 3
# After each sleep: caches and clock come back.
WAKE_UP_S = 0.2


def arguments(variants):
    parser = argparse.ArgumentParser()
    parser.add_argument("--net", choices=NETS, required=True)
    parser.add_argument("--mode", choices=("train", "infer"), required=True)
    parser.add_argument("--variant", choices=variants, default=variants[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=2.0, help="measured time, after warm-up")
    parser.add_argument("--serve", action="store_true",
                        help="measure once for each line on stdin, which says for how many seconds")
    return parser.parse_args()


def rss_mb():
    """Largest resident memory so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def report(args, engine, step, steps_per_call, base_rss_mb):
    """Warms up, measures and prints. `step` does `steps_per_call` steps and waits for them."""
    batch, _, unit = NETS[args.net]

    def steps_within(seconds, steps_min=1):
        start, steps = time.perf_counter(), 0
        while (elapsed := time.perf_counter() - start) < seconds or steps < steps_min:
            step()
            steps += steps_per_call
        return steps, elapsed

    def measure(seconds):
        steps_within(WAKE_UP_S)
        steps, elapsed = steps_within(seconds)
        print(json.dumps({
            "engine": engine, "net": args.net, "mode": args.mode, "threads": args.threads,
            "per_second": round(steps * (1 if unit == "step" else batch) / elapsed, 2),
            "unit": unit, "peak_rss_mb": round(rss_mb(), 1), "base_rss_mb": round(base_rss_mb, 1),
        }), flush=True)

    steps_within(WARM_UP_S, WARM_UP_STEPS_MIN)
    if not args.serve:
        measure(args.seconds)
        return
    print(json.dumps({"ready": engine}), flush=True)
    for line in sys.stdin:
        measure(float(line))

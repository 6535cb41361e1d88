"""Planaria's side of the cluster benchmark: recipes, runs, and what its processes use."""

import json
import lzma
import math
import os
import pathlib
import subprocess
import time

import measure
from harness import Failed, pin

# Network: layers, most examples per epoch. Few enough to be at hand after the first epoch, which
# warms up and is not counted.
MODELS = {
    "A": ({"preset": "mlp"}, 20_000),
    "B": ({"preset": "cnn"}, 12_800),
    "C": ({"preset": "resnet20"}, 9_984),
}
CALIBRATION_STEPS = 10
SAMPLE_EVERY_S = 0.25
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
STOP_TIMEOUT_S = 10


class Place:
    """Where Planaria runs: binary, a folder for recipes and runs, cores, the networks' data."""

    def __init__(self, binary, folder, cores, data):
        self.binary, self.folder, self.cores, self.data = binary, pathlib.Path(folder), cores, data
        self.recipes = 0

    def start(self, recipe):
        """A process that trains and prints its report."""
        self.recipes += 1
        path = self.folder / f"{recipe['name']}-{self.recipes}.yaml"
        recipe = recipe | {"output": {"dir": str(self.folder / "runs")}}
        path.write_text(json.dumps(recipe))  # JSON is YAML
        command = [*pin(self.cores), self.binary, "train", path, "--json", "--quiet"]
        return subprocess.Popen([str(c) for c in command], stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def train(self, recipes, timeout_s, watch=None):
        """Trains all at once and returns their reports. `watch` is called with the first process
        while it runs."""
        processes = []
        try:
            for number, recipe in enumerate(recipes):
                processes.append(self.start(recipe | {"name": f"{recipe['name']}-{number}"}))
            if watch:
                watch(processes[0])
            return [report(process, timeout_s) for process in processes]
        finally:
            for process in processes:
                stop(process)


def stop(process):
    """Asks, then kills; its agents end by themselves with it."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def report(process, timeout_s):
    try:
        out, errors = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired as error:
        raise Failed(f"no end within {timeout_s:.0f} s") from error
    if process.returncode != 0:
        said = [line for line in errors.splitlines() if line.startswith("error")]
        raise Failed("; ".join(said) or f"planaria ended with {process.returncode}")
    try:
        return json.loads(out)
    except json.JSONDecodeError as error:
        raise Failed(f"planaria printed no report: {error}") from error


def recipe(net, data, examples, epochs, batch, pool, shards):
    return {
        "name": f"bench-{net.lower()}", "seed": 1,
        "pool": {"provider": "local", "threads": 1} | pool,
        "data": {"train": data, "examples": examples, "validation": None},
        "model": MODELS[net][0],
        "train": {"epochs": epochs, "batch": batch, "shards": shards,
                  "optimizer": {"sgd": {"learning_rate": measure.LEARNING_RATE}}},
    }


def examples_per_second(report):
    """Over the epochs after the first, as peers are measured after a warm-up."""
    rates = [line["examples_per_second"] for line in report["curves"][1:]]
    if rates and all(rates):
        return len(rates) / sum(1 / rate for rate in rates)
    return report["examples_per_second"]


class Ours:
    """One way to train a network. Each measurement is a run of its own."""

    def __init__(self, place, net, workers, servers, shards, batch=None, copies=1):
        self.place, self.net, self.shards, self.copies = place, net, shards, copies
        self.batch = batch or measure.NETS[net][0]
        self.unit = measure.NETS[net][2]
        self.pool = {"workers": workers} | ({"servers": servers} if servers else {})
        self.rate = None  # examples per second of each copy

    def measure(self, seconds):
        if self.rate is None:
            self.run(CALIBRATION_STEPS * self.batch, 2, 300)
        rate, _ = self.run(*self.plan(seconds), seconds * 10 + 60)
        return {"per_second": rate / self.batch if self.unit == "step" else rate,
                "unit": self.unit}

    def plan(self, seconds):
        """Examples and epochs: one to warm up, the others take about these seconds."""
        wanted = self.rate * seconds
        epochs = max(2, math.ceil(wanted / MODELS[self.net][1]))
        return max(1, round(wanted / epochs / self.batch)) * self.batch, 1 + epochs

    def run(self, examples, epochs, timeout_s, watch=None):
        """Examples per second of all copies together, and the first one's report."""
        one = recipe(self.net, self.place.data[self.net], examples, epochs, self.batch, self.pool,
                     self.shards)
        reports = self.place.train([one] * self.copies, timeout_s, watch)
        rates = [examples_per_second(r) for r in reports]
        self.rate = sum(rates) / self.copies
        return sum(rates), reports[0]

    def stop(self):
        pass


# What the processes of a cluster use.


def cpu_use(ours, seconds):
    """Share of a core that each kind of agent takes in the middle of training, all of a kind
    together."""
    samples = []

    def watch(process):
        started = time.monotonic()
        while process.poll() is None:
            samples.append((time.monotonic() - started, agents(process.pid)))
            time.sleep(SAMPLE_EVERY_S)

    ours.measure(1.0)  # tells how many examples fill the seconds
    _, report = ours.run(*ours.plan(seconds), seconds * 10 + 60, watch)
    return shares(samples, report["seconds_to_first_step"], report["seconds_training"])


def shares(samples, first_step_s, training_s):
    """Kind of agent to its share of a core between a fifth and four fifths of training."""
    inside = [(at, ticks) for at, ticks in samples
              if first_step_s + 0.2 * training_s <= at <= first_step_s + 0.8 * training_s and ticks]
    if len(inside) < 2:
        raise Failed("no agent of the cluster was seen while it trained")
    (begin, before), (end, after) = inside[0], inside[-1]
    found = {}
    for pid, (kind, ticks) in after.items():
        used = ticks - before.get(pid, (kind, 0))[1]
        found[kind] = found.get(kind, 0.0) + used / TICKS_PER_S / (end - begin)
    return found | {"window_s": end - begin}


def agents(root):
    """Process to (kind, ticks used) of every `… agent KIND …` below the process `root`."""
    parents, kinds, used, found = {}, {}, {}, {}
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            stat = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            argv = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue  # it has ended
        pid = int(entry.name)
        parents[pid] = int(stat[1])
        used[pid] = int(stat[11]) + int(stat[12])
        if "agent" in argv[:-1]:
            kinds[pid] = argv[argv.index("agent") + 1]
    for pid, kind in kinds.items():
        ancestor = pid
        while ancestor in parents and ancestor != root:
            ancestor = parents[ancestor]
        if ancestor == root:
            found[pid] = (kind, used[pid])
    return found


def unpack_cifar(source, folder):
    """A folder with CIFAR-10's first batch, unpacked once so that no run has to, or None."""
    for path in (source / "cifar-10-binary/data_batch_1.bin.xz",
                 source / "cifar-10-binary/data_batch_1.bin"):
        if path.is_file():
            target = pathlib.Path(folder) / "cifar"
            target.mkdir()
            packed = path.read_bytes()
            plain = lzma.decompress(packed) if path.suffix == ".xz" else packed
            (target / "data_batch_1.bin").write_bytes(plain)
            return str(target)
    return None

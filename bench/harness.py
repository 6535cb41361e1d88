"""What benchmarks beside peers share: processes that sleep between rounds, rounds, tables."""

import argparse
import json
import os
import pathlib
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
START_TIMEOUT_S = 300
BUSY_LOAD = 0.5


class Failed(Exception):
    """An engine that does not start or answer; the others go on."""


class Sleeper:
    """Processes that have built and warmed up one network together and sleep until they are
    measured. The first of them is asked and answers. They do not outlive this process."""

    def __init__(self, commands, cores, environments):
        self.pending = b""
        self.processes = []
        self.errors = tempfile.TemporaryFile()
        try:
            for command, environment in zip(commands, environments):
                whole = ["setpriv", "--pdeathsig", "KILL", *pin(cores), *map(str, command)]
                self.processes.append(subprocess.Popen(
                    whole, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors,
                    env=os.environ | environment, bufsize=0))
            while "ready" not in self._line(START_TIMEOUT_S):
                pass
            self._signal(signal.SIGSTOP)
        except BaseException:
            self.stop()
            raise

    def measure(self, seconds):
        self._signal(signal.SIGCONT)
        self.processes[0].stdin.write(f"{seconds}\n".encode())
        row = self._line(seconds * 10 + 60)
        self._signal(signal.SIGSTOP)
        return row

    def stop(self):
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.wait()
            process.stdin.close()
            process.stdout.close()
        self.errors.close()

    def _signal(self, number):
        for process in self.processes:
            process.send_signal(number)

    def _line(self, timeout_s):
        """The next line of JSON, skipping what else the libraries print."""
        deadline = time.monotonic() + timeout_s
        out = self.processes[0].stdout
        while True:
            while b"\n" in self.pending:
                line, self.pending = self.pending.split(b"\n", 1)
                if line.startswith(b"{"):
                    return json.loads(line)
            if any(process.poll() is not None for process in self.processes):
                raise Failed(f"ended{self._last_words()}")
            left = deadline - time.monotonic()
            if left <= 0:
                raise Failed(f"no answer within {timeout_s:.0f} s{self._last_words()}")
            if select.select([out], [], [], min(left, 1.0))[0]:
                self.pending += os.read(out.fileno(), 65536)

    def _last_words(self):
        self.errors.seek(0)
        lines = self.errors.read().decode(errors="replace").strip().splitlines()
        return f": {lines[-1][:200]}" if lines else ""


def pin(cores):
    return ["taskset", "-c", ",".join(map(str, cores))]


def measure_all(engines, rounds, seconds):
    """Name to the rows of all rounds, forwards and backwards in turn. An engine that fails once is
    out."""
    rows = {name: [] for name in engines}
    for number in range(rounds):
        order = list(rows) if number % 2 == 0 else list(rows)[::-1]
        for name in order:
            try:
                rows[name].append(engines[name].measure(seconds))
            except Failed as error:
                talk(f"  {name} left out: {error}")
                del rows[name]
    return rows


def figure(rates):
    """A figure as it is kept: the median and the range."""
    return {"per_second": statistics.median(rates), "least": min(rates), "most": max(rates)}


# Tables.


def number(value):
    return "–" if value is None else f"{value:,.0f}"


def ratio(ours, other, goal=None):
    if not ours or not other:
        return "–"
    text = f"{ours / other:.2f}×"
    if goal:
        text += " ✓" if ours / other >= goal else f" ✗ ({goal}×)"
    return text


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"


def machine():
    model = "unknown processor"
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
            break
    return f"{model}, {os.cpu_count()} cores"


def versions(python):
    code = ("from importlib.metadata import version as v;"
            "print('PyTorch ' + v('torch') + ', TensorFlow ' + v('tensorflow'))")
    return subprocess.run([python, "-c", code], capture_output=True, text=True,
                          check=False).stdout.strip()


# Arguments and wiring.


def build(*what, profile="release"):
    """Builds with cargo and returns the folder of what was built."""
    command = ["cargo", "build", "--profile", profile, "--quiet", *what]
    if subprocess.run(command, cwd=ROOT, check=False).returncode != 0:
        raise Failed(f"`{' '.join(command)}` failed")
    return pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve() / profile


def peers_python():
    return f"{os.environ['PLANARIA_PEERS']}/bin/python" \
        if "PLANARIA_PEERS" in os.environ else sys.executable


def names(known):
    def parse(text):
        chosen = [part.strip() for part in text.split(",") if part.strip()]
        unknown = [part for part in chosen if part not in known]
        if unknown:
            raise argparse.ArgumentTypeError(f"unknown {unknown}; there are {list(known)}")
        return chosen

    return parse


def numbers(text):
    return [int(part) for part in text.split(",")]


def warn_when_busy():
    if os.getloadavg()[0] > BUSY_LOAD:
        talk(f"warning: the machine is busy (load {os.getloadavg()[0]:.1f}); figures will be low")


def talk(text):
    print(text, file=sys.stderr, flush=True)

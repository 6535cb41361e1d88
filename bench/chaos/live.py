"""A live run of planaria for benchmarks that break it: its processes, its events, what it leaves."""

import json
import os
import pathlib
import signal
import subprocess
import time

from harness import Failed

TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class Live:
    """A run under way. Killed with this process' help alone; ended when the block is left."""

    def __init__(self, binary, folder, recipe, *arguments, inside=(), environment=None):
        self.binary, self.folder = str(binary), pathlib.Path(folder)
        path = self.folder / f"{recipe['name']}.yaml"
        runs = self.folder / "runs"
        path.write_text(json.dumps(recipe | {"output": {"dir": str(runs)}}))  # JSON is YAML
        before = set(runs.glob("*")) if runs.exists() else set()
        command = [*inside, self.binary, "train", str(path), "--json", "--quiet", *arguments]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, text=True,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        env=os.environ | (environment or {}))
        self.run = wait(lambda: next(iter(set(runs.glob("*")) - before), None), 20,
                        "a run folder", self.process)
        self._read, self._events = 0, []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.process.stdout.close()
        self.process.stderr.close()

    def events(self):
        """All events so far; a line under way is left for the next time."""
        path = self.run / "events.jsonl"
        if path.exists():
            with path.open("rb") as file:
                file.seek(self._read)
                text = file.read()
            whole = text[:text.rfind(b"\n") + 1]
            self._read += len(whole)
            for line in whole.splitlines():
                try:
                    self._events.append(json.loads(line))
                except json.JSONDecodeError:
                    pass
        return self._events

    def find(self, since, *names):
        """The first event of these names after a moment."""
        for event in self.events():
            if event["unix_seconds"] > since and event["event"] in names:
                return event
        return None

    def expect(self, since, *names, within=30):
        return wait(lambda: self.find(since, *names), within, f"one of {names}", self.process)

    def agents(self, role=None):
        """Name to process of this run's agents, as the system knows them."""
        found = {}
        for entry in pathlib.Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
                state = (entry / "stat").read_text().rsplit(")", 1)[1].split()[0]
            except OSError:
                continue
            words = [word.decode(errors="replace") for word in words if word]
            if len(words) > 2 and words[1] == "agent" and words[-1] == self.run.name \
                    and state != "Z":
                name = words[2] if len(words) == 4 else f"{words[2]}-{words[3]}"
                if role is None or words[2] == role:
                    found[name] = int(entry.name)
        return found

    def report(self, timeout_s):
        try:
            out, errors = self.process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired as error:
            raise Failed(f"no end within {timeout_s:.0f} s") from error
        if self.process.returncode != 0:
            raise Failed(f"planaria ended with {self.process.returncode}: {errors[-500:]}")
        return json.loads(out)

    def command(self, *arguments, check=True):
        done = subprocess.run([self.binary, *arguments[:1], str(self.run), *arguments[1:]],
                              capture_output=True, text=True, check=False)
        if check and done.returncode != 0:
            raise Failed(f"`planaria {' '.join(arguments)}` ended with {done.returncode}: "
                         f"{done.stderr[-300:]}")
        return done


def wait(look, within, what, process=None):
    """What `look` finds, looked for again and again."""
    deadline = time.monotonic() + within
    while True:
        found = look()
        if found:
            return found
        if process is not None and process.poll() is not None:
            raise Failed(f"the run ended while {what} was waited for")
        if time.monotonic() > deadline:
            raise Failed(f"no {what} within {within} s")
        time.sleep(0.005)


def kill(pid, number=signal.SIGKILL):
    """Sends a signal and says when."""
    at = time.time()
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return None
    return at


def resident_mib(pid):
    try:
        for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmRSS"):
                return int(line.split()[1]) / 1024
    except OSError:
        pass
    return None


def descriptors(pid):
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return None

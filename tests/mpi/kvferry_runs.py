"""Starts the program under mpirun, for the tests of this folder."""

import json
import os
import subprocess
import sys
import tempfile


class Runs:
    def __init__(self, program, launcher):
        self.program = program
        self.launcher = launcher
        self.failures = []
        self.count = 0
        self.folder = tempfile.TemporaryDirectory(prefix="kvferry-test-")

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def write(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)
        return self.path(name)

    def start(self, ranks, *words, seconds=60):
        """Return code and both outputs together; ranks 0 = without a launcher."""
        command = [self.program, *words] if ranks == 0 else [self.launcher, str(ranks), self.program, *words]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=seconds, check=False)
        return done.returncode, done.stdout

    def start_script(self, ranks, script, *words, seconds=60, variables=None):
        """As start, each rank under a shell script, where "$@" is the program with its words."""
        done = subprocess.run([self.launcher, str(ranks), "sh", "-c", script, "sh", self.program, *words],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=seconds,
                              check=False, env={**os.environ, **(variables or {})})
        return done.returncode, done.stdout

    def start_shell(self, ranks, *words, seconds=60, variables=None):
        """As start, under a shell that says how each rank ended."""
        return self.start_script(ranks, '"$@"; echo "ended with $?"', *words, seconds=seconds, variables=variables)

    def fail(self, what, output=""):
        self.failures.append(what)
        print(f"FAILED {what}")
        if output:
            print("    " + output.strip().replace("\n", "\n    "))

    def figures(self, ranks, *words, seconds):
        """Name, output and figures of a `kvferry run` that must end well; figures None: it did not, which is noted."""
        self.count += 1
        name = f"{ranks} ranks: {' '.join(words)}"
        path = self.path(f"figures-{self.count}.json")
        code, output = self.start(ranks, "run", "--json", path, *words, seconds=seconds)
        if code != 0 or not os.path.exists(path):
            self.fail(f"{name}: status {code}", output)
            return name, output, None
        with open(path, encoding="utf-8") as file:
            return name, output, json.load(file)

    def right(self, ranks, *words, seconds=60):
        """A `kvferry run` that must be byte-right; returns its figures."""
        name, output, figures = self.figures(ranks, *words, seconds=seconds)
        if figures is None:
            return None
        wrong = [key for key, want in (("ok", figures["requests"]), ("failed", 0), ("cancelled", 0),
                                       ("bad_bytes", 0), ("blocks_leaked", 0), ("retained_blocks_end", 0),
                                       ("unexpected", 0), ("unlike", 0), ("not_once", 0)) if figures[key] != want]
        if figures["payload_bytes"] != figures["sent_bytes"] or figures["checked_bytes"] == 0:
            wrong.append("payload_bytes")
        if wrong:
            self.fail(f"{name}: {', '.join(f'{key} {figures[key]}' for key in wrong)}", output)
            return None
        print(f"ok {name}: {figures['payload_bytes']} bytes")
        return figures

    def planted(self, ranks, words, *more, seconds=60):
        """A `kvferry run` with faults of these words, each planted at least once and just as they must
        show; returns its figures."""
        name, output, figures = self.figures(ranks, *more, seconds=seconds)
        if figures is None:
            return None
        wrong = [key for key in ("bad_bytes", "blocks_leaked", "retained_blocks_end", "stranded_blocks_end",
                                 "unexpected", "unplanned", "missing", "not_once", "unlike", "bad_calls",
                                 "refused")
                 if figures[key] != 0]
        wrong += [word for word in words if figures["planted"][word] == 0]
        if sum(figures["ends"].values()) != figures["requests"] or figures["ends"].get("OK", 0) == 0:
            wrong.append("ends")
        if wrong:
            self.fail(f"{name}: {', '.join(wrong)}: {figures}", output)
            return None
        print(f"ok {name}: {figures['ends']}")
        return figures

    def model(self, name, **keys):
        """Writes a model file; keys are written as they stand, None leaves one out."""
        facts = {"name": name, "layers": 4, "kv_heads": 4, "head_dim": 16, "dtype": "bf16", "block": 16,
                 "layout": "HND", **keys}
        lines = [f"{key}: {value}\n" for key, value in facts.items() if value is not None]
        return self.write(f"{name}.yaml", "".join(lines))

    def plan(self, *words):
        """(status, answer or None, standard error) of `kvferry plan --json`."""
        done = subprocess.run([self.program, "plan", "--json", *words], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, timeout=60, check=False)
        return done.returncode, json.loads(done.stdout) if done.returncode == 0 else None, done.stderr

    def refused(self, ranks, code, values, *words, status=3):
        """A `kvferry run` that ends with one message `CODE: text`, which has these values."""
        self.count += 1
        name = f"{ranks} ranks: {' '.join(words)}"
        returned, output = self.start(ranks, "run", "--requests", "3", "--max-tokens", "150", *words)
        said = [line for line in output.splitlines() if line.startswith("kvferry: ")]
        if returned != status or len(said) != 1 or not said[0].startswith(f"kvferry: {code}: ") or \
                any(str(value) not in said[0] for value in values):
            self.fail(f"{name}: status {returned} (want {status}), want {code} with {values}", output)
        else:
            print(f"ok {said[0]}")

    def done(self):
        print(f"{self.count} runs, {len(self.failures)} failed")
        sys.exit(1 if self.failures else 0)

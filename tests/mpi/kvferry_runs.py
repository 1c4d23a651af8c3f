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

    def fail(self, what, output=""):
        self.failures.append(what)
        print(f"FAILED {what}")
        if output:
            print("    " + output.strip().replace("\n", "\n    "))

    def right(self, ranks, *words, seconds=60):
        """A `kvferry run` that must be byte-right; returns its figures."""
        self.count += 1
        name = f"{ranks} ranks: {' '.join(words)}"
        figures_path = self.path(f"figures-{self.count}.json")
        code, output = self.start(ranks, "run", "--json", figures_path, *words, seconds=seconds)
        if code != 0 or not os.path.exists(figures_path):
            self.fail(f"{name}: status {code}", output)
            return None
        with open(figures_path, encoding="utf-8") as file:
            figures = json.load(file)
        wrong = [key for key, want in (("ok", figures["requests"]), ("failed", 0), ("cancelled", 0),
                                       ("bad_bytes", 0), ("blocks_leaked", 0), ("retained_blocks_end", 0),
                                       ("unexpected", 0)) if figures[key] != want]
        if figures["payload_bytes"] != figures["sent_bytes"] or figures["checked_bytes"] == 0:
            wrong.append("payload_bytes")
        if wrong:
            self.fail(f"{name}: {', '.join(f'{key} {figures[key]}' for key in wrong)}", output)
            return None
        print(f"ok {name}: {figures['payload_bytes']} bytes")
        return figures

    def done(self):
        print(f"{self.count} runs, {len(self.failures)} failed")
        sys.exit(1 if self.failures else 0)

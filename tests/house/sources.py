"""What the house checks share: the tree's files, and C text without comments and strings."""

import os
import re
import sys

FOLDERS_OF_CODE = ("runtime", "kernels", "launch", "tests")
SUFFIXES_OF_CODE = (".c", ".h", ".cc", ".cpp", ".cu", ".cuh")
SKIPPED_DIRS = {".git", ".deps", "build", "__pycache__"}


class Report:
    """Collects findings; done() prints them and gives the exit code."""

    def __init__(self, name):
        self.name = name
        self.findings = []
        self.looked_at = 0

    def add(self, path, line, text):
        self.findings.append(f"{path}:{line}: {text}" if line else f"{path}: {text}")

    def done(self):
        for finding in self.findings:
            print(finding)
        print(f"{self.name}: {self.looked_at} files, {len(self.findings)} findings")
        if self.looked_at == 0:
            print(f"{self.name}: no file found: wrong tree?")
            return 1
        return 1 if self.findings else 0


def tree_of(argv):
    """The tree to look at: the argument, or the one that holds this file."""
    if len(argv) > 1:
        return os.path.abspath(argv[1])
    return os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))


def all_files(top):
    """Every file of the tree that is ours, as paths relative to it, sorted."""
    found = []
    for folder, dirs, names in os.walk(top):
        dirs[:] = sorted(d for d in dirs if d not in SKIPPED_DIRS)
        for name in names:
            path = os.path.join(folder, name)
            if not os.path.islink(path):
                found.append(os.path.relpath(path, top))
    return sorted(found)


def code_files(top):
    return [f for f in all_files(top)
            if f.split(os.sep)[0] in FOLDERS_OF_CODE and f.endswith(SUFFIXES_OF_CODE)]


def read(top, path):
    with open(os.path.join(top, path), encoding="utf-8", errors="replace") as file:
        return file.read()


_NOISE = re.compile(
    r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.DOTALL)


def bare(text):
    """C text with comments blanked and strings emptied; lines stay where they were."""
    def blank(match):
        found = match.group(0)
        if found.startswith("/"):
            return re.sub(r"[^\n]", " ", found)
        return found[0] + " " * (len(found) - 2) + found[-1]
    return _NOISE.sub(blank, text)


def line_of(text, offset):
    return text.count("\n", 0, offset) + 1


def sources_of_target(top, target):
    """Files that runtime/ and kernels/ list for a CMake target, one a line, as paths from the top."""
    found = []
    for folder in ("runtime", "kernels"):
        path = os.path.join(folder, "CMakeLists.txt")
        if not os.path.exists(os.path.join(top, path)):
            continue
        text = re.sub(r"#[^\n]*", "", read(top, path))
        for block in re.findall(r"target_sources\(\s*" + target + r"\s+PRIVATE(.*?)\)", text, re.DOTALL):
            found += [os.path.join(folder, name) for name in block.split() if not name.startswith("$")]
    return found


def main_guard(function):
    sys.exit(function(tree_of(sys.argv)))

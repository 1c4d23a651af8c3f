"""Wraps comment lines that are too wide, where that is safe: format --fix runs it before clang-format.

The words that do not fit go to the front of the next line of the same comment, or to a line of their
own. A comment behind code is left to its author.
"""

import re
import sys

COLUMNS_MAX = 100


def wrap(lines):
    out = list(lines)
    i = 0
    while i < len(out):
        line = out[i]
        alone = re.match(r"^(\s*)/\* (\S.*) \*/$", line)
        if len(line) > COLUMNS_MAX and alone:
            indent = alone.group(1)
            out[i:i + 1] = [f"{indent}/*", f"{indent} * {alone.group(2)}", f"{indent} */"]
            continue
        inside = re.match(r"^(\s*)(\* |/\* )(?=\S)", line)
        if len(line) > COLUMNS_MAX and inside:
            prefix = inside.group(0)
            cut = line.rfind(" ", len(prefix), COLUMNS_MAX + 1)
            if cut > 0:
                rest = line[cut + 1:]
                out[i] = line[:cut].rstrip()
                below = inside.group(1) + (" * " if prefix.endswith("/* ") else "* ")
                following = out[i + 1] if i + 1 < len(out) else ""
                # Joins the next line of running text, never a list item or a new sentence's line.
                if following.startswith(below) and re.match(r"[a-z(]", following[len(below):]):
                    out[i + 1] = below + rest + " " + following[len(below):]
                else:
                    out.insert(i + 1, below + rest)
        i += 1
    return out


for path in sys.argv[1:]:
    with open(path, encoding="utf-8") as file:
        before = file.read().split("\n")
    after = wrap(before)
    if after != before:
        with open(path, "w", encoding="utf-8") as file:
            file.write("\n".join(after))

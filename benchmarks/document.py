"""Where measured tables go: one section of a Markdown file per benchmark, replaced when it is run again."""

import datetime
import importlib.metadata
import os
import platform
from pathlib import Path


def versions(*names: str) -> str:
    """What was measured, with what, and when. A library that is not installed is said to be missing."""
    found = [f"Python {platform.python_version()}"]
    for name in names:
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            found.append(f"{name} missing")
    return ", ".join(found) + f"; {datetime.date.today()}"


def machine() -> str:
    """What else was at work: a table of a busy machine says so itself."""
    return f"{os.cpu_count()} processors, load average before it {os.getloadavg()[0]:.1f}"


def write_section(path: Path, key: str, text: str) -> None:
    """Replace, or append, the section of this key in a Markdown file."""
    start, end = f"<!-- {key} -->", f"<!-- /{key} -->"
    section = f"{start}\n{text}\n{end}\n"
    old = path.read_text() if path.exists() else "# Benchmarks\n"
    if start in old:
        head, rest = old.split(start, 1)
        path.write_text(head + section + rest.split(end + "\n", 1)[1])
    else:
        path.write_text(old.rstrip("\n") + "\n\n" + section)

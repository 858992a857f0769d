"""The site: ``python3 dev.py site``. What follows from the code (names, commands, errors) is read off it here."""

import ast
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))

import tacit  # noqa: E402
from tacit.commands.app import COMMANDS, app  # noqa: E402

project, author, release = "Tacit", "The Tacit maintainers", tacit.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
html_theme, html_title = "furo", f"Tacit {release}"
myst_heading_anchors = 3
exclude_patterns = ["README.md"]
autodoc_typehints, autodoc_member_order = "signature", "alphabetical"
napoleon_use_rtype, napoleon_numpy_docstring = False, False
html_static_path = ["pictures"]
autodoc_mock_imports = ["transformers", "lightning", "flwr"]  # extras that the site is built without


def setup(application: Any) -> None:
    application.connect("source-read", _complete)
    application.connect("autodoc-process-docstring", _keep_bars)
    application.connect("autodoc-skip-member", lambda _, kind, name, *rest: name.endswith("_request") or None)


def _keep_bars(application: Any, kind: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    """Norms are written |x|, which would be a reference; an example stays as it is."""
    in_example = False
    for place, line in enumerate(lines):
        in_example = bool(line.strip()) and (in_example or line.lstrip().startswith(">>>"))
        lines[place] = line if in_example else line.replace("|", "\\|")


def _complete(application: Any, page: str, source: list[str]) -> None:
    """Pages that end in what the code says."""
    more = {"reference/commands": _commands, "reference/errors": _errors, "reference/names": _names}.get(page)
    if more is not None:
        source[0] += "\n" + "\n".join(more())


def _commands() -> Iterator[str]:
    from typer.main import get_command

    group: Any = get_command(app)
    with group.make_context("tacit", ["demo"], resilient_parsing=True) as context:
        for name in COMMANDS:
            yield from _helped(group.get_command(context, name), f"tacit {name}", context)


def _helped(command: Any, name: str, parent: Any) -> Iterator[str]:
    with type(parent)(command, info_name=name.split()[-1], parent=parent) as context:
        yield from (f"## {name}\n", "```text", command.get_help(context), "```\n")
        for inner in getattr(command, "commands", {}):
            yield from _helped(command.get_command(context, inner), f"{name} {inner}", context)


def _errors() -> Iterator[str]:
    """Every message that the code raises on purpose, by the part that raises it; {} stands for what was found."""
    for path in sorted((ROOT / "src" / "tacit").rglob("*.py")):
        found = [(error, text) for error, text in _raised(ast.parse(path.read_text())) if len(text) > 12]
        if found:
            yield f"## `{path.relative_to(ROOT / 'src').as_posix()}`\n"
            yield from (f"- {error}: `` {text} ``" for error, text in sorted(set(found)))
            yield ""


def _raised(tree: ast.AST) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and isinstance(node.exc.func, ast.Name):
            message = node.exc.args[0] if node.exc.args else None
            yield node.exc.func.id, " ".join(_text(message).replace("`", "'").split())


def _text(node: ast.AST | None) -> str:
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=values):
            return "".join(_text(value) if isinstance(value, ast.Constant) else "{}" for value in values)
        case ast.BinOp(left=left, right=right):
            return _text(left) + _text(right)
    return ""


def _names() -> Iterator[str]:
    """The names of the top, and the room in which each is described."""
    for module, names in sorted(tacit._HOME.items()):
        listed = ", ".join(f"`tacit.{name}`" for name in sorted(names))
        yield f"- {listed}: see [{module}](rooms/{module.partition('.')[2]}.md). {_first_line(module)}"


def _first_line(module: str) -> str:
    return (import_module(module).__doc__ or "").splitlines()[0].rstrip(":")

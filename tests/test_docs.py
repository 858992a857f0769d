"""Fenced Python in README and docs runs, commands shown are there, every public name has an example that runs.

A page's Python runs as one script in an empty folder. What a page needs is said here, and nowhere else.
"""

import ast
import importlib
import inspect
import re
import tomllib
from pathlib import Path

import pytest

import tacit as package
from tacit.commands.app import COMMANDS, app
from tools.notebooks import PAGES as NOTEBOOKS

ROOT = Path(__file__).parent.parent
PAGES = {str(page.relative_to(ROOT)): page.read_text() for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]}
FENCE = re.compile(r"^ *```([^\n`]*)\n(.*?)^ *```", re.M | re.S)
NEEDS_DATA = {"docs/reference/rooms/data.md"}
ELSEWHERE = {  # pages whose Python is not run here, and where it is
    "docs/opacus.md": "test_opacus_page.py, and BERT with docs/integrations.md; Opacus's own lines are only shown",
    "docs/ranks.md": "tests/distributed/test_jobs.py, on two ranks",
    "docs/integrations.md": "tests/integrations, by dev.py integrations and dev.py flower",
} | {f"docs/tutorials/{name}.md": "test_notebooks.py" for name in NOTEBOOKS}
SHELL = {"docs/tutorials/table.md": "test_notebooks.py", "docs/study.md": "test_study.py"}
INDENTED = re.compile(r"^\n((?: {4}[^\n]*\n)+)", re.M)
PICTURES = {"docs/design.md", "docs/explanation/step.md"}
NOTATION = {"docs/internals.md", "docs/maths.md"}  # types and formulas
COMMANDS_ONLY = {"docs/regression.md", "docs/tables.md"}  # still indented; their commands are compared below
KINDS = {"python", "console", "bash", "toml", "text", "{toctree}", "{eval-rst}", ""}


def blocks(page, kind):
    return [code for info, code in FENCE.findall(PAGES[page]) if info.split(" ")[0] == kind]


def pages_with(kind):
    return sorted(page for page in PAGES if blocks(page, kind))


def test_every_kind_of_block_is_known():
    found = {info.split(" ")[0] for text in PAGES.values() for info, _ in FENCE.findall(text)}
    assert found <= KINDS
    assert set(pages_with("bash")) == set(SHELL)


@pytest.mark.parametrize("page", [page for page in pages_with("python") if page not in ELSEWHERE])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of libraries that a page shows
def test_the_python_of_a_page_runs(page, tmp_path, monkeypatch, request):
    if page in NEEDS_DATA:
        monkeypatch.setenv("TACIT_DATA", str(request.getfixturevalue("data_folder")))
    monkeypatch.setenv("MPLBACKEND", "Agg")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    names = {"__name__": "__page__"}
    for number, code in enumerate(blocks(page, "python"), start=1):
        exec(compile(code, f"{page}, block {number}", "exec"), names)


def test_the_readme_trains_and_says_what_it_cost(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for code in blocks("README.md", "python"):
        exec(compile(code, "README.md", "exec"), {})
    assert capsys.readouterr().out
    assert len(list(tmp_path.rglob("ledger.jsonl"))) >= 2


def option_names(words):
    from typer.main import get_command

    group = get_command(app)
    with group.make_context("tacit", ["demo"], resilient_parsing=True) as context:
        command = group.get_command(context, words[0])
        inner = getattr(command, "commands", {}).get(words[1] if len(words) > 1 else "", command)
    return {name for parameter in inner.params for name in parameter.opts} | {"--help"}


def command_lines(page):
    for code in [*blocks(page, "console"), *re.findall(r"(?:^ {4}tacit .*\n)+", PAGES[page], re.M)]:
        for line in code.replace("\\\n", " ").splitlines():
            if line.lstrip().startswith("tacit ") and not line.lstrip().startswith("tacit --"):
                yield line.split("  #")[0].split()[1:]


@pytest.mark.parametrize("page", sorted({*pages_with("console"), *COMMANDS_ONLY}))
def test_commands_that_a_page_shows_are_there(page):
    for words in command_lines(page):
        assert words[0] in COMMANDS, words
        asked = {word.split("=")[0] for word in words if word.startswith("--")}
        assert asked <= option_names(words), words


def test_extras_that_a_page_shows_are_there():
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    shown = {extra for text in PAGES.values() for extra in re.findall(r"pip install '?tacit\[(\w+)\]", text)}
    assert shown
    assert shown <= set(declared)


@pytest.mark.parametrize("page", sorted({*PAGES} - PICTURES - NOTATION - COMMANDS_ONLY))
def test_all_code_of_a_page_is_in_a_block_that_is_run_or_checked(page):
    prose = re.sub(r"^(?:[-*]|\d+\.) .*\n(?:\n? +[^\n]*\n)*", "", FENCE.sub("", PAGES[page]), flags=re.M)
    assert INDENTED.findall(prose) == []


@pytest.mark.parametrize("page", pages_with("toml"))
def test_settings_that_a_page_shows_can_be_read(page):
    for code in blocks(page, "toml"):
        tomllib.loads(code)


# ---- public names ----

ROOMS = [*package._ROOMS, "accountants.bayesian", "accountants.pld"]


def public_names(room):
    module = importlib.import_module(f"tacit.{room}")
    defined = (name for name, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__)
    listed = getattr(module, "__all__", None)
    return listed if listed is not None else [name for name in defined if is_public_class(module, name)]


def is_public_class(module, name):
    return not name.startswith("_") and inspect.isclass(getattr(module, name))


def used_names(page):
    trees = [ast.parse(code) for code in blocks(page, "python")]
    for node in (node for tree in trees for node in ast.walk(tree)):
        match node:
            case ast.Attribute(attr=name) | ast.Name(id=name):
                yield name


def without_example(room):
    """Neither in its own docstring nor in the page of its room."""
    module = importlib.import_module(f"tacit.{room}")
    used = set(used_names(f"docs/reference/rooms/{room.split('.')[0]}.md"))
    shown = (name for name in public_names(room) if ">>>" not in (inspect.getdoc(getattr(module, name)) or ""))
    return [name for name in shown if name not in used]


@pytest.mark.parametrize("room", ROOMS)
def test_every_public_name_has_an_example(room):
    assert without_example(room) == []


def test_every_name_at_the_top_is_one_of_a_room():
    assert set(package._HOME) <= {f"tacit.{room}" for room in ROOMS}


def test_every_room_has_its_page():
    assert {f"docs/reference/rooms/{room}.md" for room in package._ROOMS} <= set(PAGES)


# ---- claims ----

CLAIM = re.compile(r"^\| ([^|]+) \| [^|]+ \| `([^`]+)` \| `([^`]+)` \| [^|]+ \| [\d-]+ \| ([0-9a-f]{7,}) \|$", re.M)
CLAIMS = CLAIM.findall(PAGES["docs/claims.md"])


@pytest.mark.parametrize(("claim", "page"), [(claim, page) for claim, page, _, _ in CLAIMS])
def test_a_claim_stands_on_its_page(claim, page):
    assert claim in " ".join(PAGES[page].replace("|", "/").split())


def test_every_share_in_the_readme_is_a_claim():
    found = set(re.findall(r"\d+\.\d+ %", PAGES["README.md"]))
    claimed = " ".join(claim for claim, page, _, _ in CLAIMS if page == "README.md") + PAGES["docs/claims.md"]
    assert found
    assert {share for share in found if share not in claimed} == set()


SCRIPTS = sorted({word for claim in CLAIMS for word in claim[2].split() if word.endswith(".py")})


@pytest.mark.parametrize("command", SCRIPTS)
def test_what_makes_a_claim_is_there(command):
    assert (ROOT / command).exists()


def test_the_readme_takes_five_minutes():
    assert len(PAGES["README.md"].splitlines()) < 120

"""The package as a whole: who imports whom, what is public, what examples do."""

import ast
import doctest
import importlib
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import tacit
from tools.house import REASONS, House, cycle, long_things, longest_chain

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "tacit"

ROW = re.compile(r"^\| `(\w+)` \| .* \| ([\w, -]+) \|$", re.M)  # of the table of rooms in docs/design.md
ALLOWED = {
    room: None if names == "everything" else set(re.findall(r"\w+", names))
    for room, names in ROW.findall((ROOT / "docs" / "design.md").read_text())
}
EVERYBODY = {"errors", "types"}  # may be imported by all


HOUSE = House(ROOT, tacit._MODULE)


def modules():
    return [path for path in HOUSE.files if path.parent != PACKAGE or path.stem in ALLOWED]


def home(path):
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(path):
    return {name.split(".")[1] for name in HOUSE.import_names(path) if name.startswith("tacit.")}


def test_the_fence_sees_every_form_of_import(tmp_path):
    forms = ["import tacit.sampling.units", "from tacit import training", "from tacit import Budget",
             "def f():\n    from tacit.posteriors import Draws", "if x:\n    import tacit.pate as p"]  # fmt: skip
    for form, room in zip(forms, ["sampling", "training", "accountants", "posteriors", "pate"], strict=True):
        (tmp_path / "m.py").write_text(form)
        assert imported(tmp_path / "m.py") == {room}


def test_modules_import_each_other_without_cycles():
    assert cycle(HOUSE.graph()) == []


def test_a_cycle_of_modules_is_found_and_the_longest_chain():
    assert set(cycle({"a": {"b"}, "b": {"c"}, "c": {"a"}})) == {"a", "b", "c"}
    assert longest_chain({"a": {"b", "d"}, "b": {"c"}, "c": {"d"}, "d": set()}) == ["a", "b", "c", "d"]


def test_what_is_long_has_a_reason():
    assert long_things(HOUSE).keys() == REASONS.keys()


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_one_way(path):
    allowed = ALLOWED[home(path)]
    if allowed is not None:
        assert imported(path) <= allowed | {home(path), *EVERYBODY}


def test_the_table_of_rooms_is_the_house():
    assert ALLOWED.keys() == {home(path) for path in PACKAGE.iterdir() if path.suffix in ("", ".py")} - {
        "__init__",
        "__main__",
        "__pycache__",
    }
    for room, allowed in ALLOWED.items():
        used = {name for path in modules() if home(path) == room for name in imported(path)}
        assert allowed is None or allowed == used - {room, *EVERYBODY}, room


@pytest.mark.parametrize("package", ["ledger", "evidence", "accountants", "tables", "queries", "release"])
def test_reading_and_accounting_do_not_touch_torch(package):
    for path in (PACKAGE / package).rglob("*.py"):
        assert not any(name.split(".")[0] == "torch" for name in HOUSE.import_names(path)), path


def test_reading_a_run_needs_no_torch():
    code = "import sys, tacit.runs.folder, tacit.reports, tacit.release; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_public_name_is_there():
    for name in tacit.__all__:
        assert getattr(tacit, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        tacit.nothing  # noqa: B018


def test_a_name_that_has_moved_says_where_it_is():
    assert len(tacit.__all__) <= 46
    for name, where in tacit._FORMER.items():
        with pytest.warns(DeprecationWarning, match=f"tacit.{name} is now {where};"):
            found = getattr(tacit, name)
        home, _, now = where.rpartition(".")
        assert found is getattr(importlib.import_module(home), now)


@pytest.mark.parametrize(
    ("room", "name", "now"),
    [
        ("gradients", "replace_batch_norm", "tacit.layers.replace_batch_norm"),
        ("inference", "Adam", "AdamDescent"),
        ("likelihoods", "ScaleMixture", "GaussianMixture"),
        ("queries", "Asked", "QueryRequest"),
    ],
)
def test_a_name_that_was_changed_still_works(room, name, now):
    module = getattr(tacit, room)
    with pytest.warns(DeprecationWarning, match=f"tacit.{room}.{name} is now {now};"):
        found = getattr(module, name)
    home, _, last = now.rpartition(".")
    assert found is getattr(importlib.import_module(home) if home else module, last)
    with pytest.raises(AttributeError, match="nothing"):
        module.nothing  # noqa: B018


def test_subpackages_need_no_import_of_their_own():
    code = "import tacit; print(tacit.inference.SGHMC, tacit.likelihoods.Poisson, tacit.accountants.bayesian)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_type_checkers_see_the_same_names():
    tree = ast.parse((PACKAGE / "__init__.py").read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    seen = {alias.asname for node in block.body for alias in node.names}
    assert seen == {*tacit.__all__, *tacit._ROOMS} - {"__version__"}


def test_importing_tacit_is_cheap():
    code = "import sys, tacit; assert not {'torch', 'numpy', 'scipy'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_no_command_waits_for_torch_before_it_needs_it():
    code = "import sys, tacit.commands.app; assert not {'torch', 'sklearn', 'matplotlib', 'pyarrow'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


MODULES = [module.name for module in pkgutil.walk_packages(tacit.__path__, "tacit.")]


@pytest.mark.parametrize("name", [name for name in MODULES if not name.endswith("__main__")])
def test_examples_in_docstrings_run(name):
    try:
        module = importlib.import_module(name)
    except ImportError:
        if not name.startswith("tacit.integrations."):
            raise
        pytest.skip("needs an optional extra")
    assert doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE).failed == 0


def test_no_file_names_this_machine():
    for path in ROOT.rglob("*"):
        if path.suffix in {".py", ".md", ".toml", ".txt"} and not str(path.relative_to(ROOT)).startswith(".venv"):
            assert "/wo" + "rk/" not in path.read_text(), path

"""The floor plan in numbers: files, lines, crowded folders, import chains and cycles, what is long.

    python tools/house.py [ROOT]

Another ROOT (a checkout of an earlier version) gives the numbers to compare with; ``tests/test_package.py`` reads the
imports by the same functions. ``tools/walk.py`` counts how far a reader has to walk.
"""

import ast
import hashlib
import statistics
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

CROWDED = 12  # files of a folder
LONG_FILE, LONG_FUNCTION = 300, 40  # lines; of a function those that are neither signature nor docstring
# What is longer, and why it is not taken apart; tests/test_package.py knows no other.
REASONS = {
    "accountants/pld/lattice/composition.py": "one bound: its rounding is proved over the whole composition",
    "gradients/clipped_sum.py": "the one way from records to their clipped sum",
    "layers/convolution.py": "a form of the gradients for each shape of layer",
    "gradients/known_networks.py": "the formula of a network, from its inputs to its losses and back",
    "gradients/recognition.py": "a case for each call that a known network is made of",
    "isolation/guard.py": "all that must be as it was, the user's things and PyTorch's",
    "isolation/parts.py": "a case for each kind of Python object",
    "isolation/rows.py": "all that a call inside the losses passes through",
    "kernels/calls.py": "a function for each kernel that sums, measures, pools or draws",
    "kernels/comparisons.py": "a comparison for each of them",
    "layers/record_gradients.py": "the forms of gradients and the rounding that bounds them",
    "likelihoods.py": "a class for each likelihood",
    "mechanisms/gaussian_sum.py": "one mechanism: sensitivity, noise and what the ledger is charged must agree",
    "tables/encoding.py": "what becomes of a cell, whatever it holds",
    "tables/files.py": "a reader for each kind of file",
    "training/private_sum.py": "the order in which a run charges, draws and releases",
    "training/reading/samples.py": "a sample and the portions it is read in",
    "isolation/facts.py measurer": "a case for each kind of Python object",
    "isolation/parts.py _by_kind": "a case for each kind of Python object",
    "tables/recipes.py recipe": "the settings in the order in which they follow from each other",
}
DRAWN, SEED = 10, 17  # functions, drawn at random


class House:
    """The modules of a package and what they import; the papers' scripts, which use what is public, are none of it."""

    def __init__(self, root: Path, public: Mapping[str, str] | None = None) -> None:
        self.package, self.public = root / "src" / "tacit", public or {}
        scripts = self.package / "reproduction" / "papers"
        self.files = sorted(path for path in self.package.rglob("*.py") if not path.is_relative_to(scripts))
        self.names = {self.name_of(path) for path in self.files}

    def name_of(self, path: Path) -> str:
        parts = path.relative_to(self.package).with_suffix("").parts
        return ".".join(("tacit", *parts)).removesuffix(".__init__")

    def import_names(self, path: Path, tree: ast.AST | None = None) -> Iterator[str]:
        """The modules that a file imports, at its top or inside a function, in any form; not what only types need."""
        for node in ast.iter_child_nodes(tree or ast.parse(path.read_text())):
            match node:
                case ast.ImportFrom():
                    for alias in node.names:
                        module = f"{node.module}.{alias.name}"
                        if node.module == "tacit" and module not in self.names:
                            yield self.public.get(alias.name, "tacit")
                        else:
                            yield module if module in self.names else node.module or ""
                case ast.Import():
                    yield from (alias.name for alias in node.names)
                case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                    continue
                case _:
                    yield from self.import_names(path, node)

    def graph(self) -> dict[str, set[str]]:
        """What each module imports of the package. The front door, which imports on demand, stands apart."""
        needs = {self.name_of(path): set(self.import_names(path)) & self.names for path in self.files}
        return {name: found - {name, "tacit"} for name, found in needs.items() if name != "tacit"}


def cycle(graph: Mapping[str, set[str]]) -> list[str]:
    """The modules of a cycle, the first one twice; empty if there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def longest_chain(graph: Mapping[str, set[str]]) -> list[str]:
    @cache
    def below(name: str) -> tuple[str, ...]:
        return (name, *max((below(other) for other in sorted(graph.get(name, ()))), key=len, default=()))

    return list(max((below(name) for name in sorted(graph)), key=len))


def functions(house: House) -> list[tuple[str, str, int, int]]:
    """File, name, lines, and lines of the body (without signature and docstring) of every function and method."""
    found = []
    for path in house.files:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                body, end = node.body[1 if ast.get_docstring(node) is not None else 0 :], node.end_lineno or 0
                inside = end - body[0].lineno + 1 if body else 0
                found.append((str(path.relative_to(house.package)), node.name, end - node.lineno + 1, inside))
    return found


def long_things(house: House) -> dict[str, int]:
    """Files, and functions by file and name, that are longer than they should be."""
    files = {str(path.relative_to(house.package)): len(path.read_text().splitlines()) for path in house.files}
    found = {file: size for file, size in files.items() if size > LONG_FILE}
    return found | {f"{file} {name}": body for file, name, _, body in functions(house) if body > LONG_FUNCTION}


def describe(house: House) -> Iterator[str]:
    lines = {str(path.relative_to(house.package)): len(path.read_text().splitlines()) for path in house.files}
    yield f"{len(lines)} files, {sum(lines.values()):,} lines"
    folders = Counter(str(path.parent.relative_to(house.package)) for path in house.files if path.stem != "__init__")
    crowded = {folder: count for folder, count in folders.items() if count > CROWDED}
    yield f"folders with more than {CROWDED} files: {len(crowded)} {crowded or ''}"
    graph = house.graph()
    found = cycle(graph)
    yield f"cycle of modules: {' -> '.join(found) or 'none'}"
    if not found:
        chain = longest_chain(graph)
        yield f"longest import chain: {len(chain)} modules: {' -> '.join(name[6:] for name in chain)}"
    every = functions(house)
    sizes = sorted(size for _, _, size, _ in every)
    yield (
        f"{len(sizes):,} functions: {statistics.median(sizes):g} lines at the median, "
        f"{sizes[int(0.95 * len(sizes))]} at 95 %, {sizes[-1]} the longest"
    )
    for what, size in long_things(house).items():
        yield f"long: {what}, {size} lines: {REASONS.get(what, 'no reason is given')}"
    named = {(file, name) for file, name, _, _ in every if not name.startswith("__")}
    yield f"{DRAWN} functions at random; would a stranger know the room from the name?"
    yield from (f"  {name:32} {file}" for file, name in sorted(named, key=_draw)[:DRAWN])


def _draw(function: tuple[str, str]) -> bytes:
    """A place in a random order that stays when other functions come and go."""
    return hashlib.sha256(f"{SEED} {function}".encode()).digest()


if __name__ == "__main__":
    print("\n".join(describe(House(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent.parent))))

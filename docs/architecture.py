"""Draws which package imports which, into CONTRIBUTING.md: `make architecture`.

An arrow that others imply is left out: what imports `simulator`, which imports `observation`, may import both.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "CONTRIBUTING.md"
NAMES = ("rllib_scale", "rllib_scale_analysis")
"""As they are imported; the folder of the second is analysis/."""
HELPERS = {"__init__", "__main__", "__version__", "compiled", "errors", "files", "plugins", "presets"}
"""Modules at the top, which are small and imported from everywhere, and a name that is no module."""
BLOCK = re.compile(r"```mermaid\n.*?```\n", flags=re.DOTALL)


def imported(tree: ast.AST) -> Iterator[str]:
    """Full names that a module imports, also in functions, but not for type checking alone."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        else:
            yield from imported(node)


def graph() -> dict[str, set[str]]:
    """Package -> the packages that it imports."""
    found: dict[str, set[str]] = {}
    for folder in ("rllib_scale", "analysis"):
        for path in {*(ROOT / folder).rglob("*.py")} - {*ROOT.glob("analysis/studies/**/*.py")}:
            own = folder if folder == "analysis" else path.relative_to(ROOT / folder).parts[0].removesuffix(".py")
            for name in imported(ast.parse(path.read_text(encoding="utf-8"))):
                top, _, rest = name.partition(".")
                other = "analysis" if top == "rllib_scale_analysis" else rest.partition(".")[0]
                if top in NAMES and not {own, other} & HELPERS and other not in ("", own):
                    found.setdefault(own, set()).add(other)
    return found


def mermaid() -> str:
    """The picture, of the arrows that no others imply."""
    edges = graph()

    def reached(name: str) -> set[str]:
        return edges.get(name, set()).union(*map(reached, edges.get(name, ())))

    direct = {a: {b for b in edges[a] if b not in set().union(*map(reached, edges[a]))} for a in edges}
    arrows = [f"    {a} --> {b}\n" for a in sorted(direct) for b in sorted(direct[a])]
    return "```mermaid\ngraph TD\n" + "".join(arrows) + "```\n"


if __name__ == "__main__":
    PAGE.write_text(BLOCK.sub(mermaid(), PAGE.read_text(encoding="utf-8")), encoding="utf-8")

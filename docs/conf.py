"""The site of `make docs`: README, the pages of docs/ and of the analyses as they stand, docstrings as API pages."""

from __future__ import annotations

import inspect
import shutil
import sys
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_type_hints

from pydantic import BaseModel
from pygments.lexers.special import TextLexer
from rllib_scale_analysis.variants import DERIVED_COLUMNS
from sphinx.application import Sphinx
from sphinx.util.typing import stringify_annotation

from rllib_scale import __version__
from rllib_scale.envs.scheduling import CandidatesEnv, SchedulingEnv
from rllib_scale.results.columns import (
    EPISODE_COLUMNS,
    FEATURE_COLUMNS,
    HISTORY_COLUMNS,
    PROBLEM_COLUMNS,
    PROTOCOL_COLUMNS,
    SCHEDULER_COLUMNS,
    TRAINING_COLUMNS,
    TRAININGS_COLUMNS,
)

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "docs"))
from public import API  # noqa: E402

PAGES = """
```{toctree}
:hidden:
:caption: %s

%s
```
"""
DIRECTIVE = "```{eval-rst}\n.. %s\n```\n"
COMMANDS = DIRECTIVE % "click:: rllib_scale.cli:main\n   :prog: rllib-scale\n   :nested: full"


def write_api() -> None:
    """The generated pages, in docs/api."""
    folder = ROOT / "docs" / "api"
    folder.mkdir(exist_ok=True)
    (folder / "commands.md").write_text(f"# Options of the commands\n\n{COMMANDS}", encoding="utf-8")
    for name, (title, modules) in API.items():
        imported = "\n   :imported-members:"
        parts = [DIRECTIVE % f"automodule:: {each}{imported * (each == 'rllib_scale.config')}" for each in modules]
        (folder / f"{name}.md").write_text("\n".join([f"# {title}\n", *parts]), encoding="utf-8")


write_api()
CONTENTS = {
    "Contents": ("docs/README",),
    "Tutorials": ("docs/quickstart", "docs/tutorial"),
    "How-to guides": (
        "docs/which-scheduler",
        "docs/sweeps",
        "docs/cluster",
        "docs/slurm",
        "docs/workloads",
        "docs/extending",
        "docs/imitation",
        "docs/library",
        "docs/live",
        "docs/onnx",
        "docs/replicas",
    ),
    "Reference": (
        "docs/commands",
        "docs/api/commands",
        "docs/files",
        *(f"docs/api/{name}" for name in API),
    ),
    "Explanation": ("docs/concepts", "docs/simulator", "docs/statistics"),
    "Results": (
        "analysis/studies/README",
        *sorted(f"analysis/studies/{page.parent.name}/README" for page in ROOT.glob("analysis/studies/*/README.md")),
    ),
    "Project": ("CONTRIBUTING", "CHANGELOG"),
}
TABLES = {
    "episodes: one row per evaluation episode": EPISODE_COLUMNS,
    "training: one row per training epoch": TRAINING_COLUMNS,
    "trainings: one row per finished training": TRAININGS_COLUMNS,
    "features: one row per policy, setting and number of servers": FEATURE_COLUMNS,
    "history: one row per setting that PBT changed": HISTORY_COLUMNS,
    "schedulers: one row per training, rule and given policy": SCHEDULER_COLUMNS,
    "problems: one row per problem and its origin": PROBLEM_COLUMNS,
    "protocols: one row per way of asking policies": PROTOCOL_COLUMNS,
    "Of all rows that `rllib_scale_analysis.load` returns, beside their own": DERIVED_COLUMNS,
}

project = "rllib_scale"
version = release = __version__
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_click"]
root_doc = "README"
include_patterns = [f"{page}.*" for pages in CONTENTS.values() for page in pages] + ["README.md"]
myst_heading_anchors = 3  # links to headings as GitHub names them
nb_execution_mode = "off"  # it is committed with its outputs; tests/browser/test_site.py executes it
autodoc_default_options = {"members": True, "member-order": "bysource", "exclude-members": "model_config, Grid"}
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
default_role = "code"  # docstrings set names in single backticks
highlight_language = "none"  # of blocks that name no language: commands and what they print
html_theme = "furo"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_title = f"rllib_scale {release}"
html_copy_source = html_show_sourcelink = False


def add_contents(app: Sphinx, name: str, source: list[str]) -> None:
    """The table of contents, the columns of the tables, and docstrings in Markdown, Gymnasium's form."""
    if name == root_doc:
        source[0] += "".join(PAGES % (caption, "\n".join(pages)) for caption, pages in CONTENTS.items())
    if name == "docs/api/tables":
        for title, columns in TABLES.items():
            rows = (
                f"| `{column}` | {dtype} | {meaning.replace('|', '&#124;')} |"
                for column, (dtype, meaning) in columns.items()
            )
            source[0] += "\n".join(
                (f"\n## {title}\n", "| column | type | meaning [unit] |", "|---|---|---|", *rows, "")
            )
    if name == "docs/api/envs":
        for environment in (SchedulingEnv, CandidatesEnv):
            described = str(inspect.getdoc(environment)).replace("\n## ", "\n### ")
            source[0] += f"\n## `{environment.__name__}`\n\n{described}\n"


def describe_fields(app: Sphinx, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """The fields of a model, its whole signature, each with its type and what its `Field` says."""
    if what == "class" and issubclass(thing, BaseModel):
        types = get_type_hints(
            SimpleNamespace(__annotations__={key: field.annotation for key, field in thing.model_fields.items()})
        )
        for key, field in thing.model_fields.items():
            value = field.get_default(call_default_factory=True)
            shown = f"{type(value).__name__}()" if isinstance(value, BaseModel) else repr(value)
            default = "required" if field.is_required() else f"default `{shown}`"
            lines += [f":param {key}: {field.description or ''} ({default})"]
            lines += [f":type {key}: {stringify_annotation(types[key], 'smart')}"]


def without_metadata(app: Sphinx, thing: Any, is_bound: bool) -> None:
    """Types as they are read: `int` in place of `Annotated[int, ...]`."""
    if inspect.isfunction(thing):
        with suppress(NameError):  # a name that is imported for type checkers alone
            thing.__annotations__ = get_type_hints(thing)


def hide_signature(app: Sphinx, what: str, name: str, thing: Any, options: Any, *_: Any) -> tuple[str, str] | None:
    """No signature for models."""
    return ("", "") if what == "class" and issubclass(thing, BaseModel) else None


def open_with_readme(app: Sphinx, error: Exception | None) -> None:
    """A browser that opens the folder is shown README."""
    if error is None and app.builder.name == "html":
        shutil.copy(Path(app.outdir, f"{root_doc}.html"), Path(app.outdir, "index.html"))


def setup(app: Sphinx) -> None:
    """What Sphinx calls."""
    for language in ("csv", "mermaid"):  # GitHub draws the second
        app.add_lexer(language, TextLexer)
    app.connect("source-read", add_contents)
    app.connect("autodoc-process-docstring", describe_fields)
    app.connect("autodoc-process-signature", hide_signature)
    app.connect("autodoc-before-process-signature", without_metadata)
    app.connect("build-finished", open_with_readme)

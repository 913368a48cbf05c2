"""The site of `make docs`: built without a warning, no link is dead, and pages fit a screen and a telephone."""

from __future__ import annotations

import copy
import os
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote, urldefrag

import nbformat
import pytest
from nbclient import NotebookClient
from playwright.sync_api import Page

pytestmark = [pytest.mark.slow, pytest.mark.browser]
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the site, built by the line of the Makefile."""
    folder = tmp_path_factory.mktemp("site").resolve() / "docs"
    (line,) = re.findall(r"^\t\$\(VENV\)/bin/python (-m sphinx .*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    command = [sys.executable, *line.replace("build/docs", str(folder)).split()]
    built = subprocess.run(command, cwd=ROOT, env=os.environ, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    return folder


def test_every_page_and_file_that_the_site_links_to_is_there(site: Path) -> None:
    pages = {page: page.read_text(encoding="utf-8") for page in site.rglob("*.html")}
    written = {f"docs/{path.stem}.html" for path in (ROOT / "docs").glob("*.md")}
    assert written <= {str(page.relative_to(site)) for page in pages}
    for page, text in pages.items():
        for link in re.findall(r'(?:href|src)="([^"]+)"', text):
            target, part = urldefrag(unquote(re.sub(r"\?v=\w+", "", link)))
            if re.match(r"[a-z]+:", target):
                continue
            there = (page.parent / target).resolve() if target else page
            assert there.exists(), f"{page.relative_to(site)}: {link}"
            if part and there in pages:
                assert f'id="{part}"' in pages[there], f"{page.relative_to(site)}: {link}"


def test_readme_is_the_front_page_and_what_the_code_says_is_on_its_pages(site: Path) -> None:
    assert "which router for my agents?" in (site / "index.html").read_text(encoding="utf-8")
    api = {page.stem: page.read_text(encoding="utf-8") for page in (site / "docs" / "api").glob("*.html")}
    assert "env steps between copies to the target network" in api["config"], "the description of a field"
    assert "Action Space" in api["envs"]
    assert "--reuse" in api["commands"], "options of the commands"
    assert "jct_p95_s" in api["tables"], "columns of the tables"
    assert [name for name, text in api.items() if "Annotated" in text or "FieldInfo" in text] == [], (
        "types as one reads them"
    )


CUT = """[...document.querySelectorAll("pre")].filter((box) => box.scrollWidth > box.clientWidth + 1)
    .map((box) => box.innerText.slice(0, 60))"""


@pytest.mark.parametrize("width", [1280, 390])
def test_pages_fit_the_screen(site: Path, page: Page, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    for name in ("index", "docs/replicas", "docs/tutorial", "docs/api/config", "analysis/studies/any-cluster/README"):
        page.goto((site / f"{name}.html").as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") <= width, name
        if width == 1280 and name in ("index", "docs/replicas"):
            assert page.evaluate(CUT) == [], "commands and what they print are shown whole"


def test_the_tutorial_runs_and_rules_play_as_it_shows(site: Path, tmp_path: Path) -> None:
    committed = nbformat.read(ROOT / "docs" / "tutorial.ipynb", as_version=4)
    executed = copy.deepcopy(committed)
    NotebookClient(executed, timeout=900, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = [texts(notebook) for notebook in (committed, executed)]
    (training,) = (k for k, cell in enumerate(committed.cells) if cell.source.startswith("## A training"))
    assert shown[0][:training] == shown[1][:training], "what trains differs from machine to machine"
    assert [bool(of) for of in shown[0]] == [bool(of) for of in shown[1]], "committed with all outputs"
    page = (site / "docs" / "tutorial.html").read_text(encoding="utf-8")
    assert len(re.findall(r'<img [^>]*src="[^"]+\.png"', page)) == 2, "the schedules and the learning curves"
    said = ["12 workflows, 72 tasks", "60 episodes and 16 epochs", "mine against fastest-idle: response"]
    assert [text for text in [*said, "no interval (2 seeds)"] if text not in page] == []


def texts(notebook: nbformat.NotebookNode) -> list[list[str]]:
    """What each cell prints and shows as text, without addresses in memory."""
    return [
        [
            re.sub(r" at 0x\w+", "", output.get("text") or output.get("data", {}).get("text/plain", ""))
            for output in cell.get("outputs", [])
        ]
        for cell in notebook.cells
    ]

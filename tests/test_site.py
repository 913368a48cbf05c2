"""The site of `make docs`: it is built without a warning, and every link on it leads somewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[1]


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
    assert "Your own workflow" in (site / "index.html").read_text(encoding="utf-8")
    config = (site / "docs" / "api" / "config.html").read_text(encoding="utf-8")
    assert "env steps between copies to the target network" in config, "the description of a field"
    assert "Action Space" in (site / "docs" / "api" / "envs.html").read_text(encoding="utf-8")
    assert "--reuse" in (site / "docs" / "api" / "commands.html").read_text(encoding="utf-8"), "options of the commands"
    assert "jct_p95_s" in (site / "docs" / "api" / "tables.html").read_text(encoding="utf-8"), "columns of the tables"


def test_the_tutorial_is_executed(site: Path) -> None:
    notebook = (ROOT / "docs" / "tutorial.ipynb").read_text(encoding="utf-8")
    assert notebook.count('"outputs": []') == notebook.count('"cell_type": "code"'), "committed without outputs"
    page = (site / "docs" / "tutorial.html").read_text(encoding="utf-8")
    assert len(re.findall(r'<img [^>]*src="[^"]+\.png"', page)) == 2, "the schedules and the learning curves"
    shown = ["12 workflows, 72 tasks", "80 epochs on problems of any cluster", "60 episodes and 16 epochs"]
    shown += ["mine against fastest-idle: response", "no interval (2 seeds)"]
    assert [text for text in shown if text not in page] == []
    assert re.search(r"price against fastest-idle: -\d+\.\d\d s, no interval \(rules\)", page)

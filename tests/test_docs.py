"""The documentation: the site builds without a warning, loads nothing from another host, and its commands exist."""

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
import typer.main
import yaml

from zero.cli.app import app

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
COMMANDS = typer.main.get_group(app).commands
LOADS = {
    "script": "src",
    "img": "src",
    "iframe": "src",
    "source": "src",
    "link": "href",
    "use": "href",
    "object": "data",
}
"""Attributes from which a browser loads without a click, by tag."""
START = r"(?:^|[;&|] *|\$ |\bexec |python -m )"
"""Before a command in a line of a shell."""


class _Loads(HTMLParser):
    """Collects what a page loads, and the anchors of its headings."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.anchors: set[str] = set()
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.addresses.append(values.get(LOADS.get(tag, ""), ""))
        self.anchors.add(values.get("id", ""))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return folder


def test_site_loads_nothing_from_another_host(site: Path) -> None:
    addresses = [address for page in site.rglob("*.html") for address in _Loads(page.read_text()).addresses]
    addresses += [
        address for sheet in site.rglob("*.css") for address in re.findall(r"url\((.*?)\)", sheet.read_text())
    ]
    assert len(addresses) > 1000
    assert [address for address in addresses if re.match(r"[\"']?(\w+:)?//", address)] == []
    # Material loads the library for diagrams from a CDN if a page has one; ours are pictures
    assert [page for page in site.rglob("*.html") if 'class="mermaid"' in page.read_text()] == []


def test_site_explains_every_command_and_parameter(site: Path) -> None:
    anchors = _Loads((site / "all-commands" / "index.html").read_text()).anchors
    assert {f"zero-{name}" for name, command in COMMANDS.items() if not command.hidden} <= anchors
    assert "zero-worker" not in anchors
    assert (
        "<code>c_puct</code></td>\n<td>float, &gt; 0.0, ≤ 100.0</td>"
        in (site / "all-parameters" / "index.html").read_text()
    )


def test_results_and_decisions_are_pages(site: Path) -> None:
    assert "Machine B" in (site / "results" / "index.html").read_text()
    assert len(list(site.glob("decisions/*/index.html"))) == len(list((ROOT / "docs/decisions").iterdir()))


def test_the_example_of_a_player_runs(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    examples = re.findall(r"```python\n(.*?)```", (ROOT / "docs/api.md").read_text(), re.DOTALL)
    (example,) = (each for each in examples if "open_session" in each)
    exec(example, {})
    assert re.fullmatch(r"[A-J][1-9]|pass", capsys.readouterr().out.strip())


def test_the_example_of_an_evaluator_plays_a_game(capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs/extending.md").read_text(), re.DOTALL)
    assert example.count("\n") <= 25
    exec(example, {"__name__": "example"})
    moves = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert 10 < len(moves) <= 50 and all(re.fullmatch(r"[A-E][1-5]|pass", name) for name, *_ in moves)
    # each value is for the player to move, so the players agree on who wins
    assert float(moves[-1][2]) * float(moves[-2][2]) < 0


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_on_a_page_exist(page: Path) -> None:
    text = page.read_text()
    blocks = re.findall(r"```[a-z]*\n(.*?)```|^    (\S[^\n]*)|`([^`]+)`", text, re.DOTALL | re.MULTILINE)
    code = "\n".join(fenced + indented + " ".join(inline.split()) for fenced, indented, inline in blocks)
    code = re.sub(r'"[^"\n]*"', "", code)  # command lines of other programs
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    flows = [each["name"] for each in yaml.safe_load((ROOT / "prefect.yaml").read_text())["deployments"]]
    assert set(re.findall(START + r"make ([a-z-]+)", code, re.MULTILINE)) <= set(targets)
    assert set(re.findall(r"deployment run (?:zero-[a-z]+/)?(zero-[a-z]+)", code)) <= set(flows)
    for name, arguments in re.findall(START + r"zero ([a-z]+)\b([^#|&;\n]*)", code, re.MULTILINE):
        assert name in COMMANDS, f"zero {name}{arguments}"
        known = {option for each in COMMANDS[name].params for option in each.opts} | {"--help"}
        assert set(re.findall(r"--[a-z-]+", arguments)) <= known, f"zero {name}{arguments}"

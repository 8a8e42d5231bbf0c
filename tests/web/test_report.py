"""The report of a generation: what it has, what it lacks, and the file and command that show it."""

import base64
import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.web.made_lineage import NUM_GAMES, make_lineage, make_project, weights
from zero.cli.app import app
from zero.cli.report import report_file
from zero.errors import LineageError, StorageError
from zero.statistics import wilson_interval
from zero.web import assets, report
from zero.web.assets import vega_bundle
from zero.web.report import GenerationReport, report_html, report_of


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lineage whose last generation has games, and one that was rolled back."""
    home = make_project(tmp_path_factory.mktemp("project"))
    make_lineage(home, "go9", ["start", "promoted", "refused", "promoted"])
    make_lineage(home, "back", ["start", "promoted", "refused", "rollback"])
    return home


@pytest.fixture
def cli(home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> CliRunner:
    monkeypatch.setenv("ZERO_HOME", str(home))
    monkeypatch.chdir(tmp_path)
    return CliRunner()


def data_of(page: str) -> str:
    """The JSON in a page as the browser reads it: up to the first end tag."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script', page, re.DOTALL)
    assert found
    return found[1]


def test_a_generation_with_games_has_everything(home):
    found = report_of(home, "go9/gen-0003")
    assert (found.kind, found.champion_generation, found.opponent_generation) == ("decision", 3, 1)
    assert found.decision and found.decision.challenger == weights("go9", 3) and found.decision.match.score == 0.7
    assert found.interval == wilson_interval(0.7, found.decision.match.unique_games)
    assert found.previous and found.previous.tag == "go9/gen-0002" and found.next_generation is None
    assert found.numbers.values["value_loss"] == 0.64 and found.numbers.values["seconds"] == 7400
    assert found.numbers.curve and found.numbers.curve["constant_value_loss"] == (0.99,) * 10
    assert found.selfplay and found.selfplay.ended == {"passes": 4, "resignation": 2}
    assert found.match and found.match.results == {"B": 10, "W": 10, "D": 0}
    assert found.match.ended and sum(found.match.ended.values()) == NUM_GAMES
    assert found.selfplay.lengths and sum(found.selfplay.lengths.values()) == NUM_GAMES
    assert found.openings and all(len(opening.moves) == 4 for opening in found.openings)
    assert sum(opening.share for opening in found.openings) == pytest.approx(1)
    assert found.board and (found.board.game, found.board.rows) == ("go", 5)
    assert found.costs and found.resignation and found.resignation.used.would_have_won == 4


def test_the_digests_are_those_of_the_record(home):
    found = report_of(home, "go9/gen-0003").provenance
    commit = re.fullmatch(r"[0-9a-f]{40}", found.commit or "")
    assert commit and found.parent and found.parent != found.commit
    assert found.challenger == weights("go9", 3) and found.opponent == weights("go9", 1)
    assert found.inputs == {"source": f"{3:040x}", "data/games/shard-0000.parquet": "e" * 64}
    assert found.code == {"selfplay": "b" * 64}
    assert len(found.signatures) == 1
    assert found.shards and [(shard.path, shard.is_here) for shard in found.shards] == [
        ("data/games/shard-0000.parquet", True),
        ("data/match/shard-0000.parquet", True),
    ]


def test_what_the_record_lacks_is_none(home):
    found = report_of(home, "go9/gen-0002")
    assert found.openings is None and found.costs is None and found.provenance.shards is None
    assert found.provenance.attestation is None and found.provenance.signatures == ()
    assert found.selfplay and found.selfplay.lengths is None and found.selfplay.results
    assert found.match and found.match.ended is None and found.match.results
    assert found.numbers.values["seconds"] is None and found.next_generation == 3


def test_generations_without_stages_have_reports(home):
    start, back = report_of(home, "go9/gen-0000"), report_of(home, "back")
    assert (start.kind, start.decision, start.previous, start.numbers.values) == ("start", None, None, {})
    assert (back.kind, back.source, back.health) == ("rollback", "back/gen-0001", None)


def test_the_health_is_the_recorded_one(home):
    found = report_of(home, "go9/gen-0003").health
    assert found and (found.verdict, found.explained_variance, found.findings) == ("healthy", 0.31, ())


@pytest.mark.parametrize("target", ["go9/gen-0004", "nobody", "nobody/gen-0001", "../go9", "GO9"])
def test_unknown_generations(home, target):
    with pytest.raises(LineageError, match=r"^unknown "):
        report_of(home, target)


def test_a_corrupt_shard_is_named(tmp_path):
    home = make_project(tmp_path)
    make_lineage(home, "go9", ["start", "promoted"])
    for path in (home / ".zero/dvc-cache/files/md5").glob("*/*"):
        if path.read_bytes().startswith(b"PAR1"):
            path.write_bytes(b"PAR1 and nothing else")
    with pytest.raises(StorageError, match=r"data/games/shard-0000.parquet of go9/gen-0001 is not a shard"):
        report_of(home, "go9")


def test_the_file_needs_nothing_else_and_no_text_ends_a_script(home):
    found = report_of(home, "go9")
    hostile = '</script><script>alert(1)</script><!-- "'
    page = report_html(found.model_copy(update={"source": hostile, "tag": hostile})).decode()
    parsed = GenerationReport.model_validate_json(data_of(page))
    assert parsed.source == hostile and "<script>alert" not in page
    ours = page.replace(vega_bundle().read_text(), "")
    assert len(ours) < len(page) and not re.search(r"<(?:script|link|img|iframe)[^>]*(?:src|href)=", ours)
    modules = json.loads(re.findall(r'<script type="importmap">(.*?)</script>', page, re.DOTALL)[0])["imports"]
    for address in modules.values():
        text = base64.b64decode(address.partition("base64,")[2]).decode()
        wanted = re.findall(r'^import .* from "([^"]+)"', text, re.MULTILINE)
        assert set(wanted) <= modules.keys(), "relative imports do not work in a file"


def test_vega_is_made_once(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    path = vega_bundle()
    assert path.parent == tmp_path / "zero" and "vegaEmbed" in path.read_text()
    path.write_text("kept")
    assert vega_bundle().read_text() == "kept"


def test_a_cache_that_cannot_be_written_has_a_remedy(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr("vl_convert.javascript_bundle", lambda snippet: "")
    with pytest.raises(StorageError, match="set XDG_CACHE_HOME to a folder that can be written"):
        assets.vega_bundle()


def test_the_command_writes_a_file_or_json(home, cli, tmp_path):
    done = cli.invoke(app, ["report", "go9/gen-0003", "--out", "a.html"], catch_exceptions=False)
    assert done.stdout == "a.html: the report of go9/gen-0003\n"
    written = GenerationReport.model_validate_json(data_of((tmp_path / "a.html").read_text()))
    printed = cli.invoke(app, ["report", "go9", "--json"], catch_exceptions=False)
    assert GenerationReport.model_validate_json(printed.stdout) == written == report_of(home, "go9/gen-0003")


def test_an_error_in_the_report_is_a_warning(home, monkeypatch, capsys):
    assert data_of(report_file(home, "go9/gen-0003")["report.html"].decode())

    def fails(*_: object) -> None:
        raise RuntimeError("no board")

    monkeypatch.setattr(report, "generation_report", fails)
    assert report_file(home, "go9/gen-0003") == {}
    line = "warning: go9/gen-0003 has no report: no board; write it with `zero report go9/gen-0003`"
    assert capsys.readouterr().err.splitlines() == [line]

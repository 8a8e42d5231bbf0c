"""The JSON interface of lineages and ladders, on lineages made without games."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.web.made_lineage import advance, make_lineage, make_project
from tests.web.made_record import MadeLineage, games
from tests.web.serving import Client
from zero.config.params import GoParams
from zero.evaluation.elo import Fit
from zero.evaluation.ladder import CurvePoint, Entry, Ladder, LadderRow, Scale
from zero.evaluation.tournament import Standing, Tournament, write_tournament
from zero.record import costs
from zero.record.ledger import lineages_here
from zero.storage.files import canonical_json, write_atomic
from zero.web import lineages, players
from zero.web.app import new_app
from zero.web.report import report_of

GAME = GoParams(name="go", size=5)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = make_project(tmp_path_factory.mktemp("project"))
    make_lineage(home, "go9", ["start", "promoted", "refused", "rollback", "promoted"])
    make_lineage(home, "kid", ["branch", "refused"], source="go9/gen-0001")
    write_atomic(home / ".zero/workspaces/broken/record/ledger.jsonl", b"{}\n")
    return home


@pytest.fixture
def home(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "home"))


@pytest.fixture
def get(home: Path) -> Callable[[str], httpx.Response]:
    return Client(new_app(home)).get


def write_ladder(home: Path, lineage: str) -> None:
    entry = Entry(
        key="a" * 64,
        name=f"{lineage}/gen-0001",
        kind="network",
        conditions="c",
        simulations=20,
        generation=1,
        text=None,
    )
    point = CurvePoint(
        generation=1, tag=entry.name, key=entry.key, elo=120.0, low=80.0, high=160.0, games=24, seconds=None
    )
    ladder = Ladder(
        lineage=lineage,
        game=GAME,
        conditions="c",
        simulations=20,
        scales=(Scale(reference="first", elo=0.0, is_anchor=False, num_players=1),),
        rows=(LadderRow(entry=entry, group=0, elo=120.0, low=80.0, high=160.0, games=24.0, opponents=1),),
        curve=(point,),
        results=(),
    )
    write_atomic(home / ".zero/ladders" / lineage / "ladder.json", canonical_json(ladder))


def test_the_list_has_every_lineage_and_names_a_broken_one(get):
    found = {each["lineage"]: each for each in get("/api/lineages").json()["lineages"]}
    assert found.keys() == {"broken", "go9", "kid"}
    assert "is not a ledger entry" in found["broken"]["error"] and found["broken"]["last"] is None
    assert found["go9"]["num_generations"] == 5 and found["go9"]["champion_generation"] == 4
    assert found["kid"]["source"] == "go9/gen-0001" and found["kid"]["last"]["tag"] == "kid/gen-0002"
    assert found["go9"]["last"] == get("/api/lineages/go9").json()["nodes"][-1]
    assert found["kid"]["warnings"], "its champion is the random network"


def test_a_lineage_in_git_that_this_version_cannot_read_is_named(get, home):
    """Such as one of a newer version, without a workspace here."""
    commit = "commit refs/heads/lineage/future\ncommitter a <a@b> 0 +0000\ndata 0\n"
    stream = f"{commit}M 644 inline record/ledger.jsonl\ndata 3\n{{}}\n\n"
    subprocess.run(["git", "-C", str(home), "fast-import", "--quiet"], input=stream, text=True, check=True)
    found = {each["lineage"]: each for each in get("/api/lineages").json()["lineages"]}
    message = "future has no generation that can be read; `zero audit future` reports why"
    assert found["future"]["error"] == message and found["go9"]["error"] is None
    assert get("/api/lineages/future").json()["error"] == message


def test_a_lineage_has_its_graph(get):
    found = get("/api/lineages/go9").json()
    nodes: list[dict[str, Any]] = found["nodes"]
    assert [(node["kind"], node["promoted"]) for node in nodes] == [
        ("start", None),
        ("decision", True),
        ("decision", False),
        ("rollback", None),
        ("decision", True),
    ]
    assert [node["parent"] for node in nodes] == [None, "go9/gen-0000", "go9/gen-0001", "go9/gen-0001", "go9/gen-0003"]
    assert (nodes[1]["score"], nodes[1]["value_loss"], nodes[1]["constant_value_loss"]) == (0.7, 0.64, 0.99)
    assert found["branches"] == [{"lineage": "kid", "source": "go9/gen-0001"}]
    assert get("/api/lineages/kid").json()["nodes"][0]["parent"] == "go9/gen-0001"


def test_a_generation_has_its_report(get):
    assert get("/api/lineages/go9/4").json()["tag"] == "go9/gen-0004"


def test_a_lineage_without_a_workspace_asks_no_remote(tmp_path, monkeypatch):
    lineage = MadeLineage(tmp_path)
    lineage.add([games(2, 1)], games(2, 2))
    fetched: list[str] = []
    monkeypatch.setattr(costs, "_fetch_notes_once", lambda folder, name: fetched.append(name))
    for path in ("lineages", "lineages/made", "lineages/made/1"):
        assert Client(new_app(tmp_path)).get(f"/api/{path}").status_code == 200
    assert fetched == []
    assert report_of(tmp_path, "made").costs is None and set(fetched) == {"made"}, "the command may ask"


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("nobody", "unknown lineage 'nobody'; known are: broken, go9, kid; make it with `zero new nobody`"),
        ("go9/9", "unknown generation 9 of lineage go9; it has 0 to 4"),
        ("go9;x", "unknown lineage 'go9;x'"),
        pytest.param(f"go9/{'9' * 5000}", "/api/lineages/go9/99999", id="a number of 5,000 digits"),
    ],
)
def test_unknown_names(get, path, error):
    found = get(f"/api/lineages/{path}")
    assert found.status_code == 404 and found.json()["error"].startswith(error)


def test_a_lineage_that_advances_or_is_deleted_is_seen(get, home):
    before = get("/api/lineages/go9").json()
    advance(home, "go9")
    after = get("/api/lineages/go9").json()
    assert after["head"] != before["head"] and after["nodes"][-1]["tag"] == "go9/gen-0005"
    shutil.rmtree(home / ".zero/workspaces/go9")
    found = get("/api/lineages/go9")
    assert found.status_code == 404 and "unknown lineage 'go9'; known are: broken, kid" in found.json()["error"]


def test_a_lineage_that_disappears_while_it_is_read_does_not_hide_the_others(get, home, monkeypatch):
    before = get("/api/lineages/go9").json(), get("/api/players").json()["boards"]
    for module in (lineages, players):
        monkeypatch.setattr(module, "lineages_here", lambda home: [*lineages_here(home), "gone"])
    found = get("/api/players").json()
    assert (get("/api/lineages/go9").json(), found["boards"]) == before
    assert found["errors"][-1].startswith("lineage gone: unknown lineage 'gone'")


def test_a_generation_that_is_being_recorded_is_not_shown_yet(get, home):
    ledger = home / ".zero/workspaces/go9/record/ledger.jsonl"
    before = get("/api/lineages/go9").json()
    advance(home, "go9")
    (home / ".zero/workspaces/go9/.git/refs/tags/go9/gen-0005").unlink()
    assert len(ledger.read_bytes().splitlines()) == 6 and get("/api/lineages/go9").json() == before


def test_all_ladders_and_tournaments_together(get, home):
    assert get("/api/ladder").json() == {"ladders": [], "tournaments": [], "unreadable": []}
    write_ladder(home, "go9")
    write_ladder(home, "kid")
    write_atomic(home / ".zero/ladders/old/ladder.json", b"{}")
    standing = Standing(
        key="a" * 64, name="random", text="random", elo=0.0, low=0.0, high=0.0, games=2, points=1.0, forfeits=0
    )
    tournament = Tournament(
        game=GAME,
        games_per_match=2,
        opening_moves=0,
        seed=1,
        reference="random",
        standings=(standing,),
        pairings=(),
        failures=(),
        fits=(Fit(pairs=3, ratings=2, deviance=4, ratio=4, pair=("x", "random"), expected=0.5, found=0.7),),
    )
    write_tournament(home, tournament)
    found = get("/api/ladder").json()
    assert [(each["lineage"], each["curve"][0]["elo"]) for each in found["ladders"]] == [("go9", 120.0), ("kid", 120.0)]
    assert found["ladders"][0]["game"]["size"] == 5 and "results" not in found["ladders"][0]
    assert found["ladders"][0]["notes"] == [
        "0 games, 0 of them in gating; 0 unique games count",
        "no group has an anchor, so the ratings cannot be compared with those of another lineage",
    ]
    assert found["tournaments"][0]["reference"] == "random"
    (note,) = found["tournaments"][0]["notes"]
    assert note.startswith("fit: 3 pairs for 2 ratings; ") and note.endswith("; intervals are widened by 2.0")
    assert found["unreadable"] == [".zero/ladders/old/ladder.json"]

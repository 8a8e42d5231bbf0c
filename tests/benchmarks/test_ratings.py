"""The picture of several ladders."""

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from benchmarks import ratings
from zero.config.params import GoParams
from zero.errors import ParamsError
from zero.evaluation.ladder import CurvePoint, Entry, Ladder, Row, Scale
from zero.storage.files import canonical_json


def ladder_of(lineage: str, reference: str = "GNU Go", seconds: tuple[float | None, ...] = (100.0, 200.0)) -> Ladder:
    entry = Entry(
        key="a" * 64, name="GNU Go", kind="gtp", conditions="", simulations=None, generation=None, text="gnugo:10"
    )
    curve = [
        CurvePoint(
            generation=k,
            tag=f"{lineage}/gen-{k}",
            key="b" * 64,
            elo=100.0 * k,
            low=50.0,
            high=150.0 * k,
            games=k,
            seconds=s,
        )
        for k, s in enumerate(seconds, 1)
    ]
    return Ladder(
        lineage=lineage,
        game=GoParams(name="go", size=9),
        conditions="",
        simulations=20,
        scales=(Scale(reference=reference, elo=1800.0, is_anchor=True, num_players=len(seconds)),),
        rows=(Row(entry=entry, group=0, elo=1800.0, low=1800.0, high=1800.0, games=4, opponents=1),),
        curve=tuple(curve),
        results=(),
    )


def test_a_picture_of_two_ladders(tmp_path: Path) -> None:
    paths = [tmp_path / "one.json", tmp_path / "other.json"]
    for path, ladder in zip(paths, (ladder_of("one"), ladder_of("other", seconds=(50.0, None, 300.0))), strict=True):
        path.write_bytes(canonical_json(ladder))
    out = tmp_path / "ratings.png"
    done = CliRunner().invoke(ratings_app(), [*map(str, paths), "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert out.read_bytes().startswith(b"\x89PNG")


def ratings_app() -> typer.Typer:
    app = typer.Typer()
    app.command()(ratings.main)
    return app


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (ladder_of("other", reference="rollouts"), "one has the scale GNU Go = 1800 at 20 simulations, other has"),
        (ladder_of("other", seconds=(None,)), "other has no curve over hours"),
    ],
)
def test_ladders_that_cannot_be_compared(other: Ladder, message: str) -> None:
    with pytest.raises(ParamsError, match=message):
        ratings.ratings_png([ladder_of("one"), other])

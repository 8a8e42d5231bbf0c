"""The curves of training: points of a real lineage, and what can be drawn together."""

import pytest

from tests.end_to_end.lineages import Lineage
from zero.config.params import GoParams
from zero.errors import LineageError, ParamsError
from zero.evaluation.curves import (
    ChampionPoint,
    Curve,
    Curves,
    _common_games,
    _common_scale,
    common_opponents,
    curves_png,
    curves_table,
    lineage_curves,
    write_curves,
)
from zero.evaluation.held_out import Evaluation, GenerationEvaluation, Metrics, backfill
from zero.evaluation.ladder import CurvePoint, Entry, Ladder, LadderRow, Scale, lineage_ladder
from zero.storage.files import read_manifest

METRICS = Metrics(num_positions=10, policy_accuracy=0.4, cross_entropy=2.0, value_error=0.9, entropy=1.0)


def point(
    generation: int, hours: float | None = None, elo: float | None = None, held_out: bool = True
) -> ChampionPoint:
    rating = None if elo is None else (elo, elo - 50, elo + 50)
    metrics = METRICS if held_out else None
    return ChampionPoint(generation=generation, games=None, hours=hours, rating=rating, held_out=metrics)


def curves(*lineages: Curve) -> Curves:
    return Curves(held_out_games="gnugo", scale="GNU Go = 1800", opponents={"GNU Go": 1800.0}, curves=lineages)


def ladder(lineage: str, reference: str = "GNU Go", simulations: int = 20) -> Ladder:
    rated = CurvePoint(
        generation=1, tag=f"{lineage}/gen-0001", key="b" * 64, elo=9.0, low=1.0, high=19.0, games=1, seconds=1.0
    )
    scale = Scale(reference=reference, elo=1800.0, is_anchor=True, num_players=2)
    return Ladder(
        lineage=lineage,
        game=GoParams(name="go", size=9),
        conditions="",
        simulations=simulations,
        scales=(scale,),
        rows=(),
        curve=(rated,),
        results=(),
    )


def evaluated(size: int, test: str = "") -> list[GenerationEvaluation]:
    digest = test or "f" * 64
    found = (Evaluation(network="challenger", weights="a" * 64, games="test", games_digest=digest, metrics=METRICS),)
    return [
        GenerationEvaluation(
            lineage="one",
            generation=1,
            game=GoParams(name="go", size=size),
            games_digest="c" * 64,
            is_promoted=True,
            evaluations=found if test else (),
        )
    ]


def test_points_are_those_of_ladder_and_held_out_evaluation(lineage: Lineage) -> None:
    found = lineage_curves(lineage.home, ["tiny"])
    assert found.held_out_games == "later-1"
    (curve,) = found.curves
    assert [each.generation for each in curve.points] == [0, 1, 2]
    results = {result.generation: result.find("champion", "later-1") for result in backfill(lineage.home, "tiny")}
    rated = {each.generation: each for each in lineage_ladder(lineage.home, "tiny").curve}
    assert {each.generation: each.held_out for each in curve.points} == {0: None, **results}
    assert rated and {each.generation: each.rating for each in curve.points if each.rating} == {
        number: (each.elo, each.low, each.high) for number, each in rated.items()
    }
    assert [each.games for each in curve.points] == [0, 16, 32] or curve.points[2].games == 2 * (
        curve.points[1].games or 0
    )
    assert curves_table(found).row_count == len({*rated, *(number for number, each in results.items() if each)})
    folder = write_curves(lineage.home, found, "generations")
    assert read_manifest(folder, Curves, "curves.json") == found


def test_a_lineage_that_is_named_twice_or_unknown(lineage: Lineage) -> None:
    with pytest.raises(LineageError, match="a lineage is named twice in tiny tiny"):
        lineage_curves(lineage.home, ["tiny", "tiny"])
    with pytest.raises(LineageError, match="unknown lineage 'nobody'"):
        lineage_curves(lineage.home, ["nobody"])


def test_only_opponents_with_one_rating_are_drawn() -> None:
    def rated(number: int, level_1: float, *others: str) -> Ladder:
        rows = [
            LadderRow(
                elo=elo, low=elo, high=elo, group=group, games=2, opponents=1,
                entry=Entry(
                    key=digit * 64, name=name, kind=kind, conditions="", simulations=None, generation=None, text=None
                ),
            )
            for digit, name, kind, elo, group in (
                ("a", "GNU Go 10", "gtp", 1800.0, 0), ("b", "GNU Go 1", "gtp", level_1, 0),
                ("c", "random", "random", 5.0, 0), ("d", "elsewhere", "gtp", 7.0, 1),
                *(("e", name, "gtp", 9.0, 0) for name in others),
            )
        ]  # fmt: skip
        return ladder(str(number)).model_copy(update={"rows": tuple(rows), "curve": ()})

    assert common_opponents([rated(1, 1557.0)]) == {"GNU Go 10": 1800.0, "GNU Go 1": 1557.0}
    assert common_opponents([rated(1, 1557.0), rated(2, 1681.0, "leelaz")]) == {"GNU Go 10": 1800.0}


def test_equal_curves_give_an_equal_picture() -> None:
    one = Curve(lineage="one", points=(point(0, 0.0), point(1, 0.5, 1000.0), point(2, 1.0, 1200.0)))
    other = Curve(lineage="other", points=(point(1, 0.2, 900.0, held_out=False), point(2, 0.9, 1100.0)))
    taught = Curve(lineage="taught", points=(point(1, 0.1, 1500.0),))
    made = curves(one, other, taught)
    picture = curves_png(made)
    assert picture.startswith(b"\x89PNG") and curves_png(made) == picture
    assert curves_png(made, spread=True) != picture != curves_png(made, "generations")


def test_an_axis_that_the_record_lacks() -> None:
    with pytest.raises(ParamsError, match="the record has no games of one; draw it over generations"):
        curves_png(curves(Curve(lineage="one", points=(point(1, 0.1),))), "games")


def test_held_out_games_that_all_lineages_have() -> None:
    same = {"one": evaluated(9, "d" * 64), "other": evaluated(9, "d" * 64)}
    assert _common_games(same) == "test"
    assert _common_games({"one": evaluated(9), "other": evaluated(9, "d" * 64)}) == "gnugo"
    assert _common_games({"one": evaluated(9, "e" * 64), "other": evaluated(9, "d" * 64)}) == "gnugo"
    assert _common_games({"one": evaluated(5)}) == "later-1"
    with pytest.raises(ParamsError, match="one and other have no held-out games in common; give them with --dataset"):
        _common_games({"one": evaluated(5), "other": evaluated(5)})


def test_ratings_of_one_scale() -> None:
    assert _common_scale([ladder("one"), ladder("other")]) == "GNU Go = 1800 at 20 simulations"
    alone = ladder("alone").model_copy(
        update={"scales": (Scale(reference="alone/gen-0000", elo=0.0, is_anchor=False, num_players=2),)}
    )
    for one, other, remedy in (
        (alone, ladder("other"), "play against the same opponents: `zero elo alone --games 100`"),
        (
            ladder("one"),
            ladder("other", simulations=32),
            "rate all with the same number: `zero elo other --games 100 --simulations 20`, then "
            "`zero curves one other --simulations 20`",
        ),
    ):
        with pytest.raises(
            ParamsError, match=f"the ratings have different scales: that of {one.lineage} is .*{remedy}"
        ):
            _common_scale([one, other])


def test_the_scale_is_that_of_the_group_of_the_curve() -> None:
    one = ladder("one")
    entry = Entry.model_construct(key=one.curve[0].key)
    row = LadderRow(entry=entry, group=1, games=1.0, opponents=1, elo=9.0, low=1.0, high=19.0)
    first = Scale(reference="one/gen-0000", elo=0.0, is_anchor=False, num_players=3)
    two_groups = one.model_copy(update={"scales": (first, *one.scales), "rows": (row,)})
    assert _common_scale([two_groups, ladder("other")]) == "GNU Go = 1800 at 20 simulations"

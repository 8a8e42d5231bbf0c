"""Players from specs: their identity, their game, their sessions, and the errors."""

from pathlib import Path

import pytest
import torch

from tests.end_to_end.project import git
from tests.interop.networks import trained
from tests.parameters import network_params, preset, resolved_preset, smoke_text
from tests.players.resolved import resolved_network
from zero.config.params import GoParams, parse_params, preset_text
from zero.errors import LineageError, ParamsError, ServerError
from zero.games.rules import go_rules, rules_of
from zero.network.weights import new_network, weights_bytes
from zero.play.search_result import SearchResult
from zero.players.build import (
    SESSION_SIMULATIONS,
    ResolvedPlayer,
    common_game,
    make_player,
    open_session,
    resolve_player,
)
from zero.players.session import NetworkSession
from zero.players.spec import parse_player

SMOKE = preset("smoke")


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A project without a lineage, with a weight file that has parameters, and one without."""
    folder = tmp_path_factory.mktemp("home")
    git(folder, "init", "--quiet")
    (folder / "params.yaml").write_text(preset_text("smoke"))
    data = weights_bytes(new_network(SMOKE.network, SMOKE.game, 1))
    (folder / "bare").mkdir()
    (folder / "bare/weights.safetensors").write_bytes(data)
    (folder / "made").mkdir()
    (folder / "made/weights.safetensors").write_bytes(data)
    (folder / "made/params.yaml").write_text(smoke_text().replace("komi: ", "komi: 1"))
    return folder


def resolved(home: Path, text: str) -> ResolvedPlayer:
    return resolve_player(home, parse_player(text))


def test_parameters_beside_a_weight_file_belong_to_it(home):
    made, bare = (resolved_network(home, f"{home}/{name}/weights.safetensors") for name in ("made", "bare"))
    assert made.params is not None and bare.params is None
    assert made.id.settings["weights"] == bare.id.settings["weights"]
    game = common_game(home, [resolved(home, f"{home}/made/weights.safetensors")])
    assert isinstance(game, GoParams) and isinstance(SMOKE.game, GoParams)
    assert game.komi == float(f"1{SMOKE.game.komi}")
    assert common_game(home, [resolved(home, f"{home}/bare/weights.safetensors")]) == SMOKE.game


def test_players_of_different_games_are_rejected(home, tmp_path):
    (tmp_path / "weights.safetensors").write_bytes((home / "bare/weights.safetensors").read_bytes())
    (tmp_path / "params.yaml").write_text(preset_text("smoke"))
    players = [resolved(home, f"{folder}/weights.safetensors") for folder in (home / "made", tmp_path)]
    with pytest.raises(ParamsError, match=r"made for different games: komi 10\.5 and 0\.5; give --komi$"):
        common_game(home, players)
    game = common_game(home, players, komi=6.5)
    assert isinstance(game, GoParams) and game.komi == 6.5


@pytest.mark.parametrize(
    "preset_name, difference",
    [
        ("go9-simple", r"size 5 and 9, komi 10\.5 and 0\.0; choose two players of the same game"),
        ("gomoku8", "go and gomoku; choose two players of"),
    ],
)
def test_differences_that_no_option_removes_are_reported(home, preset_name, difference):
    player = resolved(home, f"{home}/made/weights.safetensors")
    assert player.network is not None
    params = parse_params(resolved_preset(preset_name))
    other = player._replace(network=player.network._replace(params=params))
    with pytest.raises(ParamsError, match=f"made for different games: {difference}"):
        common_game(home, [player, other])


def test_a_board_that_is_too_small_for_the_line_is_rejected(tmp_path):
    (tmp_path / "params.yaml").write_text(preset_text("gomoku8"))
    with pytest.raises(ParamsError, match="in_a_row 5 does not fit on a board of size 3"):
        common_game(tmp_path, [], size=3)


def test_networks_made_on_other_machines_play_together(home, tmp_path):
    """One was made on a GPU in bf16, one with AVX2 only; both play in this process on this machine."""
    data = (home / "bare/weights.safetensors").read_bytes()
    made_on = {
        "gpu": {"device: cpu": "device: cuda", "precision: fp32": "precision: bf16"},
        "old": {"isa: native": "isa: avx2", "selfplay_threads: 1": "selfplay_threads: 2"},
    }
    for name, changes in made_on.items():
        text = smoke_text()
        for before, after in changes.items():
            assert f"\n  {before}" in text
            text = text.replace(f"\n  {before}", f"\n  {after}")
        (tmp_path / name).mkdir()
        (tmp_path / name / "params.yaml").write_text(text)
        (tmp_path / name / "weights.safetensors").write_bytes(data)
    rules = rules_of(SMOKE.game)
    torch.set_num_threads(2)
    for name in ("old", "gpu", "old"):
        player = make_player(resolved(home, f"raw:{tmp_path / name}/weights.safetensors"), rules, 1, 1)
        player.begin([0])
        (reply,) = player.choose([0])
        assert 0 <= reply.action <= 25 and not reply.fault
    assert torch.get_num_threads() == 1


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU has bf16")
def test_the_identity_contains_a_precision_that_this_machine_lacks(home, tmp_path, monkeypatch):
    (tmp_path / "params.yaml").write_text(smoke_text().replace("\n  precision: fp32", "\n  precision: bf16"))
    text = str(home / "bare/weights.safetensors")
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    settings = resolved_network(tmp_path, text).id.settings
    assert (settings["precision"], settings["made_for_precision"]) == ("fp32", "bf16")
    assert "made_for_precision" not in resolved_network(home, text).id.settings


@pytest.mark.parametrize(("options", "simulations"), [("", SESSION_SIMULATIONS), (",simulations=9", 9)])
def test_a_network_searches_longer_in_a_session_than_in_its_gate(home, options, simulations):
    text = f"{home}/bare/weights.safetensors{options}"
    session, _ = open_session(home, parse_player(text))
    assert isinstance(session, NetworkSession) and session.num_simulations == simulations
    in_a_match = SMOKE.gating.num_simulations if not options else simulations
    assert resolved_network(home, text).num_simulations == in_a_match < SESSION_SIMULATIONS


@pytest.mark.parametrize(
    ("option", "in_a_session", "in_a_match"),
    [("", True, False), (",pass_wins=false", False, False), (",pass_wins=true", True, True)],
)
def test_in_a_session_a_winning_pass_ends_the_game(home, option, in_a_session, in_a_match):
    text = f"{home}/bare/weights.safetensors{option}"
    found = [resolved_network(home, text, for_session=each) for each in (True, False)]
    assert [each.search.pass_wins for each in found] == [in_a_session, in_a_match]
    assert [each.id.settings.get("pass_wins", False) for each in found] == [in_a_session, in_a_match]


def test_a_command_line_with_an_open_quote_is_reported():
    with pytest.raises(ParamsError, match="is not a command line: no closing quotation; fix its quotes"):
        make_player(resolved(Path(), "gtp:engine 'half"), go_rules(9, 9, 7.0), 1, 1)


def test_an_option_makes_another_player(home):
    path = f"{home}/bare/weights.safetensors"
    texts = [path, f"{path},simulations=9", f"{path},root=gumbel", f"{path},resign=-0.9", f"raw:{path}"]
    texts += [f"{path},c_puct=2", f"{path},root=gumbel,value_scale=0.3"]
    texts += [f"{path},simulations=8,root=gumbel,considered_actions=3"]
    ids = [resolved_network(home, text).id for text in texts]
    assert len({str(player.settings) for player in ids}) == 8
    assert ids[1].name == "weights.safetensors, 9 simulations"
    assert ids[4].name == "weights.safetensors, raw network"
    assert ids[7].name == "weights.safetensors root=gumbel considered_actions=3, 8 simulations"


def test_a_session_searches_with_the_options_of_its_spec(home):
    def searched(options: str) -> SearchResult:
        session, rules = open_session(home, parse_player(f"{home}/bare/weights.safetensors,simulations=32,{options}"))
        assert isinstance(session, NetworkSession)
        session.new_game(rules)
        return session.search(32, None)

    assert searched("root=puct").choice is None
    four, two = (searched(f"root=gumbel,considered_actions={considered}") for considered in (4, 2))
    assert [int((found.visit_counts > 0).sum()) for found in (four, two)] == [4, 2]
    assert four.choice is not None
    bold, shy = (searched(f"root=gumbel,value_scale={scale}") for scale in (10, 0.001))
    assert bold.visit_counts.tolist() != shy.visit_counts.tolist()


@pytest.mark.parametrize(
    "option, message",
    [
        ("simulations=" + "9" * 5000, "simulations must be an integer from 0 to 1000000"),
        ("simulations=-1", "simulations must be an integer from 0 to 1000000, got '-1'"),
        ("root=best", "root 'best': Input should be 'puct' or 'gumbel'"),
        ("considered_actions=363", "considered_actions '363': Input should be less than or equal to 362"),
        ("value_scale=0.3", "a puct root does not use value_scale; add root=gumbel, or remove value_scale"),
        ("pass_wins=often", "pass_wins 'often': Input should be a valid boolean"),
    ],
)
def test_a_wrong_option_is_reported(home, option, message):
    with pytest.raises(ParamsError, match=message):
        resolved(home, f"{home}/bare/weights.safetensors,{option}")


def test_a_network_plays_its_own_board(home):
    player = make_player(resolved(home, f"{home}/bare/weights.safetensors,simulations=4"), rules_of(SMOKE.game), 2, 1)
    player.begin([0, 1])
    first = player.choose([0, 1])[0]
    assert 0 <= first.action <= 25 and not first.fault
    player.play(0, first.action)
    player.end(1)
    player.begin([2])
    assert player.choose([0])[0].action != first.action
    player.close()


@pytest.mark.parametrize(
    "source, kind, message",
    [
        ("models:/zero-go9", LineageError, "does not name a version; write models:/zero-go9@champion"),
        ("models:/zero-go9@champion", ServerError, "MLFLOW_TRACKING_URI is not set"),
    ],
)
def test_an_unknown_network_is_reported(home, monkeypatch, source, kind, message):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    with pytest.raises(kind, match=message):
        resolved(home, source)


def test_a_network_without_a_profile_uses_that_of_the_project(home, tmp_path):
    network = trained(network_params(), GoParams(name="go", size=9, komi=7.0, allow_suicide=False))
    (tmp_path / "weights.safetensors").write_bytes(weights_bytes(network))
    found = resolved_network(home, str(tmp_path / "weights.safetensors"))
    assert found.profile == SMOKE.profile

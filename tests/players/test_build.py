"""Players by their texts: who they are, what is refused and how that is said."""

import pytest
import torch

from tests.end_to_end.project import make_project
from tests.interop.networks import trained
from tests.parameters import network_params, preset, resolved_preset, smoke_text
from zero.config.params import GoParams
from zero.config.presets import preset_text
from zero.errors import LineageError, ParamsError, ServerError, StorageError, ZeroError
from zero.games.rules import go_rules, gomoku_rules, rules_of
from zero.network.weights import new_network, weights_bytes
from zero.play.search_result import SearchResult
from zero.players.build import SEAT_SIMULATIONS, find_network_player, game_of, make_opponent, seat
from zero.players.networks import Source
from zero.players.single_game import PlayerMind
from zero.players.spec import parse_player

SMOKE = preset("smoke")


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A project with a weight file and its parameters, and a bare weight file."""
    folder = tmp_path_factory.mktemp("home")
    (folder / "params.yaml").write_text(preset_text("smoke"))
    data = weights_bytes(new_network(SMOKE.network, SMOKE.game, 1))
    (folder / "bare").mkdir()
    (folder / "bare/weights.safetensors").write_bytes(data)
    (folder / "made").mkdir()
    (folder / "made/weights.safetensors").write_bytes(data)
    (folder / "made/params.yaml").write_text(smoke_text().replace("komi: ", "komi: 1"))
    return folder


def test_parameters_beside_a_weight_file_are_its_own(home):
    made = find_network_player(home, parse_player(f"{home}/made/weights.safetensors"))
    bare = find_network_player(home, parse_player(f"{home}/bare/weights.safetensors"))
    assert made.source.params is not None and bare.source.params is None
    assert made.player.settings["weights"] == bare.player.settings["weights"]
    game = game_of(home, [made])
    assert isinstance(game, GoParams) and isinstance(SMOKE.game, GoParams)
    assert game.komi == float(f"1{SMOKE.game.komi}")
    assert game_of(home, [bare]) == SMOKE.game


def test_players_of_different_games_are_told_apart(home, tmp_path):
    (tmp_path / "weights.safetensors").write_bytes((home / "bare/weights.safetensors").read_bytes())
    (tmp_path / "params.yaml").write_text(preset_text("smoke"))
    players = [
        find_network_player(home, parse_player(f"{folder}/weights.safetensors")) for folder in (home / "made", tmp_path)
    ]
    with pytest.raises(ParamsError, match=r"made for different games: komi 10\.5 and 0\.5; give --komi$"):
        game_of(home, players)
    game = game_of(home, players, komi=6.5)
    assert isinstance(game, GoParams) and game.komi == 6.5


@pytest.mark.parametrize(
    "preset_name, difference",
    [
        ("go9-simple", r"size 5 and 9, komi 10\.5 and 0\.0; take two players of one game"),
        ("gomoku8", "go and gomoku; take two players of"),
    ],
)
def test_what_no_option_mends_is_said_so(home, preset_name, difference):
    network = find_network_player(home, parse_player(f"{home}/made/weights.safetensors"))
    other = network._replace(source=Source("other", b"", resolved_preset(preset_name).encode()))
    with pytest.raises(ParamsError, match=f"made for different games: {difference}"):
        game_of(home, [network, other])


def test_a_board_that_is_too_small_for_the_line_is_refused(tmp_path):
    (tmp_path / "params.yaml").write_text(preset_text("gomoku8"))
    with pytest.raises(ParamsError, match="in_a_row 5 does not fit on a board of size 3"):
        game_of(tmp_path, [], size=3)


def test_networks_of_other_machines_play_together_here(home, tmp_path):
    """One made on a GPU in bf16, one with AVX2 alone: each is asked in this process, on this machine."""
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
    for name in ("old", "gpu", "old"):
        asked = parse_player(f"raw:{tmp_path / name}/weights.safetensors")
        player = make_opponent(asked, find_network_player(home, asked), rules, 1, 1)
        player.begin([0])
        (reply,) = player.choose([0])
        assert 0 <= reply.action <= 25 and not reply.fault
    assert torch.get_num_threads() == 1


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU has bf16")
def test_a_precision_that_this_machine_has_not_is_told_in_the_id(home, tmp_path, monkeypatch):
    (tmp_path / "params.yaml").write_text(smoke_text().replace("\n  precision: fp32", "\n  precision: bf16"))
    asked = parse_player(str(home / "bare/weights.safetensors"))
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    settings = find_network_player(tmp_path, asked).player.settings
    assert (settings["precision"], settings["made_for_precision"]) == ("fp32", "bf16")
    assert "made_for_precision" not in find_network_player(home, asked).player.settings


@pytest.mark.parametrize(("options", "simulations"), [("", SEAT_SIMULATIONS), (",simulations=9", 9)])
def test_a_network_thinks_longer_for_a_person_than_in_its_gate(home, options, simulations):
    text = f"{home}/bare/weights.safetensors{options}"
    mind, _ = seat(home, text)
    assert isinstance(mind, PlayerMind) and mind.num_simulations == simulations
    in_a_match = SMOKE.gating.num_simulations if not options else simulations
    assert find_network_player(home, parse_player(text)).num_simulations == in_a_match < SEAT_SIMULATIONS


@pytest.mark.parametrize(
    ("option", "at_seat", "in_a_match"),
    [("", True, False), (",pass_wins=false", False, False), (",pass_wins=true", True, True)],
)
def test_a_seat_knows_what_a_second_pass_decides(home, option, at_seat, in_a_match):
    asked = parse_player(f"{home}/bare/weights.safetensors{option}")
    found = [find_network_player(home, asked, at_seat=each) for each in (True, False)]
    assert [each.search.pass_wins for each in found] == [at_seat, in_a_match]
    assert [each.player.settings.get("pass_wins", False) for each in found] == [at_seat, in_a_match]


def test_a_command_line_with_an_open_quote_is_named():
    with pytest.raises(ParamsError, match="is no command line: no closing quotation; mend its quotes"):
        make_opponent(parse_player("gtp:engine 'half"), None, go_rules(9, 9, 7.0), 1, 1)


def test_an_option_is_another_player(home):
    path = f"{home}/bare/weights.safetensors"
    texts = [path, f"{path},simulations=9", f"{path},root=gumbel", f"{path},resign=-0.9", f"raw:{path}"]
    texts += [f"{path},c_puct=2", f"{path},root=gumbel,value_scale=0.3"]
    texts += [f"{path},simulations=8,root=gumbel,considered_actions=3"]
    ids = [find_network_player(home, parse_player(text)).player for text in texts]
    assert len({str(player.settings) for player in ids}) == 8
    assert ids[1].name == "weights.safetensors, 9 simulations"
    assert ids[4].name == "weights.safetensors, raw network"
    assert ids[7].name == "weights.safetensors root=gumbel considered_actions=3, 8 simulations"


def test_the_options_of_a_search_are_those_of_its_seat(home):
    def thought(options: str) -> SearchResult:
        mind, rules = seat(home, f"{home}/bare/weights.safetensors,simulations=32,{options}")
        assert isinstance(mind, PlayerMind)
        mind.begin(rules)
        return mind.think(32, None)

    assert thought("root=puct").choice is None
    four, two = (thought(f"root=gumbel,considered_actions={considered}") for considered in (4, 2))
    assert [int((found.visit_counts > 0).sum()) for found in (four, two)] == [4, 2]
    assert four.choice is not None
    bold, shy = (thought(f"root=gumbel,value_scale={scale}") for scale in (10, 0.001))
    assert bold.visit_counts.tolist() != shy.visit_counts.tolist()


@pytest.mark.parametrize(
    "option, message",
    [
        ("simulations=-1", "simulations '-1' is no number from 0 to 1000000"),
        ("simulations=many", "simulations 'many' is no number"),
        ("root=best", "root 'best': Input should be 'puct' or 'gumbel'"),
        ("considered_actions=0", "considered_actions '0': Input should be greater than or equal to 1"),
        ("considered_actions=363", "considered_actions '363': Input should be less than or equal to 362"),
        ("value_scale=0.3", "a puct root does not read value_scale; add root=gumbel, or leave value_scale out"),
        ("root=gumbel,c_puct=2", "a gumbel root does not read c_puct; add root=puct, or leave c_puct out"),
        ("pass_wins=often", "pass_wins 'often': Input should be a valid boolean"),
        ("value_scale=much", "value_scale 'much': Input should be a valid number"),
        ("resign=2", r"resign '2' is no value from -1 \(never\) to 1"),
        ("resign=soon", "resign 'soon' is no value"),
    ],
)
def test_a_wrong_option_is_named(home, option, message):
    with pytest.raises(ParamsError, match=message):
        find_network_player(home, parse_player(f"{home}/bare/weights.safetensors,{option}"))


def test_a_network_for_another_board_is_refused(home):
    asked = parse_player(f"{home}/bare/weights.safetensors")
    network = find_network_player(home, asked)
    with pytest.raises(ParamsError, match="network is for a board of 5x5 with 26 actions, the game has 9x9 with 82"):
        make_opponent(asked, network, go_rules(9, 9, 7.0), 2, 1)


def test_a_network_for_another_game_is_refused(home):
    asked = parse_player(f"{home}/bare/weights.safetensors")
    with pytest.raises(ParamsError, match="the network is for a board"):
        make_opponent(asked, find_network_player(home, asked), gomoku_rules(5, 5, 4), 2, 1)


def test_a_network_plays_its_own_board(home):
    asked = parse_player(f"{home}/bare/weights.safetensors,simulations=4")
    player = make_opponent(asked, find_network_player(home, asked), rules_of(SMOKE.game), 2, 1)
    player.begin([0, 1])
    first = player.choose([0, 1])[0]
    assert 0 <= first.action <= 25 and not first.fault
    player.play(0, first.action)
    player.end(1)
    player.begin([2])
    assert player.choose([0])[0].action != first.action
    player.close()


@pytest.mark.parametrize("text", ["rollout:0", "rollout:many", "gnugo:99", "leelaz:w.txt,playouts=0"])
def test_a_number_out_of_range_is_named(text):
    with pytest.raises(ParamsError, match="is no number from"):
        make_opponent(parse_player(text), None, go_rules(9, 9, 7.0), 2, 1)


@pytest.mark.parametrize(
    "source, kind, message",
    [
        ("nobody", LineageError, "unknown lineage 'nobody'; there are: none yet"),
        ("a/b/weights.txt", StorageError, "no file a/b/weights.txt"),
        ("shipped:go8", LineageError, "unknown shipped player 'go8'; give shipped:go9 or shipped:gomoku8"),
        ("shipped:", LineageError, "unknown shipped player ''; give shipped:go9 or shipped:gomoku8"),
        ("models:/zero-go9", LineageError, "names no version; write models:/zero-go9@champion"),
        ("models:/zero-go9@champion", ServerError, "MLFLOW_TRACKING_URI is not set"),
        ("tiny/gen-0001", LineageError, "unknown lineage 'tiny'; there are: none yet"),
    ],
)
def test_an_unknown_network_is_named(tmp_path, monkeypatch, source, kind, message):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    home = make_project(tmp_path)
    with pytest.raises(kind, match=message):
        find_network_player(home, parse_player(source))


def test_a_file_that_is_no_network_is_named(tmp_path):
    (tmp_path / "params.yaml").write_text(preset_text("smoke"))
    (tmp_path / "weights.bin").write_bytes(b"not a network")
    asked = parse_player(str(tmp_path / "weights.bin"))
    with pytest.raises(ZeroError, match="the weight file is broken"):
        find_network_player(tmp_path, asked).evaluator(1)


def test_a_network_without_its_profile_takes_that_of_the_project(home, tmp_path):
    network = trained(network_params(), GoParams(name="go", size=9, komi=7.0, allow_suicide=False))
    (tmp_path / "weights.safetensors").write_bytes(weights_bytes(network))
    found = find_network_player(home, parse_player(str(tmp_path / "weights.safetensors")))
    assert found.profile == SMOKE.profile

"""Texts and pictures of a generation for MLflow's pages: descriptions of runs, model cards, the picture of the gate.

They follow from the record alone, without a server or a clock.
"""

from zero.config.params import Params
from zero.games.position import NUM_PLANES
from zero.games.rules import rules_of
from zero.record.generation import Generation
from zero.record.ledger import entry_of, generation_tag
from zero.record.texts import decision_sentence, entry_sentence, match_interval, match_sentence
from zero.storage.manifests import FileRef, LedgerEntry, PromotionDecision

RUN_ID = "%RUN_ID%"
EXPERIMENT_ID = "%EXPERIMENT_ID%"
"""Both stand for the ids that the server gives; `client` replaces them."""
GATE_FILE = "gate.svg"
VIEW_KEY = "generations"
"""Key of the view of the experiment in `views`."""
LICENCE_FILE = "LICENSE"
BLUE, ORANGE, GREY = "#0072B2", "#D55E00", "#767676"
"""Colours that colour-blind people can tell apart (Okabe and Ito)."""
WIDTH, HEIGHT, MARGIN = 560, 82, 15
"""Pixels of the picture of the gate. MLflow shows the first 100 pixels of a description, and the rest on a click."""
TEXT_MARGIN = 0.27
"""Share of the line that a text keeps from its ends, so that it stays in the picture."""


def run_note(generation: Generation, entry: LedgerEntry) -> str:
    """Description of the run of a generation, in Markdown: gate, decision, health, how to play, where to look."""
    parts = [_result(generation, entry)]
    if entry.decision is not None:
        parts.insert(0, f"![the score and its interval](get-artifact?path={GATE_FILE}&run_uuid={RUN_ID})")
        parts.append(f"{match_sentence(entry.decision.match)}.")
    if (health := generation.health) is not None:
        summary = f"Training: {health.sentence()}."
        if warnings := health.lines():
            parts.insert(0, f"**{summary}**")  # above the picture, where MLflow shows it without a click
            parts += [f"**Warning: {line}.**" for line in warnings]
        else:
            parts.append(summary)
    parts.append(f"Champion: generation {entry.champion_generation}. Play against it: `zero play {generation.tag}`")
    view = f"#/experiments/{EXPERIMENT_ID}/runs?viewStateShareKey={VIEW_KEY}"
    parts.append(f"[All generations: table]({view}), [charts]({view}&compareRunsMode=CHART)")
    return "\n\n".join(parts)


def gate_picture(decision: PromotionDecision) -> bytes:
    """An SVG image: the challenger's score and its 95 % interval on a line from 0 to 100 %, and the threshold."""

    def x(share: float) -> str:
        return f"{MARGIN + share * (WIDTH - 2 * MARGIN):.1f}"

    def line(start: float, end: float, top: int, bottom: int, style: str) -> str:
        return f'<line x1="{x(start)}" x2="{x(end)}" y1="{top}" y2="{bottom}" {style}/>'

    def text(share: float, y: int, words: str, colour: str) -> str:
        inside = min(max(share, TEXT_MARGIN), 1 - TEXT_MARGIN)
        return f'<text x="{x(inside)}" y="{y}" text-anchor="middle" fill="{colour}">{words}</text>'

    match, (low, high), needed = decision.match, match_interval(decision.match), decision.threshold
    games = match.num_games
    colour, word = (BLUE, "promoted") if decision.promoted else (ORANGE, "refused")
    shapes = [
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        line(0, 1, 56, 56, f'stroke="{GREY}"'),
        *(line(end, end, 50, 62, f'stroke="{GREY}"') for end in (0, 1)),
        line(needed, needed, 28, 62, 'stroke="black" stroke-dasharray="4 3"'),
        line(low, high, 40, 40, f'stroke="{colour}" stroke-width="5"'),
        f'<circle cx="{x(match.score)}" cy="40" r="7" fill="{colour}"/>',
        text(match.score, 20, f"{word}: {match.score:.1%} of {games} games ({low:.1%} to {high:.1%})", colour),
        text(needed, 76, f"{needed:.0%} is needed", "black"),
    ]
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" '
    return (head + 'font-size="14">' + "".join(shapes) + "</svg>\n").encode()


def model_card(generation: Generation, entry: LedgerEntry, weights: FileRef) -> str:
    """Description of a registered network, in Markdown.

    Args:
      generation: a generation whose commit has the network.
      entry: the ledger entry of the generation that made the network.
      weights: its file.
    """
    params, tag = generation.read_params(), generation_tag(entry.lineage, entry.generation)
    rules = rules_of(params.game)
    model = f"models:/zero-{entry.lineage}@{tag.rpartition('/')[2]}"
    shape = f"{NUM_PLANES}, {rules.rows}, {rules.columns}"
    licence = (generation.file(LICENCE_FILE) or b"").decode(errors="replace").strip().partition("\n")[0].strip()
    settings = params.game.model_dump(exclude={"name"})
    # The parameters are those of the generation whose commit has the network; they may have changed since its match.
    is_own = entry.generation == generation.number
    search = f" ({params.gating.num_simulations} simulations a move)" if is_own else ""
    rows = {
        "strength": _result(generation, entry) + (search if entry.decision else ""),
        "play it": f"`zero play {model}`",
        "serve it": f"`mlflow models serve -m {model} --env-manager local`",
        "game": ", ".join([params.game.name, *(f"{name} {value}" for name, value in settings.items())]),
        "network": _network(params),
        "input": f"planes [B, {shape}] float32 (the paper's; `zero.games.planes` writes them)",
        "output": f"`prior` [B, {rules.num_actions}] over all actions; `value` [B] in [-1, 1] for the player to move",
        "limits": "made for this game and board only; the network alone is weaker than with its search",
        "licence": licence or f"none is stated: the project has no file {LICENCE_FILE}",
        "provenance": f"attestation `{entry.provenance}`, printed by `zero provenance {tag}`",
        "weights": f"SHA-256 `{weights.sha256}`, {weights.num_bytes:,} bytes, safetensors",
    }
    table = "\n".join(["| | |", "|---|---|", *(f"| {name} | {text} |" for name, text in rows.items())])
    return f"""{tag}: an AlphaGo Zero network.

{table}
"""


def _network(params: Params) -> str:
    network = params.network
    return (
        f"{network.tower} trunk, {network.heads} heads, blocks: {network.num_blocks}, channels: {network.num_channels}"
    )


def _result(generation: Generation, entry: LedgerEntry) -> str:
    """The result of the generation of `entry`, one of the ledger of `generation`."""
    if entry.decision is None:
        return entry_sentence(entry)
    # A decision is never the first line of a ledger, so the entry before it exists.
    return decision_sentence(entry.decision, entry_of(generation.ledger, entry.generation - 1).champion_generation)

"""Texts and pictures of a generation for MLflow's pages: descriptions of runs, model cards, the picture of the gate.

They follow from the record alone, without a server or a clock.
"""

from collections.abc import Iterable

from zero.config.params import Params
from zero.games.position import NUM_PLANES
from zero.games.rules import rules_of
from zero.record.generation import Generation
from zero.record.ledger import generation_tag
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
WIDTH, HEIGHT, MARGIN, AXIS_Y = 560, 110, 30, 74
"""Pixels of the picture of the gate."""


def decision_word(entry: LedgerEntry) -> str:
    """`promoted` or `refused`; without a decision the kind of the entry: `start`, `rollback`, `branch`."""
    if entry.decision is None:
        return entry.kind
    return "promoted" if entry.decision.promoted else "refused"


def generation_sentence(ledger: Iterable[LedgerEntry], entry: LedgerEntry) -> str:
    """The result of a generation in one sentence."""
    if entry.source is not None:
        return (
            f"{'Rolled back to' if entry.kind == 'rollback' else 'Branched from'} {entry.source.tag}: its champion (of "
            f"generation {entry.champion_generation}), trainee and window."
        )
    if entry.decision is None:
        return f"The initial random network of lineage {entry.lineage}."
    # A decision is never the first line of a ledger, so the entry before it exists.
    champions = {earlier.generation: earlier.champion_generation for earlier in ledger}
    match, (low, high) = entry.decision.match, entry.decision.match.interval
    return (
        f"{decision_word(entry).capitalize()} at {match.score:.3f} ({low:.3f} to {high:.3f}, threshold "
        f"{entry.decision.threshold:g}) against generation {champions[entry.generation - 1]}: {match.wins} won, "
        f"{match.losses} lost, {match.draws} drawn, {match.unique_games} unique games."
    )


def run_note(generation: Generation, entry: LedgerEntry) -> str:
    """Description of the run of a generation, in Markdown: decision, gate, health, how to play, where to look."""
    parts = [generation_sentence(generation.ledger, entry)]
    if entry.decision is not None:
        parts.append(f"![the score and its interval](get-artifact?path={GATE_FILE}&run_uuid={RUN_ID})")
    if generation.health is not None:
        explained = generation.health.explained_variance
        known = "" if explained is None else f"; the value explains {explained:.0%} of the variance of its targets"
        parts.append(f"Training: {generation.health.verdict}{known}.")
        parts += [f"**Warning: {line}.**" for line in generation.health.lines()]
    parts.append(f"Champion: generation {entry.champion_generation}. Play against it: `zero play {generation.tag}`")
    view = f"#/experiments/{EXPERIMENT_ID}/runs?viewStateShareKey={VIEW_KEY}"
    parts.append(f"[All generations: table]({view}), [charts]({view}&compareRunsMode=CHART)")
    return "\n\n".join(parts)


def gate_picture(decision: PromotionDecision) -> bytes:
    """An SVG image: the challenger's score and its 95 % interval on a line from 0 to 100 %, and the threshold."""

    def x(share: float) -> str:
        return f"{MARGIN + share * (WIDTH - 2 * MARGIN):.1f}"

    def text(share: float, y: int, words: str, colour: str = "black") -> str:
        return f'<text x="{x(share)}" y="{y}" text-anchor="middle" fill="{colour}">{words}</text>'

    match, (low, high) = decision.match, decision.match.interval
    colour, word = (BLUE, "promoted") if decision.promoted else (ORANGE, "refused")
    # The text must not leave the picture.
    words, centre = f"{word}: {match.score:.1%} ({low:.1%} to {high:.1%})", min(max(match.score, 0.2), 0.8)
    shapes = [
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<line x1="{x(0)}" x2="{x(1)}" y1="{AXIS_Y}" y2="{AXIS_Y}" stroke="{GREY}"/>',
        *(text(share, AXIS_Y + 18, f"{share:.0%}", GREY) for share in (0.0, 0.25, 0.5, 0.75, 1.0)),
        f'<line x1="{x(decision.threshold)}" x2="{x(decision.threshold)}" y1="36" y2="{AXIS_Y}" stroke="black" '
        'stroke-dasharray="4 3"/>',
        text(min(max(decision.threshold, 0.15), 0.85), AXIS_Y + 33, f"{decision.threshold:.0%} is needed"),
        f'<line x1="{x(low)}" x2="{x(high)}" y1="55" y2="55" stroke="{colour}" stroke-width="5"/>',
        f'<circle cx="{x(match.score)}" cy="55" r="7" fill="{colour}"/>',
        text(centre, 24, words, colour),
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
    rows = {
        "game": ", ".join(f"{name} {value}" for name, value in params.game.model_dump().items()),
        "network": _network(params),
        "strength": _strength(generation, entry, params),
        "input": f"planes [B, {shape}] float32 (the paper's; `zero.games.planes` writes them)",
        "output": f"`prior` [B, {rules.num_actions}] over all actions; `value` [B] in [-1, 1] for the player to move",
        "limits": "made for this game and board only; the network alone is weaker than with its search",
        "licence": licence or f"none is stated: the project has no file {LICENCE_FILE}",
        "provenance": f"attestation `{entry.provenance}`, printed by `zero provenance {tag}`",
        "weights": f"SHA-256 `{weights.sha256}`, {weights.num_bytes:,} bytes, safetensors",
    }
    table = "\n".join(["| | |", "|---|---|", *(f"| {name} | {text} |" for name, text in rows.items())])
    return f"""{tag}: an AlphaGo Zero network. {generation_sentence(generation.ledger, entry)}

{table}

Play against it: `zero play {model}`. Serve it: `mlflow models serve -m {model} --env-manager local`
"""


def _network(params: Params) -> str:
    network = params.network
    return f"{network.tower}, {network.heads} heads, {network.num_blocks} blocks of {network.num_channels} channels"


def _strength(generation: Generation, entry: LedgerEntry, params: Params) -> str:
    if entry.decision is None:
        return "plays at random" if entry.kind == "start" else "that of its source"
    match, (low, high) = entry.decision.match, entry.decision.match.interval
    champions = {earlier.generation: earlier.champion_generation for earlier in generation.ledger}
    games = match.wins + match.losses + match.draws
    # The parameters are those of the generation whose commit has the network; they may have changed since its match.
    is_own = entry.generation == generation.number
    search = f" at {params.gating.num_simulations} simulations a move" if is_own else ""
    return (
        f"score {match.score:.1%} (95 % interval {low:.1%} to {high:.1%}) in {games} games against generation "
        f"{champions[entry.generation - 1]}{search}"
    )

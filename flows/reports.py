"""What a person sees in Prefect beside the log: progress bars, the table of the match, the decision, links."""

import time
from collections.abc import Callable
from threading import Lock
from typing import cast
from uuid import UUID

from prefect.artifacts import (
    create_link_artifact,
    create_markdown_artifact,
    create_progress_artifact,
    create_table_artifact,
    update_progress_artifact,
)
from prefect.runtime import flow_run

from zero.storage.manifests import Colours, Manifest, PromotionDecision

UPDATE_SECONDS = 5.0
"""Least time between two updates of a progress bar: each is a request of 20 ms."""
SAY_SECONDS = 15.0
"""Least time between two lines about it in the log."""


class Recorded(Manifest):
    """What the registry says of a generation it has recorded."""

    lineage: str
    generation: int
    tag: str
    commit: str
    promoted: bool
    mlflow_url: str | None
    warnings: tuple[str, ...] = ()
    """What is wrong with the generation, one sentence each; always empty for code that has no health checks."""


class ProgressBar:
    """A progress artifact over several parts, to be called from any thread; Prefect's trouble with it stops nothing."""

    def __init__(self, lineage: str, stage: str, unit: str, total: int, say: Callable[[str], None]) -> None:
        """A bar for a stage.

        Args:
          lineage: names the artifact, with the stage.
          stage: the stage.
          unit: what is counted, such as "games".
          total: how many there are.
          say: where a line goes now and then.
        """
        self._what = f"{stage}: {{done}} of {total} {unit}"
        self._total = total
        self._say = say
        self._done: dict[str, int] = {}
        self._lock = Lock()
        self._updated = self._said = time.monotonic()
        self._key = f"{lineage}-{stage}-progress"
        self._artifact: UUID | None = None
        self._publish(0)

    def show(self, part: str, done: int) -> None:
        """Notes how far a part is; a part that begins again counts from there."""
        with self._lock:
            if self._done.get(part) == done:
                return
            self._done[part] = done
            so_far = sum(self._done.values())
            now = time.monotonic()
            if so_far < self._total and now - self._updated < UPDATE_SECONDS:
                return
            self._updated = now
            if so_far == self._total or now - self._said >= SAY_SECONDS:
                self._said = now
                self._say(self._what.format(done=so_far))
            self._publish(so_far)

    def _publish(self, done: int) -> None:
        percent, text = 100.0 * done / self._total, self._what.format(done=done)
        try:
            if self._artifact:
                update_progress_artifact(self._artifact, progress=percent, description=text)
            else:
                made = create_progress_artifact(progress=percent, key=self._key, description=text)
                self._artifact = cast(UUID, made)
        except Exception as error:  # whatever the server's trouble is, a bar is no reason to lose a game
            self._say(f"the progress bar was not updated: {error}")


def report_generation(decision: PromotionDecision, recorded: Recorded) -> None:
    """Publishes the match, the decision, and the link to the MLflow run."""
    create_table_artifact(
        table=match_table(decision), key=f"{decision.lineage}-match", description=f"The match of {recorded.tag}"
    )
    warnings = f"; {len(recorded.warnings)} warnings" if recorded.warnings else ""
    create_markdown_artifact(
        markdown=decision_text(decision, recorded),
        key=f"{decision.lineage}-decision",
        description=headline(decision) + warnings,
    )
    if recorded.mlflow_url:
        create_link_artifact(
            link=recorded.mlflow_url, link_text=f"MLflow run of {recorded.tag}", key=f"{decision.lineage}-mlflow"
        )


def summary(decision: PromotionDecision, recorded: Recorded) -> list[str]:
    """The decision as lines of a log, in words that need no knowledge of the project."""
    match = decision.match
    games = match.wins + match.losses + match.draws
    interval = f"95 % interval {match.interval[0]:.1%} to {match.interval[1]:.1%}"
    verdict = "it is the new champion" if decision.promoted else "the champion stays"
    return [
        f"{recorded.tag}: the new network played {games} games against the champion: {match.wins} won, "
        f"{match.losses} lost, {match.draws} drawn; {verdict}",
        f"score {match.score:.1%} ({interval}), {decision.threshold:.0%} is needed; {match.unique_games} unique games",
        f"this run: {flow_run.ui_url}",
        f"in MLflow: {recorded.mlflow_url or f'not written; `zero track {recorded.lineage}` catches up'}",
        f"play against the champion: `zero play {recorded.tag}`; make the next generation: "
        f"`make generation LINEAGE={recorded.lineage}`",
    ]


def match_table(decision: PromotionDecision) -> list[dict[str, str | int]]:
    """Rows of the match as the challenger sees it, by colour and in all."""
    match = decision.match
    rows = {"Black": match.as_black, "White": match.as_white}
    table = [_row(f"challenger as {colour}", games) for colour, games in rows.items()]
    return [*table, _row("all", Colours(wins=match.wins, losses=match.losses, draws=match.draws))]


def headline(decision: PromotionDecision) -> str:
    """The decision in half a line."""
    return f"challenger {'promoted' if decision.promoted else 'refused'} with a score of {decision.match.score:.1%}"


def decision_text(decision: PromotionDecision, recorded: Recorded) -> str:
    """The decision as a page."""
    match = decision.match
    verdict = "becomes the champion" if decision.promoted else "is refused; the champion stays"
    page = recorded.mlflow_url
    warnings = "".join(f"\n> **Warning:** {line}\n" for line in recorded.warnings)
    return f"""# {recorded.tag}: {headline(decision)}

The challenger `{decision.challenger[:12]}` {verdict}.
{warnings}
| | |
|---|---|
| score | **{match.score:.1%}**, 95 % interval {match.interval[0]:.1%} to {match.interval[1]:.1%} |
| needed | {decision.threshold:.0%} |
| games | {match.wins} won, {match.losses} lost, {match.draws} drawn |
| unique games | {match.unique_games} |
| mean length | {match.mean_length:.1f} moves |
| champion it met | `{decision.champion[:12]}` |
| tag | `{recorded.tag}`, commit `{recorded.commit[:12]}` |
| MLflow | {f"[run]({page})" if page else f"not written; `zero track {recorded.lineage}` catches up"} |

The next generation: `make generation LINEAGE={recorded.lineage}`.
"""


def _row(side: str, games: Colours) -> dict[str, str | int]:
    return {
        "side": side,
        "games": games.wins + games.losses + games.draws,
        "wins": games.wins,
        "losses": games.losses,
        "draws": games.draws,
    }

"""What Prefect shows of a generation beside its log: a progress table, a report, and the tags of the run."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from threading import RLock
from typing import cast
from uuid import UUID

from prefect.artifacts import create_markdown_artifact, create_table_artifact
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import ArtifactUpdate
from prefect.runtime import flow_run

from zero.config.settings import home_dir, servers
from zero.record.costs import GenerationCosts
from zero.record.texts import decision_sentence, match_sentence
from zero.storage.manifests import Manifest, PromotionDecision

UNITS = {
    "selfplay": "games",
    "replay": "",
    "training": "steps",
    "gating": "games",
    "verification": "games",
    "registry": "",
}
"""The stages in the order of the loop, and what each counts."""
UPDATE_SECONDS = 5.0
"""Minimum time between two updates of the progress: each is a request of 20 ms."""
SAY_SECONDS = 15.0
"""Minimum time between two lines of the log about the progress."""


class RecordedGeneration(Manifest):
    """A recorded generation, as `zero advance --json` prints it."""

    lineage: str
    generation: int
    tag: str
    commit: str
    promoted: bool
    mlflow_url: str | None
    warnings: tuple[str, ...] = ()
    """Problems of the generation, one sentence each; empty if its code has no health checks."""


class Progress:
    """A table artifact with a row per stage of a generation. Can be called from any thread.

    An error of Prefect's server only costs an update: it is logged.
    """

    def __init__(self, lineage: str, say: Callable[[str], None]) -> None:
        """Publishes the table.

        Args:
          lineage: name of the lineage, which names the artifact.
          say: called with a line for the log, at most every `SAY_SECONDS`.
        """
        self._key = f"{lineage}-progress"
        self._say = say
        self._stages = {stage: _Stage() for stage in UNITS}
        self._lock = RLock()
        self._updated = self._said = time.monotonic()
        self._artifact: UUID | None = None
        self._publish("waiting")

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:  # also for a stage whose shards failed before it ran
            for name, stage in self._stages.items():
                if stage.state == "running":
                    self._end(name, "failed")

    @contextmanager
    def running(self, name: str) -> Iterator[None]:
        """Marks a stage as running and then as done. If an exception leaves the context, `__exit__` marks it failed."""
        with self._lock:
            self._stages[name].start()
            self._publish(f"{name} runs")
        yield
        # Also the earlier stages that DVC has run again: those have no task that ends them.
        for each in [each for each, stage in self._stages.items() if stage.state == "running"]:
            self._end(each, "done")

    def begin(self, name: str, total: int) -> None:
        """Notes that a stage has `total` units of work, of which none is done."""
        with self._lock:
            stage = self._stages[name]
            stage.start()
            stage.done, stage.total = {}, total
            self._publish(f"{name}: {stage.text(name)}")

    def show(self, name: str, part: str, done: int) -> None:
        """Notes how much of a part of a stage is done; a part that starts again counts from there."""
        with self._lock:
            stage = self._stages[name]
            if stage.done.get(part) == done:
                return
            stage.done[part] = done
            is_complete, now = sum(stage.done.values()) >= stage.total, time.monotonic()
            if not is_complete and now - self._updated < UPDATE_SECONDS:
                return
            self._updated = now
            line = f"{name}: {stage.text(name)}"
            if is_complete or now - self._said >= SAY_SECONDS:
                self._said = now
                self._say(line)
            self._publish(line)

    def _end(self, name: str, state: str) -> None:
        with self._lock:
            self._stages[name].state, self._stages[name].ended = state, time.monotonic()
            self._publish(f"{name} {state}")

    def _publish(self, description: str) -> None:
        rows = [stage.row(number, name) for number, (name, stage) in enumerate(self._stages.items(), 1)]
        try:
            if self._artifact is None:
                made = create_table_artifact(table=rows, key=self._key, description=description)
                self._artifact = cast(UUID, made)
            else:
                changed = ArtifactUpdate(data=json.dumps(rows), description=description)
                get_client(sync_client=True).update_artifact(self._artifact, changed)
        except Exception as error:  # no error of the server is a reason to lose a game
            self._say(f"the table of the progress was not updated: {error}")


class _Stage:
    """Progress of one stage."""

    def __init__(self) -> None:
        self.state = "waiting"
        self.total = 0
        self.done: dict[str, int] = {}
        self.began = self.ended = 0.0

    def start(self) -> None:
        """Marks the stage as running; its time counts from the first call."""
        if self.state == "waiting":
            self.began = time.monotonic()
        self.state = "running"

    def text(self, name: str) -> str:
        """What is done, such as `12 of 24 games`."""
        return f"{sum(self.done.values())} of {self.total} {UNITS[name]}" if self.total else ""

    def row(self, number: int, name: str) -> dict[str, str]:
        """The row of the table."""
        percent = f"{sum(self.done.values()) / self.total:.0%}" if self.total else ""
        ended = time.monotonic() if self.state == "running" else self.ended
        spent = "" if self.state == "waiting" else str(timedelta(seconds=round(ended - self.began)))
        return {
            "stage": f"{number} {name}",
            "state": self.state,
            "done": self.text(name),
            "percent": percent,
            "time": spent,
        }


def tag_run(*tags: str) -> None:
    """Adds tags to the flow run, by which Prefect's pages filter."""
    get_client(sync_client=True).update_flow_run(UUID(flow_run.id), tags={*flow_run.tags, *tags})


def report_generation(decision: PromotionDecision, recorded: RecordedGeneration, costs: GenerationCosts | None) -> None:
    """Publishes the report of a generation as a page."""
    warnings = f"; {len(recorded.warnings)} warnings" if recorded.warnings else ""
    create_markdown_artifact(
        markdown=report_text(decision, recorded, costs),
        key=f"{decision.lineage}-report",
        description=decision_sentence(decision) + warnings,
    )


def summary(decision: PromotionDecision, recorded: RecordedGeneration) -> list[str]:
    """The decision as lines of a log, for readers who do not know the project."""
    first = f"{recorded.tag}: {decision_sentence(decision)}"
    return [first, match_sentence(decision.match), f"this run: {flow_run.ui_url}", *links(recorded)]


def report_text(decision: PromotionDecision, recorded: RecordedGeneration, costs: GenerationCosts | None) -> str:
    """The report: decision, warnings, match, costs, links."""
    warnings = "".join(f"\n> **Warning:** {line}\n" for line in recorded.warnings)
    return f"""# {recorded.tag}: {decision_sentence(decision)}
{warnings}
{match_sentence(decision.match)}

{costs_text(costs) if costs else ""}
## Links

{"".join(f"- {line}" + chr(10) for line in links(recorded, "<{}>"))}"""


def links(recorded: RecordedGeneration, form: str = "{}") -> list[str]:
    """Addresses and next commands, one line each. `form`: how an address is written."""
    page, web = recorded.mlflow_url, servers(home_dir()).get("web")
    report = f"{web}/#/lineages/{recorded.lineage}/{recorded.generation}"
    return [
        f"report: {form.format(report) if web else f'`zero report {recorded.tag}` writes it'}",
        f"MLflow run: {form.format(page) if page else f'not written; `zero track {recorded.lineage}` writes it'}",
        f"play against the champion: `zero play {recorded.tag}`",
        f"the next generation: `make generation LINEAGE={recorded.lineage}`",
    ]


def costs_text(costs: GenerationCosts) -> str:
    """What the generation cost, by stage, as a section with a table."""
    lines = ["## Costs\n", "| stage | wall | CPU | games | evaluations |", "|---|---|---|---|---|"]
    stages = [(name, costs.stages[name]) for name in UNITS if name in costs.stages]  # the record sorts them by name
    for name, stage in (*stages, ("total", costs.total())):
        wall, cpu = (timedelta(seconds=round(seconds)) for seconds in (stage.seconds, stage.cpu_seconds))
        lines.append(f"| {name} | {wall} | {cpu} | {stage.games:,} | {stage.evaluations:,} |")
    return "\n".join(lines) + "\n"

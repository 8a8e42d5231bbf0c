"""Health checks of a training: from its curve, whether the value head learns and neither head has collapsed.

A value head can die in its first steps: its tanh saturates, its gradient vanishes, and the search follows a constant.
Such a network is weaker than a random one, although the loss stays finite. The checks read only the curve, so they can
be repeated from the record.

Measured on the first generation of 9x9 (RESULTS.md, 2026-11-24): dead value heads have 100 % saturated values and a
standard deviation of 0.000; living ones have at most 8 % and at least 0.19. The other thresholds were not tuned.
"""

import json
from collections.abc import Sequence
from math import sqrt
from statistics import fmean, median
from typing import TYPE_CHECKING, Literal

from pydantic import ValidationError

from zero.errors import StorageError
from zero.storage.manifests import Manifest

if TYPE_CHECKING:
    from zero.network.learner import StepResult

DEAD = (
    "the training is dead: the next generation restarts from the checkpoint that this one started from. If it is dead "
    "again, set training.value_loss to cross_entropy, lower training.learning_rate, or go back with `zero rollback` to "
    "before the first warning"
)
MIN_STEPS = 100
"""Fewest steps of a training for which the checks are computed."""
LAST_SHARE = 4
"""The checks use the mean of the last 1 / LAST_SHARE of the curve's lines. A head that is dead in the last line is
dead."""
SATURATED_SHARE = 0.9
"""Share of saturated values at or above which the value head counts as saturated."""
CONSTANT_RATIO = 0.01
"""Ratio of the standard deviation of the values within a batch to that of their targets below which the value head
counts as constant. It is a ratio because the right values of games that are nearly all draws differ little."""
COLLAPSED_ENTROPY = 0.01
"""Policy entropy, in nats, below which the policy counts as collapsed."""
VANISHED_GRADIENT = 1e-6
"""Gradient norm below which a head counts as no longer learning."""
EXPLODED_GRADIENT, EXPLODED_RATIO = 10.0, 100.0
"""Gradient norm, and ratio to its median over the curve, above both of which the gradient counts as exploded. Healthy
norms are 0.1 to 1."""

Verdict = Literal["healthy", "warning", "dead", "unknown"]


class Health(Manifest):
    """Result of the health checks of a training."""

    verdict: Verdict
    """`dead`: the value head is constant, or saturated without beating the best constant; the next training restarts
    from the checkpoint that this one started from. `warning`: something is wrong, but training continues. `unknown`:
    the value could not be judged; other problems are findings all the same."""
    explained_variance: float | None
    """1 - value loss / loss of the best constant value; None if all targets are equal."""
    findings: tuple[str, ...]
    """One sentence for each problem; if the verdict is `unknown`, the first one says why."""

    def sentence(self) -> str:
        """The verdict, and what is known of the value."""
        if self.verdict == "unknown":
            return self.findings[0]
        explained = self.explained_variance
        known = "" if explained is None else f"; the value explains {explained:.0%} of the variance of its targets"
        return f"{self.verdict}{known}"

    def lines(self) -> list[str]:
        """Warnings to show, one per line; empty if nothing is wrong."""
        if self.verdict == "unknown":
            return list(self.findings[1:])  # the first one is what is not known
        return [*self.findings, *([DEAD] if self.verdict == "dead" else [])]


def health_of(curve: Sequence["StepResult"], num_steps: int) -> Health:
    """Computes the health of a training.

    Args:
      curve: its curve, at least one line.
      num_steps: number of its optimiser steps.
    """
    last = curve[-max(1, len(curve) // LAST_SHARE) :]
    # By the class of the lines: importing `StepResult` would import torch, which readers of the record do without.
    means = type(last[0])._make(map(fmean, zip(*last, strict=True)))
    explained = 1.0 - means.value_loss / means.constant_value_loss if means.constant_value_loss > 0.0 else None
    if num_steps < MIN_STEPS:
        reason = f"the health is not known: {num_steps} steps are too few to judge, {MIN_STEPS} are needed"
        return Health(verdict="unknown", explained_variance=explained, findings=(reason,))
    findings, dead = _value_findings(means)
    if not dead and (at_the_end := _value_findings(last[-1]))[1]:
        findings, dead = at_the_end  # it died in the last quarter
    if means.policy_entropy < COLLAPSED_ENTROPY:
        findings.append(f"the policy has collapsed: its entropy is {means.policy_entropy:.2g} nats")
    findings += _gradient_findings(curve, means)
    if dead:
        verdict: Verdict = "dead"
    elif explained is None:
        verdict = "unknown"
    else:
        verdict = "warning" if findings else "healthy"
    return Health(verdict=verdict, explained_variance=explained, findings=tuple(findings))


def recorded_health(metrics: bytes, name: str) -> Health | None:
    """The health recorded in a `metrics/training.json`; None if the code that wrote it had other health checks or none.

    Args:
      metrics: content of the file.
      name: name of the file in errors.

    Raises:
      StorageError: the file is corrupt.
    """
    try:
        found = json.loads(metrics).get("health")
    except (ValueError, AttributeError, RecursionError):
        raise StorageError(f"{name} is corrupt; restore it with `git checkout` at the generation's tag") from None
    try:
        return Health.model_validate(found)
    except ValidationError:
        return None


def _value_findings(line: "StepResult") -> tuple[list[str], bool]:
    """Problems of the value head in a line of the curve or a mean of lines, and whether it is dead."""
    if line.constant_value_loss <= 0.0:
        return ["the health of the value is not known: all value targets of the window are equal"], False
    findings = []
    explained = 1.0 - line.value_loss / line.constant_value_loss
    no_better = explained <= 0.0
    # If one colour nearly always wins, the right values are saturated too.
    saturated = line.saturated_values >= SATURATED_SHARE and explained < 0.5
    # The loss of the best constant is the variance of the targets.
    constant = line.value_deviation < CONSTANT_RATIO * sqrt(line.constant_value_loss)
    if no_better:
        findings.append(
            f"the value loss {line.value_loss:.3g} does not beat {line.constant_value_loss:.3g}, the loss of the "
            "best constant value"
        )
    if saturated:
        findings.append(f"{line.saturated_values:.0%} of the values are saturated (0.99 or more from 0)")
    if constant:
        findings.append(
            f"the value is nearly the same in all positions: its standard deviation is {line.value_deviation:.2g}"
        )
    # The loss of a constant is that of the best one but for noise, so it may seem to beat it.
    return findings, constant or (no_better and saturated)


def _gradient_findings(curve: Sequence["StepResult"], means: "StepResult") -> list[str]:
    findings = []
    for head in ("policy", "value"):
        name = f"{head}_gradient_norm"
        if getattr(means, name) < VANISHED_GRADIENT:
            findings.append(f"the gradient of the {head} head has vanished: its norm is {getattr(means, name):.2g}")
        norms = [getattr(line, name) for line in curve]
        # The median alone is not enough: the gradients of a head that knows its targets are nearly 0.
        if max(norms) > max(EXPLODED_GRADIENT, EXPLODED_RATIO * median(norms)):
            step = curve[norms.index(max(norms))].step
            findings.append(
                f"the gradient of the {head} head exploded at step {step}: its norm is {max(norms):.2g}, the median "
                f"of the training is {median(norms):.2g}"
            )
    return findings

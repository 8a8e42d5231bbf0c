"""The view of a lineage's experiment: a table with a row per generation, and charts in the order of the loop.

MLflow keeps the columns and charts of its pages in the browser. A saved view is kept in a tag of the experiment, and
the menu `Views` of the page lists it. The format is the one in which MLflow's pages save a view.
"""

import json
from typing import Any

from zero.tracking.cards import VIEW_KEY
from zero.tracking.pages import GROUPS

VIEW_TAG = f"mlflow.sharedViewState.{VIEW_KEY}"
NAME = "Generations"
SECTION = "pinned"
COLUMNS = (
    "tags.`zero.decision`",
    *(f"metrics.`{GROUPS['gating']}/{name}`" for name in ("score", "score_low", "score_high")),
    *(f"metrics.`{GROUPS['training']}/{name}`" for name in ("policy_loss", "value_loss")),
    f"metrics.`{GROUPS['selfplay']}/mean_length`",
    "tags.`zero.health`",
)
CHARTS = {
    "Policy loss": ("training", ("policy_loss",)),
    "Value loss, and that of the best constant": ("training", ("value_loss", "constant_value_loss")),
    "Variance that the value explains": ("training", ("explained_variance",)),
    "Accuracy of the policy": ("training", ("policy_accuracy",)),
    "Length of self-play games": ("selfplay", ("mean_length",)),
    "Score of the challenger, 95 % interval": ("gating", ("score", "score_low", "score_high")),
}
"""Stage and metrics of each chart."""


def saved_view() -> str:
    """Value of the tag `VIEW_TAG`."""
    state = {
        "searchFilter": "tags.`zero.stage` = 'generation'",
        "orderByKey": "attributes.start_time",
        "orderByAsc": False,
        "startTime": "ALL",
        "lifecycleFilter": "Active",
        "datasetsFilter": [],
        "modelVersionFilter": "All Runs",
        "selectedColumns": COLUMNS,
        "runsHiddenMode": "FIRST_20_RUNS",
        "isAccordionReordered": True,  # else MLflow sorts the sections by name
        "compareRunSections": [{"uuid": SECTION, "name": NAME, "display": True, "isReordered": True}],
        "compareRunCharts": [_chart(title, *metrics) for title, metrics in CHARTS.items()],
    }
    # No time of its own, so that an experiment that is written again is equal.
    return json.dumps({"name": NAME, "createdAt": 0, "updatedAt": 0, "state": json.dumps(state)})


def _chart(title: str, stage: str, names: tuple[str, ...]) -> dict[str, Any]:
    """A chart of metrics over steps, one line per run and metric."""
    metrics = [f"{GROUPS[stage]}/{name}" for name in names]
    return {
        "type": "LINE",
        "uuid": metrics[0],
        "metricSectionId": SECTION,
        "deleted": False,
        "isGenerated": False,
        "displayName": title,
        "runsCountToCompare": 20,
        "metricKey": metrics[0],
        "selectedMetricKeys": metrics,
        "xAxisKey": "step",
        "xAxisScaleType": "linear",
        "scaleType": "linear",
        "yAxisKey": "metric",
        "yAxisExpressions": [],
        "lineSmoothness": 0,
        "range": {},
        "ignoreOutliers": False,
        "useGlobalXaxisKey": False,
        "useGlobalLineSmoothing": True,
    }

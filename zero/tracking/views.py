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
    *(f"metrics.`{GROUPS['training']}/{name}`" for name in ("policy_loss", "value_loss")),
    f"metrics.`{GROUPS['gating']}/score`",
    *("tags.`zero.decision`", "tags.`zero.health`"),
)
CHARTS = (
    ("training", ("policy_loss",)),
    ("training", ("value_loss", "constant_value_loss")),
    ("training", ("explained_variance",)),
    ("training", ("policy_accuracy",)),
    ("selfplay", ("mean_length",)),
    ("gating", ("score", "score_low", "score_high")),
)
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
        "compareRunCharts": [_chart(stage, names) for stage, names in CHARTS],
    }
    # No time of its own, so that an experiment that is written again is equal.
    return json.dumps({"name": NAME, "createdAt": 0, "updatedAt": 0, "state": json.dumps(state)})


def _chart(stage: str, names: tuple[str, ...]) -> dict[str, Any]:
    """A chart of metrics over steps, one line per run and metric."""
    metrics = [f"{GROUPS[stage]}/{name}" for name in names]
    return {
        "type": "LINE",
        "uuid": metrics[0],
        "metricSectionId": SECTION,
        "deleted": False,
        "isGenerated": False,
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

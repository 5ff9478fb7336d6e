"""
Log of the adjuster: a JSON object a line, with the fields of the nodes' lines, in any of Lambda's log formats.

CloudWatch Logs extracts metrics from a line only if it has no text before or after its JSON.
"""

import logging
import os
from collections.abc import Mapping
from typing import Any

from deeplearning_contract.log_record import ADJUSTER, MOST_DETAIL_CHARACTERS, TRACEBACK, LogLine, Speaker
from deeplearning_contract.metrics import CLUSTER, Metric, embed_metrics

CLUSTER_VARIABLE = "DEEPLEARNING_CLUSTER"
_LAMBDA_VARIABLE = "AWS_LAMBDA_FUNCTION_NAME"
_EXTRA = ("generation", "details", "metrics")


class LineFormatter(logging.Formatter):
    """Formatter of log lines of the contract, with the line ending that the handler needs."""

    def __init__(self, cluster: str, ending: str = "") -> None:
        super().__init__()
        self._speaker = Speaker(cluster, ADJUSTER, ADJUSTER)
        self._ending = ending

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, with the fields that `line_fields` added to the record."""
        generation, details, metrics = (getattr(record, name, None) for name in _EXTRA)
        details = dict(details or {})
        if record.exc_info:
            details[TRACEBACK] = self.formatException(record.exc_info)[-MOST_DETAIL_CHARACTERS:]
        line = LogLine(
            time=record.created,
            level=record.levelname,
            speaker=self._speaker,
            generation=generation or 0,
            logger=record.name,
            message=record.getMessage(),
            details={
                **details,
                **embed_metrics(metrics or {}, {CLUSTER: self._speaker.cluster}, record.created),
            },
        )
        return line.to_text() + self._ending


def line_fields(
    generation: int = 0, details: Mapping[str, Any] | None = None, metrics: Mapping[Metric, float] | None = None
) -> dict[str, Any]:
    """Return the `extra` of a log call: the generation, further fields of the line, and metrics."""
    return dict(zip(_EXTRA, (generation, details, metrics), strict=True))


def write_lines(environment: Mapping[str, str] = os.environ) -> None:
    """Set the formatter of the handlers of Lambda's runtime; without effect elsewhere."""
    if _LAMBDA_VARIABLE not in environment:
        return
    for handler in logging.getLogger().handlers:
        # A stream's handler adds the line ending; Lambda's own leaves it to the formatter.
        ending = "" if isinstance(handler, logging.StreamHandler) else "\n"
        handler.setFormatter(LineFormatter(environment.get(CLUSTER_VARIABLE, ""), ending))

"""The nodes' log, which a node fills every ten seconds."""

from types import SimpleNamespace

from deeplearning_contract.log_record import LogLine, Speaker
from deeplearning_rehearsal.checks import node_log


class Logs:
    """A log group into which one more node ships at each look."""

    def __init__(self, *nodes):
        self.waiting = list(nodes)
        self.events = []

    def get_paginator(self, _operation):
        return SimpleNamespace(paginate=self.paginate)

    def paginate(self, **_):
        if self.waiting:
            self.events.append(_write_line(self.waiting.pop(0)))
        return [{"events": list(self.events)}]


def test_a_node_that_has_not_shipped_yet_is_waited_for(monkeypatch):
    monkeypatch.setattr(node_log.time, "sleep", lambda _: None)
    report = node_log.await_node_log(Logs("i-1", "i-2", "i-3"), "group", ["i-1", "i-3"])
    assert report.lines == {"i-1": 1, "i-2": 1, "i-3": 1}


def test_a_silent_node_is_not_waited_for_for_ever():
    assert node_log.await_node_log(Logs("i-1"), "group", ["i-1", "i-2"], seconds=0).lines == {"i-1": 1}


def _write_line(node):
    speaker = Speaker("digits", node, "worker")
    return {"message": LogLine(0.0, "INFO", speaker, 1, "agent", "hello").to_text(), "logStreamName": speaker.stream}

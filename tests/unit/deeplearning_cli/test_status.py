"""`deeplearning-cdk status` for scripts: its exit status and its reason are those of the stack."""

import argparse
import json
from datetime import datetime, timezone

import pytest

from deeplearning_cli import status as command
from deeplearning_view.view_builder import make_view
from tests.unit.deeplearning_view.cluster_responses import make_responses, make_rolled_back

REASON = "master did not launch: no room; make room"
NOW = datetime(2026, 11, 22, 10, 2, tzinfo=timezone.utc)


@pytest.fixture
def show(monkeypatch, capsys):
    """Return a function that shows a cluster and returns the exit status and what was printed."""
    monkeypatch.setattr(command, "open_cloud", lambda _arguments: None)

    def show(responses, *, as_json=False):
        monkeypatch.setattr(command, "read_view", lambda _access: make_view(responses, NOW))
        status = command.run(argparse.Namespace(json=as_json, watch=True))
        return status, capsys.readouterr().out

    return show


@pytest.mark.defect("D76")
@pytest.mark.parametrize("as_json", [False, True])
def test_a_stack_that_was_rolled_back_ends_with_1_and_its_reason(show, as_json):
    status, printed = show(make_rolled_back(REASON), as_json=as_json)
    assert status == 1
    assert "ROLLBACK_COMPLETE" in printed
    assert "master did not launch: no room" in printed
    if as_json:
        assert json.loads(printed)["verdict"] == "failed"


@pytest.mark.defect("D76")
def test_a_stack_whose_creation_failed_without_a_rollback_has_exit_status_1(show):
    assert show(make_responses("CREATE_FAILED", item=None))[0] == 1


def test_a_cluster_that_formed_ends_with_0(show):
    assert show(make_responses())[0] == 0

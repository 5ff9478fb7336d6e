"""A rehearsal that could not be carried out is reported by the process in the lab, for people and for programs."""

import json
from pathlib import Path

import pytest

from cdk_rehearsal.errors import UnavailableError
from deeplearning_rehearsal import rehearsal
from deeplearning_rehearsal.options import RehearsalOptions


@pytest.mark.parametrize("as_json", [True, False])
def test_an_unavailable_rehearsal_ends_with_status_2_and_prints_json_only_on_request(as_json, capsys, monkeypatch):
    def refuse(*_):
        raise UnavailableError("missing: a disk; make room")

    monkeypatch.setattr(rehearsal, "rehearse", refuse)
    options = RehearsalOptions(Path("cdk.out"), Path("o"), Path("c"), json=as_json)
    assert rehearsal.carry_out(options.to_json(), 1) == 2
    printed = capsys.readouterr()
    assert printed.err == "deeplearning-cdk: missing: a disk; make room\n"
    error = {"error": {"message": "missing: a disk; make room", "exit_status": 2}}
    assert printed.out == (json.dumps(error) + "\n" if as_json else "")

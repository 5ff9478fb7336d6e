"""The cluster's model draws and plays the same histories wherever it runs: a search that varies hides what it finds."""

import os
import subprocess
import sys
import types
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, settings
from model_history import histories

from tests.depth import IS_DEEP

HERE = Path(__file__).parent
PLAY = """
import hashlib, sys
sys.path.insert(0, sys.argv[1])
from cluster_model import run_world
from model_happenings import HAPPENINGS
from model_history import Event
for seed in range(int(sys.argv[2])):
    with run_world(seed=seed, workers=5, script_seconds=20.0) as world:
        for kind in ("storm", "worker dies", "two masters", "grow", "cut off", "agent dies", "master dies", "shrink"):
            world.run(40)
            HAPPENINGS[kind](world, Event(0.0, kind, seed, 10.0))
        world.run(1000)
        print(hashlib.sha256("\\n".join(world.history).encode()).hexdigest())
"""


def draw_histories():
    """Return what a derandomized search draws."""
    drawn = []

    @settings(
        max_examples=200 if IS_DEEP else 50,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
    )
    @given(histories())
    def search(history):
        drawn.append(history)

    search()
    return [repr(history) for history in drawn]


def test_the_search_draws_the_same_whatever_else_is_loaded(tmp_path, monkeypatch):
    before = draw_histories()
    source = tmp_path.parent / "loaded_later.py"
    source.write_text(f"CONSTANTS = {list(range(20_000, 60_000, 97))}\n")
    module = types.ModuleType("loaded_later")
    module.__file__ = str(source)
    monkeypatch.setitem(sys.modules, "loaded_later", module)
    assert draw_histories() == before


def test_a_history_is_played_the_same_whatever_the_order_of_hashes():
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", PLAY, str(HERE), "3" if IS_DEEP else "1"],
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONHASHSEED": str(seed)},
        )
        for seed in range(4 if IS_DEEP else 2)
    ]
    played = {run.communicate()[0] for run in runs}
    assert [run.returncode for run in runs] == [0] * len(runs)
    assert len(played) == 1

"""The figures of `make bench`: how pairs are measured, and what the table says of them."""

import json
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from deeplearning_rehearsal.cases.loader import find_cases
from deeplearning_rehearsal.cases.recovery import Step
from tests.bench import clusters, launching, recovery_cases, synthesis
from tests.bench.figure import Figure, render_table, take_median, take_percentiles

PAGE = Path(__file__).parents[2] / "docs" / "figures.md"


class Master:
    """A master on which jobs are as fast as told, and end sooner than they should."""

    def __init__(self, run, **changes):
        self.commands = []
        self._run = run
        self._changes = changes

    def ask(self, command):
        self.commands.append(command)
        speed = self._run if "deeplearning run" in command else 1000.0
        seconds = int(command.split("--epochs ")[1]) * 1438 / speed / 5
        result = {"accuracy": 0.97, "ranks": 2, "hosts": ["ip-1", "ip-2"], "trained_on": 1438}
        figures = {"seconds": seconds, "samples_per_second": speed, "cpu_seconds": 20_000.0 / speed}
        return f"[0] {json.dumps(result | figures | self._changes)}\nrun 1 of horovod: /efs/jobs/horovod/runs/1\n"


def test_pairs_are_measured_in_turned_order_with_jobs_long_enough():
    master = Master(990.0)
    throughput, cpu = launching.measure_pairs(lambda _: None, master.ask)
    pairs = launching.PAIRS
    lengths, measured = master.commands[: -2 * pairs], master.commands[-2 * pairs :]
    assert len(lengths) == 3, "each was still too short, by a job that is faster than it says"
    epochs = {int(command.split("--epochs ")[1]) for command in measured}
    assert len(epochs) == 1
    assert epochs.pop() * 1438 / 990.0 >= launching.TRAINING_SECONDS
    assert ["horovodrun --gloo" in command for command in measured] == [False, True, True, False] * (pairs // 2)
    names = {command.split("--name ")[1].split()[0] for command in master.commands if "--name" in command}
    assert len(names) == len(lengths) + pairs, "a job of the same name would go on from its checkpoint"
    assert (throughput.value, throughput.holds, throughput.values) == (0.99, True, (0.99,) * pairs)
    assert cpu.value == 0.99


def test_a_figure_beyond_its_bound_does_not_hold():
    throughput, _ = launching.measure_pairs(lambda _: None, Master(900.0).ask)
    assert not throughput.holds
    assert not Figure("AWS calls", 51, at_most=50).holds
    assert Figure("AWS calls", 50, at_most=50).holds


@pytest.mark.parametrize("changes", [{"ranks": 1}, {"hosts": ["ip-1", "ip-1"]}])
def test_a_job_on_fewer_nodes_gives_no_figure(changes):
    with pytest.raises(RuntimeError, match="bench-length-0 must train with a rank on each of 2 nodes"):
        launching.measure_pairs(lambda _: None, Master(990.0, **changes).ask)


def test_the_table_gives_each_figure_with_its_unit_its_bound_and_its_spread():
    figures = [
        take_median("a ratio", [0.97, 1.0, 0.99], at_least=0.98),
        Figure("calls", 3_020, at_most=8_216),
        Figure("memory", 7353, "MiB"),
    ]
    assert render_table(figures).splitlines()[2:] == [
        "| a ratio | 0.99 | at least 0.98 | 0.97 to 1 in 3 pairs |",
        "| calls | 3,020 | at most 8,216 |  |",
        "| memory | 7,353 MiB |  |  |",
    ]


def test_requests_to_jsii_and_processor_time_of_a_synthesis_are_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(synthesis, "APP", str(tmp_path / "app.py"))
    (tmp_path / "app.py").write_text(synthesis.EMPTY_APP)
    requests, resources = synthesis.count_requests(tmp_path)
    assert resources == 0
    assert 5 <= requests <= 100


@pytest.mark.parametrize("nodes", clusters.SIZES)
def test_the_page_has_the_figures_of_each_size(nodes):
    assert f"AWS calls with which {nodes:,} nodes form" in PAGE.read_text()


def test_the_figures_of_ten_faults_are_their_p50_and_p95():
    figure = take_percentiles(
        "a worker is killed: to the next step", [2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 20.0]
    )
    assert (figure.value, figure.percentile_95) == (6.5, 15.5)
    assert render_table([figure]).endswith("| 6.5 s |  | p95 15.5 s; 2 to 20 in 10 faults |")


def test_each_case_of_rounds_gives_two_figures(tmp_path, monkeypatch):
    rehearsed = []
    monkeypatch.setattr(clusters, "_rehearse", lambda cases, out: rehearsed.append((cases, out)))
    for name in clusters.STRUCK:
        (tmp_path / name).mkdir()
        rounds = [{"recovery_seconds": number, "regained_seconds": 10 * number} for number in range(1, 11)]
        (tmp_path / name / "report.json").write_text(json.dumps({"case": {"injections": rounds}}))
    figures = clusters.measure_rounds(lambda _: None, tmp_path)
    assert rehearsed == [("tests/bench/recovery_cases.py", tmp_path)]
    assert [figure.name for figure in figures[:2]] == [
        "a worker is killed: to the next step",
        "a worker is killed: to the full size",
    ]
    assert (len(figures), figures[0].value, figures[1].value) == (10, 5.5, 55)
    assert {found.name for found in find_cases("tests/bench/recovery_cases.py")} == set(clusters.STRUCK)


class Cluster:
    """A cluster that is struck; what the full size commits during a strike is no sign that it trains again."""

    def __init__(self):
        self.steps = []
        self.struck = 0
        self.situation = SimpleNamespace(job=SimpleNamespace(steps=lambda: self.steps))

    def commit(self, size=recovery_cases.RANKS):
        self.steps.append(Step(time.time(), "commit", 5, size))

    def strike(self, _):
        self.struck += 1
        self.commit()
        self.commit()

    def wait_for(self, moment, has_come):
        assert not has_come(), moment
        self.commit(recovery_cases.RANKS - 1)
        self.commit()
        assert not has_come(), moment
        self.commit()
        assert has_come(), moment

    def finish(self):
        self.steps.clear()


def test_a_round_begins_when_the_full_size_has_committed_twice_since_the_end_of_the_last_strike():
    cluster = Cluster()
    recovery_cases.strike_often(cluster, cluster.strike)
    assert (cluster.struck, cluster.steps) == (recovery_cases.ROUNDS, [])

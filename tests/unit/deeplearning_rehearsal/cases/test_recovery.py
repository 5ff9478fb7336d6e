"""Progress of an elastic job, and the recovery from a fault that it shows."""

import json
from itertools import pairwise

import pytest

from deeplearning_rehearsal.cases.recovery import (
    ElasticJob,
    Step,
    list_elastic_spans,
    measure_recovery,
    parse_steps,
)


def _steps(*rows):
    return tuple(Step(*row) for row in rows)


BEFORE = ((100.0, "start", 0, 1), (101.0, "reset", 0, 4), (103.0, "commit", 5, 4), (105.0, "commit", 10, 4))


def test_training_goes_on_at_the_first_new_commit_of_a_new_world():
    after = ((112.0, "reset", 10, 3), (114.0, "commit", 15, 3), (140.0, "reset", 15, 4), (150.0, "done", 30, 4))
    recovery = measure_recovery(_steps(*BEFORE, *after), 106.0)
    assert (recovery.seconds, recovery.lost_commits) == (8.0, 0)
    assert (recovery.size_before, recovery.sizes_after, recovery.has_regained_size) == (4, (3, 4), True)
    assert recovery.regained_seconds == 34.0


def test_a_commit_of_the_old_world_is_no_recovery():
    late = ((106.5, "commit", 15, 4), (112.0, "reset", 15, 3), (114.0, "commit", 20, 3))
    assert measure_recovery(_steps(*BEFORE, *late), 106.0).seconds == 8.0


def test_progress_that_only_repeats_what_was_committed_is_no_recovery():
    again = ((112.0, "start", 5, 3), (114.0, "commit", 10, 3), (116.0, "commit", 15, 3))
    recovery = measure_recovery(_steps(*BEFORE, *again), 106.0)
    assert (recovery.seconds, recovery.lost_commits) == (10.0, 1)


def test_a_job_that_never_went_on_has_neither_time_nor_loss():
    recovery = measure_recovery(_steps(*BEFORE), 106.0)
    assert (recovery.seconds, recovery.lost_commits, recovery.sizes_after) == (None, None, ())


def test_a_new_world_that_commits_nothing_has_not_gone_on():
    recovery = measure_recovery(_steps(*BEFORE, (112.0, "reset", 10, 3)), 106.0)
    assert (recovery.seconds, recovery.lost_commits, recovery.has_regained_size) == (None, 0, False)


def test_the_end_of_training_is_progress_too():
    assert measure_recovery(_steps(*BEFORE, (112.0, "reset", 10, 3), (113.0, "done", 12, 3)), 106.0).seconds == 7.0


def test_what_an_elastic_job_did_is_one_span_after_the_other():
    after = (
        (110.0, "start", 5, 3),
        (113.0, "commit", 8, 3),
        (115.0, "commit", 10, 3),
        (118.0, "commit", 15, 3),
        (120.0, "reset", 15, 4),
        (121.0, "commit", 20, 4),
        (125.0, "done", 30, 4),
    )
    spans = list_elastic_spans(_steps(*BEFORE, *after), [106.0], 50.0, 40.0)
    assert [(span.name, span.seconds) for span in spans] == [
        ("starting the job", 10.0),
        ("starting the job", 1.0),
        ("training", 2.0),
        ("training", 2.0),
        ("training", 1.0),
        ("detection", 4.0),
        ("restart", 3.0),
        ("replay", 2.0),
        ("training", 3.0),
        ("restart", 2.0),
        ("restart", 1.0),
        ("training", 4.0),
    ]
    assert all(first.start + first.seconds == second.start for first, second in pairwise(spans))
    assert (spans[0].start, spans[-1].start + spans[-1].seconds) == (50.0, 85.0)
    assert list_elastic_spans((), [], 50.0, 40.0) == []


@pytest.mark.parametrize(
    "line",
    ['{"time": 1, "batch": 2', "[]", '{"time": 1, "batch": 2, "size": 3}', '{"time":1,"batch":2,"size":3,"event":"x"}'],
)
def test_a_broken_line_of_progress_is_left_out(line):
    good = '{"time": 1.5, "batch": 5, "size": 2, "event": "commit"}'
    assert parse_steps(f"{good}\n{line}\n{good}\n") == (Step(1.5, "commit", 5, 2),) * 2


def _write(folder, events):
    folder.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps({"time": 1.0, "batch": 1, "size": size, "event": event}) for event, size in events]
    (folder / "progress.jsonl").write_text("\n".join(lines) + "\n")


def test_a_job_is_followed_wherever_on_the_file_system_it_writes(tmp_path):
    job = ElasticJob(lambda: [tmp_path])
    assert (job.steps(), job.commits(2), job.result()) == ((), 0, None)
    out = tmp_path / "a" / "train_elastic"
    _write(out, [("start", 1), ("commit", 1), ("commit", 2)])
    assert (job.commits(1), job.commits(2), job.commits(3)) == (1, 1, 0)


def test_a_result_counts_only_when_the_job_says_that_it_is_done(tmp_path):
    job = ElasticJob(lambda: [tmp_path])
    (tmp_path / "result.json").write_text('{"accuracy": 0.97}')
    _write(tmp_path, [("start", 1), ("commit", 1)])
    assert len(job.steps()) == 2
    assert job.result() is None
    _write(tmp_path, [("start", 1), ("done", 1)])
    assert job.result() == {"accuracy": 0.97}
    (tmp_path / "result.json").write_text('{"accuracy"')
    assert job.result() is None

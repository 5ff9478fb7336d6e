"""The picture of a timeline: lanes, states, labels, and what is measured on it."""

import pytest

from deeplearning_rehearsal.report.report_page import draw_timeline, read_lanes, render_page


def _make_timeline(*happenings):
    return [{"at": at, "lane": lane, "text": text} for at, lane, text in happenings]


def _report(*happenings, **changes):
    return {
        "stack": {"name": "trial"},
        "cluster": {"formation_seconds": None},
        "phases": [{"name": "all", "start": 0.0, "seconds": 100.0}],
        "timeline": _make_timeline(*happenings),
        "case": None,
    } | changes


def _case(**changes):
    injection = {"at": 40.0, "what": "power_off worker 1", "recovery_seconds": None} | changes
    return {"injections": [injection], "progress": [], "failure_seconds": None}


def _find_lines(picture, kind):
    return [line[:4] for line in picture.lines if line[4] == kind]


def _find_texts(picture):
    return [text for _, _, _, text, _ in picture.texts]


def test_lanes_are_ordered_as_a_cluster_comes_up():
    lanes = ("worker 10", "adjuster", "i-0123", "worker 9", "training", "injected", "stack", "master 30")
    picture = draw_timeline(_report(*((float(at), lane, "in service") for at, lane in enumerate(lanes))))
    assert [name for _, name in picture.names] == [
        *("fault", "stack", "adjuster (Lambda)", "training job", "master 30", "worker 9", "worker 10", "i-0123"),
    ]


def test_the_bar_of_a_machine_shows_its_states_and_ends_with_it():
    happenings = (
        (10.0, "boots p3.2xlarge"),
        (20.0, "reported joined"),
        (30.0, "reported ready"),
        (60.0, "loses its power"),
    )
    picture = draw_timeline(_report(*((at, "worker 5", text) for at, text in happenings)))
    bars = [(x, width, kind) for x, _, width, _, _, kind in picture.bars if kind != "phase0"]
    assert bars == [(100.0, 200.0, "busy"), (300.0, 300.0, "good")]
    assert {"launched", "joined", "member", "lost"} <= set(_find_texts(picture))


@pytest.mark.parametrize(
    ("lane", "text", "label"),
    [
        ("stack", "trial CREATE_IN_PROGRESS: User Initiated", "begins"),
        ("stack", "trial CREATE_COMPLETE", "complete"),
        ("stack", "Workers CREATE_COMPLETE", None),
        ("stack", "Workers CREATE_FAILED: no capacity", "Workers failed"),
        ("adjuster", "sns → adjuster in 0.3 s", "invoked"),
        ("master 7", "mount the file system: done in 0.1 s", None),
        ("master 7", "published generation 2 with 3 members", "generation 2: 3 members"),
        ("training", "reset at batch 20 with 3 ranks", "goes on, 3 ranks"),
        ("training", "mpi (seed) trained as promised", "trained"),
        ("training", "mpi (seed) it ended with status 1: no route", "failed"),
        ("injected", "power_off worker 2 (training commit 4 with 4 ranks) worker 6 i-1", "power_off worker 2"),
        ("injected", "EC2 finds worker 6 i-1 dead", "EC2 finds worker 6 dead"),
    ],
)
def test_only_what_tells_a_reader_something_has_a_label(lane, text, label):
    lanes = read_lanes(_make_timeline((1.0, lane, text)), "trial")
    assert [moment.label for moment in lanes.get(lane, [])] == ([] if label is None else [label])


def test_labels_that_change_the_bar_get_room_first_and_one_at_the_edge_ends_there():
    happenings = ((10.0, "boots x"), (10.1, "in service"), (13.0, "reported ready"), (99.9, "loses its power"))
    picture = draw_timeline(_report(*((at, "worker 5", text) for at, text in happenings)))
    assert _find_texts(picture)[1:4] == ["launched", "member", "lost"]
    assert len(picture.dots) == len(happenings)
    assert [anchor for _, _, anchor, text, _ in picture.texts if text == "lost"] == ["end"]


def test_a_fault_goes_across_all_lanes_and_recovery_is_measured_from_it():
    generations = ((20.0, "1 with 2"), (50.0, "2 with 1"), (70.0, "3 with 2"))
    happenings = ((at, "master 4", f"published generation {members} members") for at, members in generations)
    picture = draw_timeline(_report(*happenings, case=_case(recovery_seconds=8.25)))
    ((left, top, right, bottom),) = _find_lines(picture, "fault")
    assert (left, right) == (400.0, 400.0)
    assert all(top < y < bottom for y, _ in picture.names)
    spans = [(x1, x2) for x1, _, x2, _ in _find_lines(picture, "bracket") if x1 != x2]
    assert spans == [(400.0, 482.5), (400.0, 700.0)]
    assert "power_off worker 1: training went on after 8.2 s" in _find_texts(picture)
    assert "power_off worker 1: 2 members again after 30.0 s" in _find_texts(picture)


def test_formation_and_failure_are_measured_where_there_was_one():
    happenings = ((5.0, "worker 5", "boots x"), (60.0, "stack", "Workers CREATE_FAILED: no capacity"))
    case = _case() | {"injections": [], "failure_seconds": 20.0}
    picture = draw_timeline(_report(*happenings, cluster={"formation_seconds": 12.0}, case=case))
    spans = [(x1, x2) for x1, _, x2, _ in _find_lines(picture, "bracket") if x1 != x2]
    assert spans == [(50.0, 170.0), (400.0, 600.0)]


def test_training_is_drawn_from_commit_to_commit_of_the_same_ranks():
    steps = ((10.0, "start", 0), (15.0, "commit", 5), (20.0, "commit", 15), (30.0, "reset", 15), (40.0, "done", 25))
    progress = [{"at": at, "event": event, "batch": batch, "size": 2} for at, event, batch in steps]
    case = _case() | {"injections": [], "progress": progress}
    picture = draw_timeline(_report((10.0, "training", "start at batch 0 with 2 ranks"), case=case))
    rates = [(x, width, says) for x, _, width, _, says, kind in picture.bars if kind == "rate"]
    assert rates == [
        (100.0, 50.0, "10.0 s to 15.0 s: 1.00 batches a second"),
        (150.0, 50.0, "15.0 s to 20.0 s: 2.00 batches a second"),
        (300.0, 100.0, "30.0 s to 40.0 s: 1.00 batches a second"),
    ]
    assert "2.0 batches/s" in [name for _, name in picture.names]


def _bars(picture):
    return [(x, kind) for x, _, _, height, _, kind in picture.bars if height < 20]


def test_software_that_is_made_has_its_own_colour_and_training_begins_when_it_is_ready():
    """`deeplearning run` waits for the environment, which the first rehearsal compiles for twenty minutes."""
    master = (
        (10.0, "reported ready"),
        (20.0, "environment: inspecting the image"),
        (25.0, "training starts"),
        (30.0, "environment: compiling Horovod: 25 %"),
        (60.0, "environment: compiling Horovod; the last files take longest: 98 %, for 4 min"),
        (80.0, "environment is done: Horovod 0.28.1 for torch"),
        (95.0, "training ends, held-out accuracy 0.96"),
    )
    picture = draw_timeline(_report(*((at, "master 4", text) for at, text in master)))
    assert _bars(picture) == [(100.0, "good"), (200.0, "make"), (800.0, "train"), (950.0, "good")]
    assert [text for text in _find_texts(picture) if text in ("software", "training", "software ready")] == [
        "software",
        "software ready",
        "training",
    ]


def test_a_node_is_again_what_it_was_when_its_software_is_ready_and_gone_when_it_ends_before():
    texts = ((10.0, "boots x"), (20.0, "environment: copying"), (30.0, "reported ready"), (40.0, "environment is done"))
    assert _bars(draw_timeline(_report(*((at, "worker 5", text) for at, text in texts)))) == [
        (100.0, "busy"),
        (200.0, "make"),
        (400.0, "good"),
    ]
    texts = (*texts[:2], (30.0, "loses its power"))
    picture = draw_timeline(_report(*((at, "worker 5", text) for at, text in texts)))
    assert [(x, width) for x, _, width, height, _, _ in picture.bars if height < 20] == [(100.0, 100.0), (200.0, 100.0)]


@pytest.mark.parametrize(("seconds", "is_far"), [(100.0, False), (1474.0, True)])
def test_page_says_when_the_timeline_is_wider_than_it(seconds, *, is_far, report):
    page = render_page(report | {"phases": [{"name": "all", "start": 0.0, "seconds": seconds}]})
    assert (' far">' in page) == is_far
    assert f"The timeline is {seconds:.0f} s long and scrolls to the right." in page

"""The report: its text and its page."""

from cdk_rehearsal.report.report import list_ending, render_text
from deeplearning_rehearsal.report.report import list_text
from deeplearning_rehearsal.report.report_page import render_page

KEPT = {
    "state": "kept",
    "key": "k1",
    "built_by": "i-0",
    "build_seconds": 251.0,
    "detail": "20 packages",
    "origins": {},
}


def _render(report):
    return render_text(list_text(report))


def test_the_environment_is_in_the_text_and_on_the_page(report):
    for shown in (_render(report | {"environment": KEPT}), render_page(report | {"environment": KEPT})):
        assert "k1, of an earlier rehearsal, from the cache" in shown
    assert "software" not in _render(report)


def test_failures_are_in_the_text_and_on_the_page(report):
    broken = report["nodes"][0] | {"checks": {"login shell": True, "sudo -E": False}}
    failed = report | {"verdict": "fail", "reasons": ("a node breaks the contract",), "nodes": [broken]}
    for shown in (_render(failed), render_page(failed)):
        assert "FAIL (expected: trained)" in shown
        assert "a node breaks the contract" in shown
        assert "1 of 2 checks FAILED: sudo -E" in shown


def test_text_counts_checks_that_hold_and_keeps_to_its_width(report):
    rows = [{"name": f"part {n}", "replaces": "the thing", "does": "something else " * 9} for n in range(3)]
    text = _render(report | {"stand_ins": rows})
    assert "10.0.0.5        all 2 checks hold" in text
    assert max(len(line) for line in text.splitlines()) <= 110
    counted = {"ranks": 4, "hosts": ["a", "b", "b", "b"]}
    assert "\njob        counts 4 ranks on 2 hosts\n" in render_text(list_text(report | {"count": counted}))
    assert "paid       120.5 seconds of all nodes: training 90.5, set-up 30.0\n" in text
    assert text.count(" for the thing: something else") == len(rows)
    assert [line[:11].strip() for line in text.splitlines() if line.strip() and line[0] != " "] == [
        *("verdict", "stack", "cluster", "node", "training", "phases", "paid", "memory", "run", "stand-in"),
    ]


def test_a_terminal_ends_with_the_verdict_and_counts_the_stand_ins(report):
    stack = report["stack"] | {"overrides": {"environment.framework": "torch==2.13.0, was torch==2.7.1: no GPU"}}
    failed = report | {"stack": stack, "verdict": "fail", "reasons": ("the cluster must train, it did not",)}
    for shown, reason in ((report, []), (failed, ["the cluster must train, it did not"])):
        rows = [{"name": f"part {n}", "replaces": "the thing", "does": "another"} for n in range(3)]
        text = render_text(list_ending(list_text(shown | {"stand_ins": rows}), "out/report.html", "npx cdk deploy"))
        lines = text.splitlines()
        assert lines[-6 - len(reason) :] == [
            f"verdict    {shown['verdict'].upper()} (expected: trained)",
            *(f"           {line}" for line in reason),
            "stack      trial  CREATE_COMPLETE  3 resources",
            *(line for line in lines if line.startswith("cluster    2 of 2 nodes")),
            "training   horovod with torch 1.13: 2 ranks on 2 hosts, digits, held-out accuracy 0.970, 3.2 s",
            "report     out/report.html",
            "next       npx cdk deploy",
        ]
        assert "stand-in   3 parts are not the real thing; the report lists each" in lines
        assert "part 1" not in text
    assert "report" not in render_text(list_ending(list_text(report), "", "")).split("\ntraining ")[1]


def test_what_is_changed_before_the_deployment_is_explained(report):
    stack = report["stack"] | {"overrides": {"environment.framework": "torch==2.13.0, was torch==2.7.1: no GPU"}}
    text = _render(report | {"stack": stack})
    assert (
        "changed    the template, user data, programs and functions are deployed byte for byte, but for these" in text
    )
    assert "           environment.framework: torch==2.13.0, was torch==2.7.1: no GPU" in text
    assert "changed" not in _render(report)


def test_text_and_page_say_when_which_version_rehearsed_and_in_which_order(report):
    run = "2026-11-26 20:04 UTC, deeplearning-cdk 0.1.0, order of creation: --seed 4711"
    assert f"run        {run}" in _render(report)
    page = render_page(report)
    assert page.index(run) < page.index("<svg")


def test_page_folds_the_stand_ins(report):
    page = render_page(report)
    assert "nvidia-smi for NVIDIA&#39;s tool: prints GPUs" in page[page.index("<details>") :]
    assert "nvidia-smi" not in page[: page.index("<details>")]


def test_text_tells_calls_of_nodes_from_those_of_the_function(report):
    assert "40 AWS calls (nodes 28, bound 60; logs 0; Lambda 12)" in _render(report)


def test_text_and_page_say_what_the_control_plane_showed(report):
    assert "kubernetes" not in _render(report)
    seen = report | {"kubernetes": ["Kubernetes 1.35, 3 of 3 nodes are Ready", "Job digits is Complete/SuccessPolicy"]}
    for text in (_render(seen), render_page(seen)):
        assert "Kubernetes 1.35, 3 of 3 nodes are Ready" in text
        assert "Job digits is Complete/SuccessPolicy" in text


def test_text_names_the_check_that_containers_lack(report):
    exception = "not checked: systemd unit, since containers have no systemd"
    containers = [node | {"checks": {"login shell": True}} for node in report["nodes"]]
    assert exception in _render(report | {"nodes": containers})
    assert exception not in _render(report)
    assert exception not in _render(report | {"nodes": []})


def test_text_says_nothing_of_nodes_where_jobs_alone_were_looked_at(report):
    cluster = report["cluster"] | {"has_nodes": False, "formed": 0, "formation_seconds": None, "aws_call_bound": None}
    assert "0 of 2 nodes" not in _render(report | {"cluster": cluster, "nodes": []})


def test_page_escapes_what_nodes_and_users_wrote(report):
    page = render_page(report)
    assert "<b>created</b>" not in page
    assert "&lt;b&gt;created&lt;/b&gt;" in page


def test_page_shows_more_than_the_text_folded(report):
    page = render_page(report)
    assert "torch 1.13: 2 ranks on 2 hosts, digits, held-out accuracy 0.970, 3.2 s" in page
    for detail in (
        "deeplearning-worker1 (i-0): ✓ login shell",
        "DEEPLEARNING_WORKERS_COUNT=2  EFS_MOUNT=/efs",
        "sqs.ReceiveMessage: 40",
    ):
        assert detail in page
        assert detail not in _render(report)


def test_page_of_a_stack_that_never_formed_renders(report):
    cluster = report["cluster"] | {"formed": 0, "generation": 0, "formation_seconds": None, "aws_call_bound": None}
    page = render_page(report | {"cluster": cluster, "training": None, "nodes": [], "timeline": [], "phases": []})
    assert "0 of 2 nodes, generation 0, not formed" in page

"""Each defect that would make the stand-in kinder than Kubernetes is found by a statement."""

import pytest

from tests.kubernetes import test_statements as statements
from tests.kubernetes.conftest import NUMBERS, open_plane
from tests.kubernetes.lab import Lab

ROOM = "cdk_rehearsal.kubernetes.stand_in"
JOBS, OBJECTS = f"{ROOM}.controllers.jobs", f"{ROOM}.api.objects"


def nothing(*_words, **_options):
    """Stands in for a part that is left out."""
    return []


def no(*_words, **_options):
    """Stands in for a check that finds nothing."""
    return False


DEFECTS = {
    "success of index 1 counts": (
        [(f"{JOBS}.has_succeeded", lambda _spec, completed: "Matched rules at index 0" if completed else "")],
        statements.test_success_of_another_index_ends_nothing,
    ),
    "403 becomes 200": (
        [(f"{ROOM}.server.require_right", nothing)],
        statements.test_a_submitter_is_refused_secrets_of_the_system_volumes_and_jobs_of_other_namespaces,
    ),
    "an unknown field is taken": (
        [(f"{ROOM}.schemas.patches.check_fields", nothing)],
        statements.test_an_unknown_field_is_refused_by_its_name,
    ),
    "a claim above its volume binds": (
        [(f"{ROOM}.controllers.volumes._find_mismatch", lambda *_: "")],
        statements.test_a_claim_above_every_free_volume_stays_pending,
    ),
    "a dead node keeps its pods": (
        [(f"{ROOM}.controllers.nodes.NodeController._evict", nothing)],
        statements.test_pods_of_a_dead_node_move_once_the_node_is_gone_and_cost_no_retry,
    ),
    "an eviction costs a retry": (
        [(f"{OBJECTS}.mark_disrupted", nothing)],
        statements.test_an_eviction_costs_no_retry,
    ),
    "a pod of a dead node is replaced at once": (
        [(f"{JOBS}.is_terminating", no)],
        statements.test_pods_of_a_dead_node_move_once_the_node_is_gone_and_cost_no_retry,
    ),
    "pods of a node that is gone stay": (
        [(f"{ROOM}.controllers.nodes.NodeController._remove", nothing)],
        statements.test_pods_of_a_dead_node_move_once_the_node_is_gone_and_cost_no_retry,
    ),
    "exit 1 is retried": (
        [(f"{JOBS}.match_failure_policy", lambda *_: ("", ""))],
        statements.test_exit_1_of_any_index_ends_the_job_at_once,
    ),
    "a killed program is retried for ever": (
        [(f"{JOBS}.is_index_failed", no)],
        statements.test_a_killed_program_is_retried_as_often_as_the_job_says,
    ),
    "two pods of a job share a node": (
        [(f"{ROOM}.controllers.scheduling._is_kept_apart", no)],
        statements.test_two_pods_of_a_job_do_not_share_a_node,
    ),
    "a taint keeps nobody away": (
        [(f"{ROOM}.controllers.scheduling._tolerates", lambda *_: True)],
        statements.test_the_scheduler_says_that_pods_do_not_tolerate_a_taint,
    ),
    "a job ends while a pod of it runs": (
        [(f"{JOBS}.is_terminating", no)],
        statements.test_a_job_ends_only_when_its_last_pod_has,
    ),
    "a suspended job keeps its pods": (
        [(f"{JOBS}.JobController._delete", nothing)],
        statements.test_a_suspended_job_ends_its_pods_and_goes_on_later,
    ),
    "a deleted job leaves its pods": (
        [(f"{ROOM}.controllers.garbage.GarbageCollector._look_at_owner", nothing)],
        lambda lab: statements.test_deleting_a_job_deletes_its_pods(lab, statements.BACKGROUND),
    ),
    "the template of a job may change": (
        [(f"{ROOM}.api.validation.check_fixed_job", nothing)],
        statements.test_another_template_of_a_job_is_refused,
    ),
    "each apply is of another manager": (
        [(f"{ROOM}.schemas.patches._is_applied_by", no)],
        statements.test_applying_an_object_twice_changes_nothing,
    ),
}


@pytest.mark.parametrize("name", DEFECTS)
def test_a_planted_defect_is_found(name, tmp_path, monkeypatch):
    patches, statement = DEFECTS[name]
    for place, replacement in patches:
        monkeypatch.setattr(place, replacement)
    plane = open_plane(tmp_path)
    lab = Lab(plane, next(NUMBERS))
    try:
        lab.open()
        with pytest.raises(AssertionError):
            statement(lab)
    finally:
        lab.kubelet.stop()
        plane.stop()

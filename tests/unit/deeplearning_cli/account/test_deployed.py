"""`preflight` says that a stack is deployed, since the account counts what it has itself as taken."""

import pytest

from deeplearning_cli.account.answers import Refused
from deeplearning_cli.account.deployed import judge_status


def judge(status):
    finding = judge_status("training", status)
    return finding.subject, finding.state, finding.detail


# CloudFormation User Guide, "Stack status codes": neither of the two states has resources.
@pytest.mark.parametrize("status", [None, "REVIEW_IN_PROGRESS", "DELETE_COMPLETE"])
def test_a_stack_without_resources_takes_nothing(status):
    assert judge(status) == ("stack training", "ok", "it is not deployed yet")


@pytest.mark.parametrize("status", ["CREATE_COMPLETE", "ROLLBACK_COMPLETE", "DELETE_FAILED"])
def test_a_deployed_stack_counts_among_what_is_taken_and_fails_nothing(status):
    taken = "its own vCPUs, addresses, private names and mount targets count as taken"
    assert judge(status) == ("stack training", "unknown", f"it is deployed already, {status}: {taken}")
    assert judge_status("training", status).is_advice


def test_a_stack_that_is_not_shown_fails_nothing_and_names_the_right():
    finding = judge_status("training", Refused("no"))
    assert (finding.state, finding.remedy) == ("unknown", "allow cloudformation:DescribeStacks")
    assert finding.is_advice

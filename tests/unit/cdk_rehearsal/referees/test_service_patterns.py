"""Patterns of service models are those of Java, in which `\\w`, `\\d` and `\\s` match ASCII characters alone."""

import pytest

from cdk_rehearsal.referees.service_models import judge_request

_ROLE = "arn:aws:iam::{}:role/Builder"


@pytest.mark.parametrize(
    ("service", "operation", "name", "right", "wrong"),
    [
        ("iam", "CreateRole", "RoleName", "cafe", "caf\u00e9"),
        ("iam", "CreateRole", "RoleName", "team_1", "team_\u0661"),
        ("iam", "CreateInstanceProfile", "InstanceProfileName", "node", "n\u00f8de"),
        ("lambda", "CreateFunction", "Role", _ROLE.format("111122223333"), _ROLE.format("\u0661" * 12)),
    ],
)
def test_letters_and_digits_beyond_ascii_break_a_pattern(service, operation, name, right, wrong):
    assert list(judge_request(service, operation, {name: right}, "Request")) == []
    (violation,) = judge_request(service, operation, {name: wrong}, "Request")
    assert violation.rule.startswith("must match")


def test_a_class_of_unicode_takes_letters_and_spaces_beyond_ascii():
    tags = [{"Key": "\u00e9quipe\u00a0A", "Value": "\u00e9t\u00e9"}]
    assert list(judge_request("sagemaker", "CreateTrainingJob", {"Tags": tags}, "Request")) == []

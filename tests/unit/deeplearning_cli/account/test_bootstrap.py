"""The bootstrap stack of the region must be as new as the stack requires."""

import pytest

from deeplearning_cli.account.answers import Refused
from deeplearning_cli.account.bootstrap import Bootstrap, judge_bootstraps, list_bootstraps

NAME = "/cdk-bootstrap/hnb659fds/version"


def judge_one(found, name=NAME):
    (finding,) = judge_bootstraps([Bootstrap(name, 6)], {name: found}, "aws://111122223333/us-east-1")
    return finding.state, finding.detail, finding.remedy


@pytest.mark.parametrize("version", ["6", "28"])
def test_a_version_that_suffices_is_ok(version):
    assert judge_one(version) == ("ok", f"the stack requires version 6, the region has {version}", "")


@pytest.mark.parametrize(("version", "text"), [("5", "5"), (None, "none")])
def test_a_missing_or_older_version_is_wrong(version, text):
    command = "cdk bootstrap aws://111122223333/us-east-1"
    assert judge_one(version) == ("wrong", f"the stack requires version 6, the region has {text}", command)
    assert judge_one(version, "/cdk-bootstrap/mine/version")[2] == f"{command} --qualifier mine"


def test_a_version_that_is_not_shown_is_unknown():
    assert judge_one(Refused("no")) == ("unknown", "no", "allow ssm:GetParameter")


def test_stacks_require_the_newest_version_of_each_parameter_and_legacy_ones_none():
    other = "/cdk-bootstrap/mine/version"
    artifacts = [
        {"requiresBootstrapStackVersion": 6, "bootstrapStackVersionSsmParameter": NAME},
        {"requiresBootstrapStackVersion": 8, "bootstrapStackVersionSsmParameter": NAME},
        {"requiresBootstrapStackVersion": 6, "bootstrapStackVersionSsmParameter": other},
        {"requiresBootstrapStackVersion": 7, "bootstrapStackVersionSsmParameter": NAME},
        {"templateFile": "legacy.template.json"},
    ]
    assert list_bootstraps(artifacts) == (Bootstrap(NAME, 8), Bootstrap(other, 6))
    assert list_bootstraps([{}]) == ()

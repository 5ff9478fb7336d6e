"""Nothing that the constructs give to the CDK is lost on the way to the template."""

import pytest
from aws_cdk import aws_efs as efs


def test_a_nested_dict_in_pythons_spelling_would_be_lost_and_every_test_here_refuses_it(make_stack):
    owner = {"owner_uid": "1", "owner_gid": "1", "permissions": "0755"}
    with pytest.raises(AssertionError, match=r"would lose .*creation_info"):
        efs.CfnAccessPoint(
            make_stack(), "Point", file_system_id="fs-1", root_directory={"path": "/a", "creation_info": owner}
        )

"""Access points of EFS reach a machine as their template made them."""

import pytest

OWNER = {"OwnerUid": "1000", "OwnerGid": "1000", "Permissions": "0755"}


@pytest.mark.parametrize(
    ("root", "path", "owner"),
    [
        ({"Path": "/cluster", "CreationInfo": OWNER}, "/cluster", {"uid": 1000, "gid": 1000, "mode": 0o755}),
        ({"Path": "/cluster"}, "/cluster", None),
        ({"Path": "/"}, "/", None),
    ],
)
def test_a_machine_finds_an_access_point_with_the_owner_that_the_template_names(
    deploy_template, sample_template, root, path, owner
):
    resources = sample_template["Resources"]
    resources["Files"] = {"Type": "AWS::EFS::FileSystem", "Properties": {"Encrypted": True}}
    resources["Point"] = {
        "Type": "AWS::EFS::AccessPoint",
        "Properties": {"FileSystemId": {"Ref": "Files"}, "RootDirectory": root},
    }
    resources["MasterGroup"]["DependsOn"] = "Point"
    cloud = deploy_template(sample_template)
    machine = cloud.machine("master")
    expected = {"file_system_id": cloud.physical_id("Files"), "path": path, "owner": owner}
    assert machine["access_points"] == {cloud.physical_id("Point"): expected}

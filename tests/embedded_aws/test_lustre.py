"""FSx for Lustre in the embedded AWS: what the API says of it, what a machine finds, and what is refused as by FSx."""

import pytest

BUCKET = "cdk-hnb659fds-assets-${AWS::AccountId}-${AWS::Region}"
"""The asset bucket, which is there before the stack; the sample's function lies in it."""


def add_lustre(template, **configuration):
    """Give a template a file system and a link to the asset bucket, both before its machines."""
    resources = template["Resources"]
    resources["Lustre"] = {
        "Type": "AWS::FSx::FileSystem",
        "Properties": {
            "FileSystemType": "LUSTRE",
            "FileSystemTypeVersion": "2.15",
            "StorageCapacity": 1200,
            "StorageType": "SSD",
            "SubnetIds": [{"Ref": "Subnet"}],
            "LustreConfiguration": {"DeploymentType": "PERSISTENT_2", "PerUnitStorageThroughput": 125, **configuration},
        },
    }
    resources["Link"] = {
        "Type": "AWS::FSx::DataRepositoryAssociation",
        "Properties": {
            "FileSystemId": {"Ref": "Lustre"},
            "FileSystemPath": "/assets",
            "DataRepositoryPath": {"Fn::Sub": f"s3://{BUCKET}/sample-"},
            "BatchImportMetaDataOnCreate": True,
            "S3": {"AutoImportPolicy": {"Events": ["NEW", "CHANGED", "DELETED"]}},
        },
    }
    for name in ("MasterGroup", "WorkerGroup"):
        dependencies = resources[name].get("DependsOn", [])
        resources[name]["DependsOn"] = [*([dependencies] if isinstance(dependencies, str) else dependencies), "Link"]
    template["Outputs"]["LustreSource"] = {
        "Value": {"Fn::Sub": "${Lustre.DNSName}@tcp:/${Lustre.LustreMountName}"},
    }
    return template


def test_a_machine_finds_the_file_system_by_name_with_the_objects_of_the_linked_bucket(
    deploy_template, sample_template
):
    cloud = deploy_template(add_lustre(sample_template))
    machine = cloud.machine("worker")
    identity = cloud.physical_id("Lustre")
    [(found, target)] = machine["lustre"].items()
    assert found == identity
    assert list(target["files"]) == ["/assets/function.zip"]
    described = cloud.client("fsx").describe_file_systems()["FileSystems"][0]
    assert (described["FileSystemId"], described["DNSName"]) == (identity, target["dns_name"])
    assert described["StorageCapacity"] == 1200
    assert target["dns_name"] == f"{identity}.fsx.us-east-1.amazonaws.com"
    assert len(target["mount_name"]) == 8
    assert cloud.physical_id("Link").startswith("dra-")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (("Lustre", "StorageCapacity", 3000), "StorageCapacity must be 1200, 2400 or a multiple of 2400, got 3000"),
        (("Lustre", "SubnetIds", []), "SubnetIds must be one subnet, got 0"),
        (("Link", "FileSystemPath", "assets"), "FileSystemPath and DataRepositoryPath must not overlap others, got "),
        (("Link", "DataRepositoryPath", "s3://nobodys-bucket/"), "Not Found"),
        (("Link", "FileSystemId", "fs-00000000"), "FileSystemId must name an FSx for Lustre file system, got fs-0"),
    ],
)
def test_a_file_system_that_fsx_refuses_fails_the_stack(deploy_template, sample_template, change, reason):
    name, key, value = change
    template = add_lustre(sample_template)
    template["Resources"][name]["Properties"][key] = value
    cloud = deploy_template(template)
    outcome = cloud.end()
    assert outcome["status"] == "ROLLBACK_COMPLETE"
    assert reason in outcome["reason"]


def test_throughput_belongs_to_persistent_storage_alone(deploy_template, sample_template):
    cloud = deploy_template(add_lustre(sample_template, DeploymentType="SCRATCH_2"))
    outcome = cloud.end()
    assert "PerUnitStorageThroughput must be left out with SCRATCH_2, got 125" in outcome["reason"]


def test_an_unsupported_file_system_is_refused_before_the_deployment(deploy_template, sample_template):
    template = add_lustre(sample_template, DeploymentType="PERSISTENT_1")
    template["Resources"]["Link"]["Properties"]["BatchImportMetaDataOnCreate"] = False
    refusal = deploy_template(template).answer
    assert "DeploymentType = 'PERSISTENT_1'" in refusal
    assert "BatchImportMetaDataOnCreate = False" in refusal

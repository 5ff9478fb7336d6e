"""Creates EFS and FSx for Lustre file systems, DynamoDB tables, and S3 buckets."""

import json
import uuid
from functools import partial
from typing import Any

from cdk_rehearsal.embedded_aws.resources.creation import Created, Creation, Creator
from cdk_rehearsal.embedded_aws.resources.simple import Simple, is_true


def _create_file_system(creation: Creation) -> Created:
    efs = creation.client("efs")
    properties = creation.properties
    throughput = properties.select("ProvisionedThroughputInMibps")
    file_system = efs.create_file_system(
        CreationToken=str(uuid.uuid4()),
        Encrypted=is_true(properties.get("Encrypted", False)),
        Tags=creation.tags("FileSystemTags"),
        **properties.select("PerformanceMode", "ThroughputMode"),
        **{name: float(value) for name, value in throughput.items()},
    )
    identity = file_system["FileSystemId"]
    if "LifecyclePolicies" in properties:
        efs.put_lifecycle_configuration(FileSystemId=identity, LifecyclePolicies=properties["LifecyclePolicies"])
    if "FileSystemPolicy" in properties:
        efs.put_file_system_policy(FileSystemId=identity, Policy=json.dumps(properties["FileSystemPolicy"]))
    return Created(identity, {"Arn": file_system["FileSystemArn"], "FileSystemId": identity})


def _address_target(creation: Creation) -> dict[str, str]:
    subnet = creation.properties["SubnetId"]
    return {"SubnetId": subnet, "IpAddress": creation.services.launcher.free_address(subnet)}


def _whole_numbers(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {
        name: int(entry) if name in ("Uid", "Gid", "OwnerUid", "OwnerGid") else _whole_numbers(entry)
        for name, entry in value.items()
    }


def _create_lustre(creation: Creation) -> Created:
    properties = creation.properties
    request = properties.select(
        "FileSystemType",
        "FileSystemTypeVersion",
        "StorageCapacity",
        "StorageType",
        "SubnetIds",
        "SecurityGroupIds",
        "LustreConfiguration",
    )
    request["Tags"] = creation.tags()
    creation.require("fsx.CreateFileSystem", request)
    file_system = creation.services.launcher.lustre.create(request)
    identity = file_system["FileSystemId"]
    attributes = {
        "DNSName": file_system["DNSName"],
        "LustreMountName": file_system["MountName"],
        "ResourceARN": file_system["ResourceARN"],
    }
    return Created(identity, attributes)


def _create_association(creation: Creation) -> Created:
    properties = creation.properties
    # Without it FSx would show nothing of what the bucket already holds; the table takes no other value.
    assert properties["BatchImportMetaDataOnCreate"]
    identity = creation.services.launcher.lustre.link(
        properties["FileSystemId"], properties["FileSystemPath"], properties["DataRepositoryPath"]
    )
    arn = creation.services.place.arn("fsx", f"association/{properties['FileSystemId']}/{identity}")
    return Created(identity, {"AssociationId": identity, "ResourceARN": arn})


def _create_table(creation: Creation) -> Created:
    properties = creation.properties
    encryption = _describe_encryption(properties["SSESpecification"]) if "SSESpecification" in properties else {}
    indexes = properties.select("GlobalSecondaryIndexes", "LocalSecondaryIndexes")
    if "StreamSpecification" in properties:
        indexes["StreamSpecification"] = {"StreamEnabled": True, **properties["StreamSpecification"]}
    created = _make_table(creation, properties.get("Tags", []), **encryption, **indexes)
    if "PointInTimeRecoverySpecification" in properties:
        creation.client("dynamodb").update_continuous_backups(
            TableName=created.physical_id,
            PointInTimeRecoverySpecification=properties["PointInTimeRecoverySpecification"],
        )
    if "TimeToLiveSpecification" in properties:
        specification = dict(properties["TimeToLiveSpecification"])
        specification["Enabled"] = is_true(specification["Enabled"])
        creation.client("dynamodb").update_time_to_live(
            TableName=created.physical_id, TimeToLiveSpecification=specification
        )
    return created


def _describe_encryption(chosen: dict[str, Any]) -> dict[str, Any]:
    renamed = {"SSEEnabled": "Enabled"}
    return {"SSESpecification": {renamed.get(name, name): value for name, value in chosen.items()}}


def _create_global_table(creation: Creation) -> Created:
    replicas = creation.properties["Replicas"]
    if [replica["Region"] for replica in replicas] != [creation.services.place.region]:
        raise ValueError("Replicas must be the stack's own region in the rehearsal")
    return _make_table(creation, replicas[0].get("Tags", []))


def _make_table(creation: Creation, tags: list[dict[str, str]], **more: Any) -> Created:
    properties = creation.properties
    name = properties.get("TableName") or creation.name(255)
    table = creation.client("dynamodb").create_table(
        TableName=name,
        Tags=tags,
        **properties.select("KeySchema", "AttributeDefinitions", "BillingMode"),
        **more,
    )["TableDescription"]
    names = {"Arn": "TableArn", "TableId": "TableId", "StreamArn": "LatestStreamArn"}
    return Created(name, {attribute: table.get(original, "") for attribute, original in names.items()})


def _create_bucket(creation: Creation) -> Created:
    s3, properties = creation.client("s3"), creation.properties
    name = properties.get("BucketName") or creation.name(63, lower=True)
    region = creation.services.place.region
    # us-east-1 is named by no constraint (S3 API, "CreateBucket").
    where = {} if region == "us-east-1" else {"CreateBucketConfiguration": {"LocationConstraint": region}}
    s3.create_bucket(Bucket=name, **where)
    s3.put_bucket_tagging(Bucket=name, Tagging={"TagSet": _free_tags(creation)})
    if "BucketEncryption" in properties:
        rules = properties["BucketEncryption"]["ServerSideEncryptionConfiguration"]
        renamed = [
            {
                "BucketKeyEnabled": is_true(rule.get("BucketKeyEnabled", False)),
                "ApplyServerSideEncryptionByDefault": rule["ServerSideEncryptionByDefault"],
            }
            for rule in rules
        ]
        s3.put_bucket_encryption(Bucket=name, ServerSideEncryptionConfiguration={"Rules": renamed})
    if "OwnershipControls" in properties:
        s3.put_bucket_ownership_controls(Bucket=name, OwnershipControls=properties["OwnershipControls"])
    if "PublicAccessBlockConfiguration" in properties:
        block = {key: is_true(value) for key, value in properties["PublicAccessBlockConfiguration"].items()}
        s3.put_public_access_block(Bucket=name, PublicAccessBlockConfiguration=block)
    if "CorsConfiguration" in properties:
        s3.put_bucket_cors(Bucket=name, CORSConfiguration={"CORSRules": _rename_cors(properties["CorsConfiguration"])})
    if "VersioningConfiguration" in properties:
        s3.put_bucket_versioning(Bucket=name, VersioningConfiguration=properties["VersioningConfiguration"])
    suffix = creation.services.place.url_suffix
    return Created(
        name,
        {
            "Arn": f"arn:{creation.services.place.partition}:s3:::{name}",
            "DomainName": f"{name}.s3.{suffix}",
            "RegionalDomainName": f"{name}.s3.{region}.{suffix}",
        },
        delete=partial(s3.delete_bucket, Bucket=name),
    )


def _rename_cors(configuration: dict[str, Any]) -> list[dict[str, Any]]:
    """Return rules of cross-origin access under the names of S3's API."""
    renamed = {"ExposedHeaders": "ExposeHeaders", "MaxAge": "MaxAgeSeconds", "Id": "ID"}
    rules = [{renamed.get(name, name): value for name, value in rule.items()} for rule in configuration["CorsRules"]]
    return [rule | ({"MaxAgeSeconds": int(rule["MaxAgeSeconds"])} if "MaxAgeSeconds" in rule else {}) for rule in rules]


def _free_tags(creation: Creation) -> list[dict[str, str]]:
    """Return the tags that a caller of S3 may set; those of `aws:` are CloudFormation's own."""
    return [tag for tag in creation.tags() if not tag["Key"].startswith("aws:")]


def _create_bucket_policy(creation: Creation) -> Created:
    properties = creation.properties
    bucket = properties["Bucket"]
    creation.client("s3").put_bucket_policy(Bucket=bucket, Policy=json.dumps(properties["PolicyDocument"]))
    return Created(bucket)


CREATORS: dict[str, Creator] = {
    "AWS::S3::Bucket": _create_bucket,
    "AWS::S3::BucketPolicy": _create_bucket_policy,
    "AWS::EFS::FileSystem": _create_file_system,
    "AWS::EFS::MountTarget": Simple(
        "efs",
        "create_mount_target",
        id="{MountTargetId}",
        renamed={"Id": "MountTargetId"},
        more=_address_target,
        delete="delete_mount_target",
    ),
    "AWS::EFS::AccessPoint": Simple(
        "efs",
        "create_access_point",
        id="{AccessPointId}",
        renamed={"Arn": "AccessPointArn"},
        convert={"PosixUser": _whole_numbers, "RootDirectory": _whole_numbers},
        more=lambda creation: {"ClientToken": str(uuid.uuid4()), "Tags": creation.tags("AccessPointTags")},
    ),
    "AWS::FSx::FileSystem": _create_lustre,
    "AWS::FSx::DataRepositoryAssociation": _create_association,
    "AWS::DynamoDB::Table": _create_table,
    "AWS::DynamoDB::GlobalTable": _create_global_table,
}

"""Data in S3 that jobs read, and its target on the nodes."""

import re
from dataclasses import dataclass
from typing import Annotated, Literal

from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3

from deeplearning_cdk.props.check import Rule, check_fields, names_checked, show_value
from deeplearning_cdk.props.rules import matching
from deeplearning_cdk.pseudo_parameters import PARTITION
from deeplearning_contract.names import NodeRole
from deeplearning_contract.setting_parts import DataSettings

DataTarget = Literal["efs", "lustre", "local", "stream"]

ARCHIVE_ENDINGS = (".tar", ".tar.gz", ".tgz", ".zip")
DIGEST_ENDING = ".sha256"
"""The object beside an archive that may hold its digest."""

# S3 user guide, "Creating object key names": at most 1,024 bytes of UTF-8; the digest beside an archive is one too.
_LONGEST_KEY_BYTES = 1024 - len(DIGEST_ENDING)
# S3 user guide, general purpose bucket naming rules.
_BUCKET = re.compile(r"(?=.{3,63}$)[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
_RESERVED_BUCKET = re.compile(
    r"[0-9]+(\.[0-9]+){3}|(xn--|sthree-|amzn-s3-demo-).*|.*(-s3alias|--ol-s3|\.mrap|--x-s3|--table-s3)"
)


def _is_plain_key(key: str) -> bool:
    """Return whether a key is a path that stays below its root, without wildcards of IAM policies."""
    is_path = key.isprintable() and not key.startswith("/") and not set('*?\\"$') & set(key)
    return is_path and not {".", ".."} & set(key.split("/")) and len(key.encode()) <= _LONGEST_KEY_BYTES


BucketName = Annotated[
    str,
    matching(_BUCKET.pattern, "be a bucket's name", "leave s3:// and / out", takes_tokens=True),
    Rule(
        must="not be reserved by S3",
        remedy="pass the bucket itself, not an alias of an access point",
        is_kept=lambda name: not _RESERVED_BUCKET.fullmatch(name),
        can_carry=lambda _: True,
    ),
]
"""Name of a general purpose bucket."""

DataName = Annotated[
    str,
    matching(
        r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}",
        "be letters, digits and ._- that begin with a letter or digit, 64 at most",
        "rename it",
    ),
]
"""Name of data on the nodes."""

_KEY_REMEDY = "write e.g. train.tar.gz or train/"
DataKey = Annotated[
    str,
    Rule(
        must=f"be a path of at most {_LONGEST_KEY_BYTES} printable bytes without a first /, . and .. as folders, and "
        'any of *?\\"$',
        remedy=_KEY_REMEDY,
        is_kept=_is_plain_key,
    ),
    Rule(
        must=f"be an archive ({', '.join(ARCHIVE_ENDINGS)}) or a prefix that ends with /",
        remedy=_KEY_REMEDY,
        is_kept=lambda key: not key or key.endswith(("/", *ARCHIVE_ENDINGS)),
    ),
]
"""Key of an archive, or a prefix; it is written into policies and settings as it is."""

Sha256 = Annotated[
    str, matching(r"([0-9a-f]{64})?", "be 64 lower-case hex digits", "run sha256sum on the archive, or leave it out")
]
"""Digest of an archive."""


@names_checked
@dataclass(frozen=True)
class DataSource:
    """
    Data in S3, as an archive, all objects below a prefix, or a whole bucket.

    Nodes may read nothing else: only the archive and its digest (`<key>.sha256`), or the objects below the prefix.
    Prefer a bucket in the cluster's region, which the S3 endpoint reaches.

    Args:
        name: Its entry of /opt/deeplearning/data on every node.
        bucket: The bucket, or its name.
        key: An archive (`.tar`, `.tar.gz`, `.tgz`, `.zip`), which is unpacked, or a prefix that ends with `/`.
            Default: the whole bucket.
        target: Place on the nodes: `efs` (copied once by the master for all nodes), `local` (a disk of each node),
            `lustre` (nothing is copied: the cluster's FSx for Lustre is linked to the bucket) or `stream` (nothing is
            copied: jobs read from S3). Default: efs.
        sha256: SHA-256 of the archive in hex. Default: the digest in `<key>.sha256`, where there is one.

    Raises:
        ValueError: A value breaks its rule.
    """

    name: DataName
    bucket: BucketName | s3.IBucket
    key: DataKey = ""
    target: DataTarget = "efs"
    sha256: Sha256 = ""

    def __post_init__(self) -> None:
        """Check the values, which are written into user data and policies as they are."""
        check_fields(self, "data ")
        if self.sha256 and not self.is_archive:
            raise ValueError(
                f"data sha256 must be left out without an archive, got one for {show_value(self.key)}; "
                "objects below a prefix have their own"
            )
        if self.is_archive and self.target in ("lustre", "stream"):
            raise ValueError(
                f"data key must be a prefix with the target {self.target}, which unpacks nothing, "
                f"got {show_value(self.key)}; upload its content below a prefix, or use the target efs or local"
            )

    @property
    def is_archive(self) -> bool:
        """True if it is one object that is unpacked."""
        return self.key.endswith(ARCHIVE_ENDINGS)

    @property
    def is_prefix(self) -> bool:
        """True if it is all objects below a prefix, or of the bucket."""
        return not self.key or self.key.endswith("/")

    @property
    def bucket_name(self) -> str:
        """The bucket's name, which may be a token."""
        return self.bucket if isinstance(self.bucket, str) else self.bucket.bucket_name

    @property
    def settings(self) -> DataSettings:
        """Settings of the nodes for this source."""
        return DataSettings(self.name, self.bucket_name, self.key, self.target, self.sha256)

    def is_read_by(self, node_role: NodeRole) -> bool:
        """Return whether nodes of a role read it: only the master for the shared file system, none with FSx."""
        return self.target != "lustre" and (self.target != "efs" or node_role is NodeRole.MASTER)

    def read_statements(self) -> list[iam.PolicyStatement]:
        """Return the permissions of a node that reads it."""
        bucket = name_bucket_arn(self.bucket)
        keys = [self.key, self.key + DIGEST_ENDING] if self.is_archive else [f"{self.key}*"]
        # Permission to list distinguishes a missing object from a forbidden one; it is limited to the source's prefix.
        conditions = {"StringLike": {"s3:prefix": f"{self.key}*"}} if self.key else {}
        return [
            iam.PolicyStatement(actions=["s3:GetObject"], resources=[f"{bucket}/{key}" for key in keys]),
            iam.PolicyStatement(actions=["s3:ListBucket"], resources=[bucket], conditions=conditions),
        ]

    def grant_key(self, grantee: iam.IGrantable) -> None:
        """Allow the nodes that read it to decrypt it, where the bucket is a construct with a customer managed key."""
        if not isinstance(self.bucket, str) and self.bucket.encryption_key is not None:
            self.bucket.encryption_key.grant_decrypt(grantee)


def name_bucket_arn(bucket: str | s3.IBucket) -> str:
    """Return the ARN of a bucket that is given by name or as a construct."""
    return f"arn:{PARTITION}:s3:::{bucket}" if isinstance(bucket, str) else bucket.bucket_arn

"""Data in S3 that jobs read, and where on the nodes it is brought."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from aws_cdk import Aws, Token
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3

from deeplearning_contract.names import NodeRole
from deeplearning_contract.setting_parts import DataSettings

DataTarget = Literal["efs", "lustre", "local", "stream"]

ARCHIVE_ENDINGS = (".tar", ".tar.gz", ".tgz", ".zip")
DIGEST_ENDING = ".sha256"
"""The object beside an archive that may hold its digest."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_KEY = re.compile(r"[^\x00-\x1f\x7f*?\\\"$]*")
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class DataSource:
    """
    Data in S3, as an archive, all objects below a prefix, or a whole bucket.

    Nodes may read exactly that: the archive with the digest beside it (`<key>.sha256`), or what is below the prefix.
    The bucket is best in the cluster's region, where the S3 endpoint reaches it.

    Args:
        name: Its entry of /opt/deeplearning/data on every node.
        bucket: The bucket, or its name.
        key: An archive (`.tar`, `.tar.gz`, `.tgz`, `.zip`), which is unpacked, or a prefix that ends with `/`.
            Default: the whole bucket.
        target: Where it is brought: `efs` (staged once by the master for all nodes), `local` (a disk of each node),
            `lustre` (nothing is copied: the cluster's FSx for Lustre is linked to the bucket) or `stream` (nothing is
            copied: jobs read from S3). Default: efs.
        sha256: SHA-256 of the archive in hex. Default: the digest in `<key>.sha256`, where there is one.

    Raises:
        ValueError: A value cannot be what it is for.
    """

    name: str
    bucket: s3.IBucket | str
    key: str = ""
    target: DataTarget = "efs"
    sha256: str = ""

    def __post_init__(self) -> None:
        """Check the values, which are written into user data and policies as they are."""
        if Token.is_unresolved(self.name) or not _NAME.fullmatch(self.name):
            raise ValueError(
                "data name must be letters, digits and ._- that begin with a letter or digit, 64 at most, "
                f"got {self.name!r}; rename it"
            )
        if isinstance(self.bucket, str) and not Token.is_unresolved(self.bucket) and not _BUCKET.fullmatch(self.bucket):
            raise ValueError(f"data {self.name} must have a bucket's name, got {self.bucket!r}; leave s3:// and / out")
        if self.target not in get_args(DataTarget):
            targets = ", ".join(get_args(DataTarget))
            raise ValueError(f"data {self.name} must have one of the targets {targets}, got {self.target!r}; write one")
        self._check_key()

    def _check_key(self) -> None:
        is_plain = not Token.is_unresolved(self.key) and _KEY.fullmatch(self.key) and not self.key.startswith("/")
        if not is_plain or not (self.is_archive or self.is_prefix):
            raise ValueError(
                f"data {self.name} must have the key of an archive ({', '.join(ARCHIVE_ENDINGS)}) or a prefix that "
                f'ends with /, without a first / and any of *?\\"$, got {self.key!r}; write e.g. train.tar.gz or train/'
            )
        if self.sha256 and (not _SHA256.fullmatch(self.sha256) or not self.is_archive):
            raise ValueError(
                f"data {self.name} must have the sha256 of an archive, 64 lower-case hex digits, got {self.sha256!r} "
                f"for {self.key!r}; run sha256sum on the archive, or leave it out"
            )
        if self.is_archive and self.target in ("lustre", "stream"):
            raise ValueError(
                f"data {self.name} must be a prefix with the target {self.target}, which unpacks nothing, "
                f"got {self.key!r}; upload what is in it below a prefix, or take the target efs or local"
            )

    @property
    def is_archive(self) -> bool:
        """Whether it is one object that is unpacked."""
        return self.key.endswith(ARCHIVE_ENDINGS)

    @property
    def is_prefix(self) -> bool:
        """Whether it is all objects below a prefix, or of the bucket."""
        return not self.key or self.key.endswith("/")

    @property
    def bucket_name(self) -> str:
        """The bucket's name, which may be a token."""
        return self.bucket if isinstance(self.bucket, str) else self.bucket.bucket_name

    @property
    def settings(self) -> DataSettings:
        """What nodes are told."""
        return DataSettings(self.name, self.bucket_name, self.key, self.target, self.sha256)

    def is_read_by(self, node_role: NodeRole) -> bool:
        """Tell whether nodes of a role read it: the master alone for the shared file system, nobody where FSx does."""
        return self.target != "lustre" and (self.target != "efs" or node_role is NodeRole.MASTER)

    def read_statements(self) -> list[iam.PolicyStatement]:
        """Return the rights of a node that reads it."""
        bucket = self._bucket_arn()
        keys = [self.key, self.key + DIGEST_ENDING] if self.is_archive else [f"{self.key}*"]
        # A listing says whether an object is missing or forbidden; it is asked with the source's own prefix.
        conditions = {"StringLike": {"s3:prefix": f"{self.key}*"}} if self.key else {}
        return [
            iam.PolicyStatement(actions=["s3:GetObject"], resources=[f"{bucket}/{key}" for key in keys]),
            iam.PolicyStatement(actions=["s3:ListBucket"], resources=[bucket], conditions=conditions),
        ]

    def grant_key(self, grantee: iam.IGrantable) -> None:
        """Let a node that reads it decrypt it, where the bucket is a construct with a key of the user's."""
        if not isinstance(self.bucket, str) and self.bucket.encryption_key is not None:
            self.bucket.encryption_key.grant_decrypt(grantee)

    def _bucket_arn(self) -> str:
        return f"arn:{Aws.PARTITION}:s3:::{self.bucket}" if isinstance(self.bucket, str) else self.bucket.bucket_arn


def check_data(data: Sequence[DataSource], *, has_lustre: bool) -> tuple[DataSource, ...]:
    """
    Check the sources of a cluster together.

    Args:
        data: The sources.
        has_lustre: Whether the cluster mounts FSx for Lustre.

    Raises:
        ValueError: Two have one name, or one wants a Lustre that is not there.
    """
    names = [source.name for source in data]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"data must have different names, got {twice[0]!r} twice; rename one")
    for source in data:
        if source.target == "lustre" and not has_lustre:
            raise ValueError(
                f"lustre must be given for data {source.name} with the target lustre, got none; "
                "pass a LustreFileSystem, or take another target"
            )
    return tuple(data)

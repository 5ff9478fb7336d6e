"""
Download boto3 for the nodes, pinned by hash, and prune it to the services that the agent calls.

    python userdata/vendor.py TARGET

The result has no compiled files and is the same on every machine, and so is the agent's zip.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

LOCK = Path(__file__).with_name("vendor.lock")
SERVICES = ("autoscaling", "dynamodb", "ecr", "events", "logs", "s3", "sqs", "sts")
SHARED_DATA = ("_retry.json", "endpoints.json", "partitions.json", "sdk-default-configuration.json")
INSTALLER_FILES = ("INSTALLER", "RECORD", "REQUESTED", "WHEEL", "direct_url.json")


def main(target: Path) -> None:
    """Install the locked packages below a target folder, which is replaced."""
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        staging = Path(scratch) / "vendor"
        options = ["--quiet", "--no-compile", "--no-deps", "--only-binary=:all:", "--require-hashes"]
        locked = ["--requirement", str(LOCK), "--target", str(staging)]
        subprocess.run([sys.executable, "-m", "pip", "install", *options, *locked], check=True)
        prune(staging)
        shutil.rmtree(target, ignore_errors=True)
        staging.rename(target)


def prune(root: Path) -> None:
    """Remove files that the agent never reads, and those of the installer."""
    shutil.rmtree(root / "bin", ignore_errors=True)
    data = root / "botocore" / "data"
    for entry in data.iterdir():
        if entry.is_dir() and entry.name not in SERVICES:
            shutil.rmtree(entry)
        elif entry.is_file() and entry.name not in SHARED_DATA:
            entry.unlink()
    for kept in (*SERVICES, *SHARED_DATA):
        if not list(data.glob(f"{kept}*")):
            raise SystemExit(f"botocore no longer has {kept}: mend {__file__}")
    shutil.rmtree(root / "boto3" / "data", ignore_errors=True)
    shutil.rmtree(root / "boto3" / "examples", ignore_errors=True)
    for entry in root.rglob("*"):
        if entry.parent.suffix == ".dist-info" and entry.name in INSTALLER_FILES:
            entry.unlink()


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())

"""
Fetch the boto3 that nodes carry, pinned by hash, and prune it to what the agent calls.

    python userdata/vendor.py TARGET

The result holds no compiled files and nothing that differs between two machines, so that the
agent's zip has the same bytes wherever it is built.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

LOCK = Path(__file__).with_name("vendor.lock")
SERVICES = ("autoscaling", "dynamodb", "events", "logs", "s3", "sqs", "sts")
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
    """Remove what the agent never reads and what an installer writes of its own."""
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

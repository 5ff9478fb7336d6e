"""`-c platform=emr`: three nodes boot, hold the contract, and survive the loss of a core node."""

import os
import subprocess
import sys
from pathlib import Path

from cdk_rehearsal import Plan, rehearse

ROOT = Path(__file__).parents[2]


def test_a_cluster_on_emr_forms_and_takes_a_replacement_in(tmp_path: Path) -> None:
    context = ["-c", "platform=emr", "-c", "instance_type=m5.xlarge", "-c", "members=3"]
    environment = os.environ | {"CDK_OUTDIR": str(tmp_path / "cdk.out")}
    subprocess.run([sys.executable, str(ROOT / "app.py"), *context], check=True, capture_output=True, env=environment)
    checks = Path(__file__).with_name("emr_training_checks.py")
    report = rehearse(Plan(tmp_path / "cdk.out", check=checks, out=tmp_path / "out"))
    assert report.problems == ()
    assert (report.verdict, report.stack.status) == ("pass", "CREATE_COMPLETE")

"""
Build hook that adds the programs of nodes, Lambda functions and rehearsal to the wheel, as data.

An editable install has no such copy and reads the checkout instead.
"""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PAYLOAD = {
    "build/vendor": "deeplearning_cdk/_payload/vendor",
    "examples/mask_rcnn": "deeplearning_cdk/_payload/mask_rcnn",
    "examples/sagemaker/mask_rcnn.ipynb": "deeplearning_cdk/_payload/sagemaker/mask_rcnn.ipynb",
    "lambda/capacity_adjuster": "deeplearning_cdk/_payload/capacity_adjuster",
    "lambda/image_pin": "deeplearning_cdk/_payload/image_pin",
    "userdata/bootstrap.sh": "deeplearning_cdk/_payload/bootstrap.sh",
    "userdata/container_build.sh": "deeplearning_cdk/_payload/container_build.sh",
    "userdata/deeplearning_agent": "deeplearning_cdk/_payload/deeplearning_agent",
    "userdata/deeplearning_command": "deeplearning_cdk/_payload/deeplearning_command",
    "userdata/deeplearning_jobs": "deeplearning_cdk/_payload/deeplearning_jobs",
    "userdata/deeplearning_member": "deeplearning_cdk/_payload/deeplearning_member",
    "userdata/deeplearning_node": "deeplearning_cdk/_payload/deeplearning_node",
    "userdata/deeplearning_provision": "deeplearning_cdk/_payload/deeplearning_provision",
    "userdata/emr_bootstrap.sh": "deeplearning_cdk/_payload/emr_bootstrap.sh",
    "userdata/fetch_agent.py": "deeplearning_cdk/_payload/fetch_agent.py",
    "userdata/notebook.lock": "deeplearning_cdk/_payload/notebook.lock",
    "userdata/notebook_start.sh": "deeplearning_cdk/_payload/notebook_start.sh",
    "userdata/prepare_member.py": "deeplearning_cdk/_payload/prepare_member.py",
    "userdata/start_pod.py": "deeplearning_cdk/_payload/start_pod.py",
}

EXAMPLES = ("*.py", "*.sh", "environments/*.txt", "train_digits.toml")
"""Programs, scripts, environments and the job, which the rehearsal runs on nodes; CDK apps are for other machines."""


class PayloadHook(BuildHookInterface[Any]):
    """Build hook of a standard wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the payload's files to the wheel; an error names the command to run first."""
        if version != "standard":
            return
        if not Path(self.root, "build/vendor").is_dir():
            raise SystemExit("build/vendor is missing: run `make setup` before building the wheel")
        for source, target in PAYLOAD.items():
            build_data["force_include"][str(Path(self.root, source))] = target
        examples = Path(self.root, "examples")
        for path in (path for pattern in EXAMPLES for path in sorted(examples.rglob(pattern))):
            if not (path.parent / "app.py").exists():
                target = f"deeplearning_rehearsal/_examples/{path.relative_to(examples)}"
                build_data["force_include"][str(path)] = target

"""
What a rehearsal changes about the environment of jobs, because its nodes have no GPU.

A pinned PyTorch for CUDA becomes one for the CPU, and Horovod is compiled for no compute capability.
"""

import re
from typing import Any

from deeplearning_rehearsal.template.user_data import find_environment, find_launch_data, map_literals

TORCH = "torch==2.13.0"
"""Found on the host as a build for the CPU; a version without a local part takes `2.13.0+cpu` too (PEP 440)."""

_REASON = "these nodes have no GPU"
_CAPABILITY = re.compile(r'("compute_capability":\s*)"([^"]+)"')


def choose_framework(framework: str) -> str:
    """Return what is installed in place of a pinned framework: PyTorch becomes the one for the CPU."""
    return TORCH if re.match(r"torch\b", framework) else framework


def override_environment(template: dict[str, Any]) -> dict[str, str]:
    """
    Change the settings in the user data of a template whose environment is Horovod's; return setting -> new value.
    """
    environment = find_environment(template)
    if environment is None or environment.kind != "horovod":
        return {}
    listing = {}
    framework = choose_framework(environment.framework)
    if framework != environment.framework:
        listing["environment.framework"] = f"{framework}, was {environment.framework}: {_REASON}"
    written = re.compile(rf'("framework":\s*)"{re.escape(environment.framework)}"')

    def change(text: str) -> str:
        for found in _CAPABILITY.finditer(text):
            listing["hardware.compute_capability"] = f"none, was {found[2]}: {_REASON}"
        return _CAPABILITY.sub(r'\1""', written.sub(rf'\1"{framework}"', text))

    for data in find_launch_data(template):
        data["UserData"] = map_literals(data.get("UserData", ""), change)
    return listing

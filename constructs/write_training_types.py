# ruff: noqa: INP001 - constructs/ is a source root, and this script is not part of the library
"""
Write the instance types of SageMaker's training jobs from the service model that botocore carries.

    python constructs/write_training_types.py

Run it after botocore is updated, and commit the result. The library reads only the resulting file, never botocore.
"""

import json
from pathlib import Path

import botocore.loaders

TARGET = Path(__file__).parent / "deeplearning_cdk" / "sagemaker" / "training_types.json"
SHAPE = "TrainingInstanceType"


def render() -> str:
    """Return the types as JSON, one a line, by SageMaker's names."""
    model = botocore.loaders.Loader().load_service_model("sagemaker", "service-2")
    return json.dumps(sorted(model["shapes"][SHAPE]["enum"]), indent=1) + "\n"


if __name__ == "__main__":
    TARGET.write_text(render())

"""Depth of the searches of the models: at a push, or by `make test-deep`."""

import os

IS_DEEP = bool(os.environ.get("DEEPLEARNING_DEEP"))
EXAMPLES = 10_000 if IS_DEEP else 25

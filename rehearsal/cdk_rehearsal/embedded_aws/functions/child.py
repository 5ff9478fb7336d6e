"""
Runs one Lambda execution environment: reads events from standard input, a line each, and answers on a pipe.

An empty line there says that the handler is loaded.

Its interpreter sees the standard library, boto3 and the function's own code, and nothing of this package.
"""

import contextlib
import importlib
import json
import logging
import os
import sys
import time
import traceback
from typing import Any


class Context:
    """The context object of the Python runtime, as far as it is documented."""

    def __init__(self, request: "dict[str, Any]") -> None:
        self._deadline = time.monotonic() + request["timeout"]
        self.aws_request_id = request["request_id"]
        self.function_name = os.environ["AWS_LAMBDA_FUNCTION_NAME"]
        self.function_version = "$LATEST"
        self.invoked_function_arn = request["arn"]
        self.memory_limit_in_mb = os.environ["AWS_LAMBDA_FUNCTION_MEMORY_SIZE"]
        self.log_group_name = f"/aws/lambda/{self.function_name}"
        self.log_stream_name = os.environ["AWS_LAMBDA_LOG_STREAM_NAME"]
        self.identity = None
        self.client_context = None

    def get_remaining_time_in_millis(self) -> int:
        """Return the time until the function is stopped, in milliseconds."""
        return max(0, int((self._deadline - time.monotonic()) * 1000))


def answer_events(answers: int) -> None:
    """Load the handler and answer every event on a file descriptor, until standard input ends."""
    module_name, _, function_name = os.environ["_HANDLER"].rpartition(".")
    sys.path.insert(0, os.environ["LAMBDA_TASK_ROOT"])
    # As the real runtime does: a handler on the root logger, which stays at WARNING until the function says otherwise.
    logging.basicConfig(stream=sys.stdout, format="[%(levelname)s]\t%(asctime)s\t%(message)s")
    handler = None
    for line in sys.stdin:
        request = json.loads(line)
        answer = {"request_id": request["request_id"], "result": None, "error": None}
        try:
            if handler is None:
                handler = getattr(importlib.import_module(module_name.replace("/", ".")), function_name)
                os.write(answers, b"\n")
            answer["result"] = json.loads(json.dumps(handler(request["event"], Context(request))))
        except BaseException as error:  # noqa: BLE001 - the real runtime reports whatever the handler raises, SystemExit too
            traceback.print_exc()
            answer["error"] = {
                "errorMessage": str(error),
                "errorType": type(error).__name__,
                "requestId": request["request_id"],
                "stackTrace": traceback.format_tb(error.__traceback__)[1:],
            }
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(ValueError):
                stream.flush()
        os.write(answers, json.dumps(answer).encode() + b"\n")


if __name__ == "__main__":
    answer_events(int(sys.argv[1]))

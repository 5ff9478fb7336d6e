"""Runs Lambda functions: asynchronous invocations with retries, permissions, logs, and a record of each."""

import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from botocore.exceptions import ClientError

from cdk_rehearsal.embedded_aws.base.cloud_options import ASYNCHRONOUS_RETRY_SECONDS
from cdk_rehearsal.embedded_aws.base.observation import Observations
from cdk_rehearsal.embedded_aws.functions.environment import (
    ExecutionEnvironment,
    Function,
    Outcome,
    unpack_code,
)
from cdk_rehearsal.embedded_aws.functions.interpreters import NODE, Interpreters
from cdk_rehearsal.place import Credentials, Place

LOG_STREAM = "rehearsal"
_MOST_LINES = 1_000
"""Of one invocation; CloudWatch Logs takes ten times as many in a call."""


class FunctionLog:
    """The log of one function, written with its role's credentials."""

    def __init__(self, place: Place, credentials: Credentials, log_group: str) -> None:
        self._logs: Any = place.client_as("logs", credentials)
        self._place = {"logGroupName": log_group, "logStreamName": LOG_STREAM}
        self._lock = threading.Lock()
        self._has_stream = False

    def write(self, text: str) -> None:
        """Write a line a log event; raise ClientError where the role may not."""
        now = int(time.time() * 1000)
        events = [{"timestamp": now, "message": line} for line in text.splitlines() if line.strip()]
        if not events:
            return
        with self._lock:
            if not self._has_stream:
                self._logs.create_log_stream(**self._place)
                self._has_stream = True
            self._logs.put_log_events(**self._place, logEvents=events[-_MOST_LINES:])


@dataclass(frozen=True)
class Permission:
    """A statement of a function's resource policy: which service may invoke it, for which resource."""

    principal: str
    source_arn: str | None
    source_account: str | None


_CONCURRENCY = 16
_LOST_ANSWER = "Runtime exited with error: signal: killed"


@dataclass(frozen=True)
class Invocation:
    """One that ended (`attempt` from 1), or was refused (0): of `sns`, `sqs`, `events`, `cloudformation`, `invoke`."""

    at: float
    """Monotonic time of its begin, in seconds."""
    function: str
    source: str
    attempt: int
    seconds: float
    error: str
    log: str


class FunctionRunner:
    """Runs the functions of the lab; where `loses_answers`, each invocation fails after it has done its work."""

    def __init__(
        self,
        observations: Observations,
        retry_seconds: tuple[float, ...] = ASYNCHRONOUS_RETRY_SECONDS,
        *,
        loses_answers: bool = False,
        node_modules: Path | None = None,
    ) -> None:
        self._observations = observations
        self._retry_seconds = retry_seconds
        self._loses_answers = loses_answers
        self._folder = tempfile.TemporaryDirectory(prefix="rehearsal-functions-")
        self._interpreters = Interpreters(Path(self._folder.name), node_modules)
        self._lock = threading.Lock()
        self._functions: dict[str, Function] = {}
        self._layers: dict[str, bytes] = {}
        self._permissions: dict[str, list[Permission]] = defaultdict(list)
        self._warm: dict[str, list[ExecutionEnvironment]] = defaultdict(list)
        self._all: list[ExecutionEnvironment] = []
        self._invocations: list[Invocation] = []
        self._pool = ThreadPoolExecutor(_CONCURRENCY, thread_name_prefix="lambda")
        self._closing = threading.Event()

    def add_function(self, function: Function, zipped: bytes) -> None:
        """Unpack a function's code, so that it can be invoked."""
        code = unpack_code(zipped, self._interpreters.find_code(function.name))
        layers = self._interpreters.find_layers(function.name)
        for layer in function.layers:
            if layer not in self._layers:
                raise ValueError(f"Layers must be layers of the app in the rehearsal, got {layer}")
            unpack_code(self._layers[layer], layers)
        environment = {**function.environment, "LAMBDA_TASK_ROOT": str(code)}
        if function.runtime.startswith(NODE):
            environment = {"NODE_PATH": f"{layers / 'nodejs' / 'node_modules'}:{code}", **environment}
        with self._lock:
            self._functions[function.name] = replace(function, code=code, environment=environment)

    def replace_code(self, name: str, zipped: bytes) -> None:
        """Replace a function's code: invocations that begin from now on have environments of their own."""
        with self._lock:
            unpack_code(zipped, self._interpreters.find_code(name))
            self._warm.pop(name, None)

    def add_layer(self, arn: str, zipped: bytes) -> None:
        """Take a layer, which functions can have from now on."""
        self._layers[arn] = zipped

    def remove_function(self, name: str) -> None:
        """Forget a function; running invocations end by themselves."""
        with self._lock:
            self._functions.pop(name, None)

    def add_permission(self, function: str, permission: Permission) -> None:
        """Let a service invoke a function."""
        with self._lock:
            self._permissions[function].append(permission)

    def invoke_asynchronously(
        self, function_arn: str, event: Any, *, source: str, principal: str, source_arn: str
    ) -> bool:
        """
        Accept an event of another service, as the asynchronous `Invoke` does.

        Return whether the function's resource policy admits the service; when not, the refusal is recorded.
        """
        name = function_arn.split(":")[6]
        account = source_arn.split(":")[4] or function_arn.split(":")[4]  # the ARN of a bucket names none
        with self._lock:
            function = self._functions.get(name)
            allowed = any(
                permission.principal == principal
                and permission.source_arn in (None, source_arn)
                and permission.source_account in (None, account)
                for permission in self._permissions[name]
            )
        if function is None or not allowed:
            why = "there is no such function" if function is None else f"its policy does not admit {principal}"
            self._record(Invocation(time.monotonic(), name, source, 0, 0.0, f"refused: {why} for {source_arn}", ""))
            return False
        self._submit(lambda: self._attempt(function, event, source, 1))
        return True

    def invoke_for_operator(self, function_arn: str, event: Any, *, source: str) -> None:
        """Accept an event of the operator, whose own rights and not the function's policy admit it."""
        with self._lock:
            function = self._functions.get(function_arn.split(":")[6])
        if function is None:
            raise ValueError(f"there is no function {function_arn}")
        self._submit(lambda: self._attempt(function, event, source, 1))

    def kill(self, part: str) -> int:
        """Kill the processes of functions whose name has a part, as a failing host does; return their number."""
        with self._lock:
            struck = [each for each in self._all if part in each.name and each.alive]
        for environment in struck:
            environment.close()
        return len(struck)

    def find_arn(self, name: str) -> str:
        """Return the ARN of a function; empty where there is none."""
        with self._lock:
            function = self._functions.get(name)
        return function.arn if function else ""

    def invoke(self, function_arn: str, event: Any, source: str = "invoke") -> Outcome:
        """Run a function for a caller that waits; Lambda repeats nothing of it, and keeps no failed event."""
        with self._lock:
            function = self._functions[function_arn.split(":")[6]]
        begin = time.monotonic()
        outcome = self._run(function, event)
        self._hand_over("the log", function, partial(function.log, outcome.log))
        self._record(Invocation(begin, function.name, source, 1, outcome.seconds, outcome.error, outcome.log))
        return outcome

    def invocations(self) -> tuple[Invocation, ...]:
        """Return what was invoked or refused, oldest end first."""
        with self._lock:
            return tuple(self._invocations)

    def close(self) -> None:
        """Kill every execution environment and drop what waits."""
        self._closing.set()
        with self._lock:
            environments = tuple(self._all)
        for environment in environments:
            environment.close()
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._folder.cleanup()

    def _attempt(self, function: Function, event: Any, source: str, attempt: int) -> None:
        begin = time.monotonic()
        outcome = self._run(function, event)
        if self._loses_answers:
            outcome = replace(outcome, error=outcome.error or _LOST_ANSWER)
        if self._closing.is_set():
            return
        self._hand_over("the log", function, partial(function.log, outcome.log))
        self._record(Invocation(begin, function.name, source, attempt, outcome.seconds, outcome.error, outcome.log))
        if outcome.error and attempt <= len(self._retry_seconds):
            pause = self._retry_seconds[attempt - 1]
            timer = threading.Timer(pause, self._submit, [lambda: self._attempt(function, event, source, attempt + 1)])
            timer.daemon = True
            timer.start()
        elif outcome.error:
            self._hand_over("a dead letter", function, partial(function.dead_letters, event, outcome.error))

    def _hand_over(self, what: str, function: Function, send: Callable[[], None]) -> None:
        try:
            send()
        except ClientError as refusal:
            self._observations.report("refusal", function.name, f"{what} of {function.name} is lost: {refusal}")

    def _run(self, function: Function, event: Any) -> Outcome:
        with self._lock:
            warm = self._warm[function.name]
            environment = warm.pop() if warm else None
        if environment is None:
            if refusal := function.decrypt():
                kind, _, message = refusal.partition(": ")
                return Outcome(0.0, None, refusal, "", {"errorType": kind, "errorMessage": message})
            environment = ExecutionEnvironment(function, self._interpreters)
            with self._lock:
                self._all.append(environment)
        outcome = environment.invoke(event)
        with self._lock:
            if environment.alive:
                self._warm[function.name].append(environment)
            else:
                self._all.remove(environment)
        return outcome

    def _record(self, invocation: Invocation) -> None:
        with self._lock:
            self._invocations.append(invocation)
        text = f"{invocation.source} → {invocation.function}"
        text += f": {invocation.error}" if invocation.error else f" in {invocation.seconds:.1f} s"
        self._observations.report(
            "invocation" if invocation.attempt else "refusal", invocation.function, text, invocation=invocation
        )

    def _submit(self, work: Callable[[], None]) -> None:
        if not self._closing.is_set():
            self._pool.submit(work)

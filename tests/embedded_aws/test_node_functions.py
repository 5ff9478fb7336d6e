"""The execution environment of Node.js: handlers, contexts, errors and ends, as Lambda's runtime client has them."""

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from cdk_rehearsal.embedded_aws.functions.environment import ExecutionEnvironment, Function, unpack_code
from cdk_rehearsal.embedded_aws.functions.inline_code import pack_inline_code
from cdk_rehearsal.embedded_aws.functions.interpreters import Interpreters
from tests.real_time import GENEROUS_SECONDS


@pytest.fixture
def environment(tmp_path):
    """Return the function that starts an environment with files of a function."""
    environments = []
    modules = tmp_path / "modules"
    (modules / "@aws-sdk" / "client-x").mkdir(parents=True)
    (modules / "@aws-sdk" / "client-x" / "index.js").write_text("exports.word = 'client';")
    folder = tmp_path / "functions"
    folder.mkdir()
    interpreters = Interpreters(folder, modules)

    def start(files, *, runtime="nodejs24.x", handler="index.handler", timeout=GENEROUS_SECONDS, endpoint="http://x"):
        code = interpreters.find_code(f"code{len(environments)}")
        code.mkdir()
        for name, text in ({"index.js": files} if isinstance(files, str) else files).items():
            (code / name).parent.mkdir(parents=True, exist_ok=True)
            (code / name).write_text(text)
        variables = {
            "_HANDLER": handler,
            "LAMBDA_TASK_ROOT": str(code),
            "NODE_PATH": str(code),
            "AWS_ENDPOINT_URL": endpoint,
            "AWS_EXECUTION_ENV": f"AWS_Lambda_{runtime}",
            "AWS_LAMBDA_FUNCTION_NAME": "function",
            "AWS_LAMBDA_FUNCTION_VERSION": "$LATEST",
            "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "128",
            "AWS_LAMBDA_LOG_GROUP_NAME": "/aws/lambda/function",
            "AWS_LAMBDA_LOG_STREAM_NAME": "stream",
        }
        function = Function("function", "arn", timeout, variables, code, runtime)
        environments.append(ExecutionEnvironment(function, interpreters))
        return environments[-1]

    yield start
    for entry in environments:
        entry.close()


@pytest.mark.parametrize(
    ("files", "handler"),
    [
        ("exports.handler = async (event) => event + 1;", "index.handler"),
        ("exports.api = { handler: async (event) => event + 1 };", "index.api.handler"),
        ({"src/app.js": "exports.run = (event) => event + 1;"}, "src/app.run"),
        ({"index.mjs": "export const handler = async (event) => event + 1;"}, "index.handler"),
        ({"index.cjs": "exports.handler = async (event) => event + 1;"}, "index.handler"),
        (
            {"index.js": "export const handler = async (event) => event + 1;", "package.json": '{"type": "module"}'},
            "index.handler",
        ),
    ],
)
def test_a_handler_is_found_by_file_and_export(environment, files, handler):
    """Lambda developer guide, "Define Lambda function handler in Node.js"."""
    warm = environment(files, handler=handler)
    assert [(warm.invoke(n).result, warm.invoke(n).error) for n in (1, 2)] == [(2, ""), (3, "")]


@pytest.mark.parametrize(
    "files",
    [
        {"index.js": "exports.handler = async () => require('@aws-sdk/client-x').word;"},
        {"index.mjs": "import sdk from '@aws-sdk/client-x'; export const handler = async () => sdk.word;"},
    ],
)
def test_modules_of_both_kinds_find_the_packages_of_the_runtime(environment, files):
    assert environment(files).invoke({}).result == "client"


@pytest.mark.parametrize(
    ("source", "result"),
    [
        ("(event, context, callback) => callback(null, 'called')", "called"),
        ("(event, context, callback) => { setTimeout(() => callback(null, 'later'), 1); }", "later"),
        (
            "(event, context, callback) => { let n = 0; setTimeout(() => { seen.n = 1; }, 5); callback(null, seen); }",
            {"n": 1},
        ),
        (
            "(e, c, end) => { c.callbackWaitsForEmptyEventLoop = false; setTimeout(() => {}, 9e5); end(null, 'now'); }",
            "now",
        ),
        ("(event, context) => { context.succeed('succeeded'); }", "succeeded"),
        ("(event, context) => { context.done(null, 'done'); }", "done"),
        ("() => 'ignored'", None),
        ("() => {}", None),
    ],
)
def test_until_node_22_a_handler_may_take_a_callback(environment, source, result):
    """Lambda's runtime interface client for Node.js: CallbackContext.js and Runtime.js."""
    outcome = environment(f"const seen = {{}}; exports.handler = {source};", runtime="nodejs22.x").invoke({})
    assert (outcome.result, outcome.error) == (result, "")


def test_the_context_names_the_function_and_the_time_that_is_left(environment):
    source = "exports.handler = async (e, c) => ({ ...c, left: c.getRemainingTimeInMillis() });"
    seen = environment(source, timeout=900).invoke({}).result
    assert 0 < seen.pop("left") <= 900_000
    assert len(seen.pop("awsRequestId")) == 36
    assert seen == {
        "functionName": "function",
        "functionVersion": "$LATEST",
        "invokedFunctionArn": "arn",
        "logGroupName": "/aws/lambda/function",
        "logStreamName": "stream",
        "memoryLimitInMB": "128",
    }


_NO_CALLBACKS = "Runtime.CallbackHandlerDeprecated: ERROR: AWS Lambda has removed support for callback-based function"


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("exports.handler = async () => { throw new TypeError('no'); };", "TypeError: no"),
        ("exports.handler = async () => { throw 'text'; };", "string: text"),
        ("exports.handler = (e, c, callback) => callback(null, 1);", _NO_CALLBACKS),
        ("exports.other = 1;", "Runtime.HandlerNotFound: index.handler is undefined or not exported"),
        ("exports.handler = 1;", "Runtime.HandlerNotFound: index.handler is not a function"),
        ("require('nowhere');", "Runtime.ImportModuleError: Error: Cannot find module 'nowhere'"),
        ({"other.js": ""}, "Runtime.ImportModuleError: Error: Cannot find module 'index'"),
        ("exports.handler = async () => {", "Runtime.UserCodeSyntaxError: SyntaxError: Unexpected end of input"),
        ("exports.handler = () => new Promise(() => {});", "Runtime.NodeJsExit: The Lambda runtime client detected"),
        ("exports.handler = async () => process.exit(3);", "Runtime exited with error: exit status 3"),
        ("exports.handler = async () => process.exit(0);", "Runtime exited without providing a reason"),
        (
            "exports.handler = () => new Promise(() => { Promise.reject(Error('lost')); setTimeout(() => {}, 9e5); });",
            "Runtime.UnhandledPromiseRejection: Error: lost",
        ),
        (
            "exports.handler = () => new Promise(() => setTimeout(() => { throw new Error('thrown'); }, 1));",
            "Error: thrown",
        ),
    ],
)
def test_an_error_has_lambdas_words(environment, source, error):
    """Lambda's runtime interface client for Node.js: Errors.js and UserFunction.js."""
    outcome = environment(source).invoke({})
    assert outcome.error.startswith(error)
    assert outcome.failure["errorMessage"]


def test_an_environment_that_failed_for_good_takes_no_further_event(environment):
    broken = environment("require('nowhere');")
    assert broken.invoke({}).failure["trace"]
    assert not broken.alive
    healthy = environment("exports.handler = async (event) => { if (event) throw new Error('no'); return 1; };")
    assert [healthy.invoke(event).error for event in (1, 0)] == ["Error: no", ""]


def test_loading_the_handler_does_not_count_as_the_functions_time(environment):
    wait = "Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 2500);"
    source = f"{wait} exports.handler = async (_, context) => context.getRemainingTimeInMillis();"
    slow = environment(source, timeout=2.0)
    assert 0 < slow.invoke({}).result <= 2000
    assert 0 < slow.invoke({}).result <= 2000


def test_a_function_ends_at_its_timeout(environment):
    stuck = environment("exports.handler = () => new Promise(() => setTimeout(() => {}, 900000));", timeout=1.0)
    outcome = stuck.invoke({})
    assert outcome.error == "Task timed out after 1.00 seconds"
    assert outcome.failure["errorType"] == "Sandbox.Timedout"
    assert not stuck.alive


def test_the_console_is_the_log_with_the_request(environment):
    """Lambda developer guide, "Log and monitor Node.js Lambda functions": time, request id and level."""
    warm = environment(
        "exports.handler = async (e, c) => { console.log('hi %s', 'you'); console.error('no'); return c; };"
    )
    outcome = warm.invoke({})
    request = outcome.result["awsRequestId"]
    assert [line.split("\t")[1:] for line in outcome.log.splitlines()] == [
        [request, "INFO", "hi you"],
        [request, "ERROR", "no"],
    ]


@pytest.mark.parametrize("runtime", ["nodejs22.x", "nodejs24.x"])
def test_a_response_of_inline_code_reaches_its_url(environment, tmp_path, runtime):
    """User guide, "cfn-response module": https of the URL's host, which is the embedded AWS without TLS."""
    bodies = []

    class Receiver(BaseHTTPRequestHandler):
        def do_PUT(self):
            bodies.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            """Say nothing."""

    server = HTTPServer(("127.0.0.1", 0), Receiver)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}"
    text = (
        "const response = require('cfn-response');\n"
        "exports.handler = async (e, c) => { await response.send(e, c, response.SUCCESS, {Said: 'hi'}, 'mine'); };"
    )
    folder = unpack_code(pack_inline_code(text, runtime), tmp_path / "packed")
    files = {path.name: path.read_text() for path in folder.iterdir()}
    event = {"ResponseURL": f"{url}/bucket/key?a=b", "StackId": "s", "RequestId": "r", "LogicalResourceId": "l"}
    outcome = environment(files, runtime=runtime, endpoint=url).invoke(event)
    server.shutdown()
    server.server_close()
    assert outcome.error == ""
    ((path, body),) = bodies
    assert path == "/bucket/key?a=b"
    assert b'"Data":{"Said":"hi"}' in body
    assert b'"PhysicalResourceId":"mine"' in body

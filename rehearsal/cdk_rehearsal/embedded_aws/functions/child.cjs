// Runs one Lambda execution environment of Node.js: reads events from standard input, a line each, and answers on a pipe.
// An empty line there says that the handler is loaded.
//
// Behaviour and words are those of Lambda's runtime interface client for Node.js: until Node.js 22 handlers may take a
// callback, from Node.js 24 on they may not. Between two events the process waits in a read, frozen as on Lambda.

"use strict";

const fs = require("node:fs");
const http = require("node:http");
const https = require("node:https");
const path = require("node:path");
const util = require("node:util");
const { syncBuiltinESMExports } = require("node:module");
const { pathToFileURL, urlToHttpOptions } = require("node:url");

const INPUT = 0;
const ANSWERS = Number(process.argv[2]);
const TAKES_CALLBACKS = Number(/nodejs([0-9]+)/.exec(process.env.AWS_EXECUTION_ENV)[1]) < 24;
const NO_CALLBACKS =
  "ERROR: AWS Lambda has removed support for callback-based function handlers starting with Node.js 24. You need to " +
  "modify this function to use a supported handler signature to use Node.js 24 or later. For more information see " +
  "https://docs.aws.amazon.com/lambda/latest/dg/nodejs-handler.html.";
const NEVER_SETTLED =
  "The Lambda runtime client detected an unexpected Node.js exit code. This is most commonly caused by a Promise that " +
  "was never settled. For more information, see https://nodejs.org/docs/latest/api/process.html#exit-codes";

let requestId = "";
let failInvocation = null; // what an error that nobody catches ends, and an empty event loop
let onEmptyLoop = null;

// Where URLs of S3 have https on port 443, those of the embedded AWS have http on a port of its own; handlers of custom
// resources keep host and path of a URL alone.
function redirectRequests() {
  const endpoint = new URL(process.env.AWS_ENDPOINT_URL);
  for (const name of ["request", "get"]) {
    const original = https[name];
    https[name] = (target, ...rest) => {
      const isUrl = typeof target === "string" || target instanceof URL;
      const given = isUrl ? urlToHttpOptions(new URL(target)) : target;
      const options = isUrl && typeof rest[0] === "object" ? { ...given, ...rest.shift() } : { ...given };
      const host = String(options.hostname ?? options.host ?? "").replace(/:[0-9]+$/, "");
      if (host !== endpoint.hostname || !["", "443", endpoint.port].includes(String(options.port ?? ""))) {
        return original(isUrl ? options : target, ...rest);
      }
      const { agent, defaultPort, ...kept } = options;
      return http[name]({ ...kept, protocol: "http:", host, hostname: host, port: endpoint.port }, ...rest);
    };
  }
  syncBuiltinESMExports();
}

function redirectConsole() {
  const levels = { trace: "TRACE", debug: "DEBUG", log: "INFO", info: "INFO", warn: "WARN", error: "ERROR" };
  for (const [name, level] of Object.entries(levels)) {
    console[name] = (...parts) =>
      fs.writeSync(1, `${new Date().toISOString()}\t${requestId}\t${level}\t${util.format(...parts)}\n`);
  }
}

function nameError(name, message) {
  const error = new Error(message);
  error.name = `Runtime.${name}`;
  return error;
}

function describe(error) {
  if (error instanceof Error || (error && error.name && error.message && error.stack)) {
    return { errorType: error.name, errorMessage: error.message, trace: String(error.stack).split("\n") };
  }
  return { errorType: typeof error, errorMessage: String(error), trace: [] };
}

function answer(content, isFinal = false) {
  let result = "null";
  let { error = null } = content;
  try {
    result = JSON.stringify(content.result ?? null) ?? "null";
  } catch (failure) {
    error = describe(failure);
  }
  const head = JSON.stringify({ request_id: requestId, error, is_final: isFinal }).slice(0, -1);
  let left = Buffer.from(`${head}, "result": ${result}}\n`);
  while (left.length > 0) {
    left = left.subarray(fs.writeSync(ANSWERS, left));
  }
}

function fail(error, kind = "Invoke Error") {
  const described = describe(error);
  console.error(`${kind} `, JSON.stringify({ ...described, code: error?.code, stack: described.trace, trace: undefined }));
  return { error: described };
}

let input = Buffer.alloc(0);

function readRequest() {
  const chunk = Buffer.alloc(65536);
  let end;
  while ((end = input.indexOf(10)) < 0) {
    const count = fs.readSync(INPUT, chunk);
    if (count === 0) {
      process.exit(0);
    }
    input = Buffer.concat([input, chunk.subarray(0, count)]);
  }
  const line = input.subarray(0, end).toString();
  input = input.subarray(end + 1);
  return JSON.parse(line);
}

function isModule(file) {
  for (let folder = path.dirname(file); ; folder = path.dirname(folder)) {
    const description = path.join(folder, "package.json");
    if (fs.existsSync(description)) {
      return JSON.parse(fs.readFileSync(description)).type === "module";
    }
    if (folder === "/" || folder.endsWith("/node_modules")) {
      return false;
    }
  }
}

async function loadFile(file) {
  const script = `${file}.js`;
  if (fs.existsSync(script)) {
    return isModule(script) ? import(pathToFileURL(script)) : require(script);
  }
  return fs.existsSync(`${file}.mjs`) ? import(pathToFileURL(`${file}.mjs`)) : require(`${file}.cjs`);
}

async function loadHandler() {
  const text = process.env._HANDLER;
  const match = /^([^.]*)\.(.*)$/.exec(path.basename(text));
  if (text.includes("..") || match === null) {
    const rule = "Use absolute paths when specifying root directories in handler names.";
    const bad = text.includes("..") ? `'${text}' is not a valid handler name. ${rule}` : "Bad handler";
    throw nameError("MalformedHandlerName", bad);
  }
  const file = path.resolve(process.env.LAMBDA_TASK_ROOT, path.dirname(text), match[1]);
  let module;
  try {
    module = await loadFile(file);
  } catch (error) {
    if (error instanceof SyntaxError) {
      throw Object.assign(nameError("UserCodeSyntaxError", String(error)), { stack: error.stack });
    }
    if (error?.code === "MODULE_NOT_FOUND") {
      const isHandler = error.message.includes(`'${file}.cjs'`);
      const said = isHandler ? `Error: Cannot find module '${match[1]}'` : String(error);
      throw nameError("ImportModuleError", said);
    }
    throw error;
  }
  const handler = match[2].split(".").reduce((nested, key) => nested && nested[key], module);
  if (typeof handler !== "function") {
    throw nameError("HandlerNotFound", `${text} is ${handler ? "not a function" : "undefined or not exported"}`);
  }
  if (!TAKES_CALLBACKS && handler.length >= 3) {
    throw nameError("CallbackHandlerDeprecated", NO_CALLBACKS);
  }
  return handler;
}

function makeContext(request) {
  const deadline = performance.now() + request.timeout * 1000;
  return {
    functionVersion: process.env.AWS_LAMBDA_FUNCTION_VERSION,
    functionName: process.env.AWS_LAMBDA_FUNCTION_NAME,
    memoryLimitInMB: process.env.AWS_LAMBDA_FUNCTION_MEMORY_SIZE,
    logGroupName: process.env.AWS_LAMBDA_LOG_GROUP_NAME,
    logStreamName: process.env.AWS_LAMBDA_LOG_STREAM_NAME,
    clientContext: undefined,
    identity: undefined,
    invokedFunctionArn: request.arn,
    awsRequestId: request.request_id,
    getRemainingTimeInMillis: () => Math.max(0, Math.floor(deadline - performance.now())),
  };
}

function callHandler(handler, request) {
  const context = makeContext(request);
  return new Promise((resolve) => {
    const end = (error, result) => resolve(error === undefined || error === null ? { result } : fail(error));
    failInvocation = (error, kind) => resolve({ ...fail(error, kind), isFinal: true });
    const isAsync = handler.constructor.name === "AsyncFunction";
    const neverSettled = () => resolve(fail(nameError("NodeJsExit", NEVER_SETTLED)));
    if (!TAKES_CALLBACKS) {
      onEmptyLoop = neverSettled;
      new Promise((settle) => settle(handler(request.event, context))).then((result) => end(null, result), end);
      return;
    }
    onEmptyLoop = isAsync ? neverSettled : () => end(null, null);
    context.callbackWaitsForEmptyEventLoop = true;
    const callback = (error, result) => {
      if ((error === undefined || error === null) && context.callbackWaitsForEmptyEventLoop) {
        onEmptyLoop = () => end(null, result);
      } else {
        end(error, result);
      }
    };
    Object.assign(context, { done: end, succeed: (result) => end(null, result), fail: (error) => end(error ?? "handled") });
    try {
      const result = handler(request.event, context, callback);
      if (typeof result?.then === "function") {
        result.then(context.succeed, context.fail);
      }
    } catch (error) {
      end(error);
    }
  });
}

async function answerEvents() {
  let handler = null;
  for (;;) {
    const request = readRequest();
    requestId = request.request_id;
    let outcome;
    try {
      failInvocation = (error, kind) => leave(fail(error, kind), 129);
      if (handler === null) {
        handler = await loadHandler();
        fs.writeSync(ANSWERS, "\n");
      }
      outcome = await callHandler(handler, request);
    } catch (error) {
      outcome = { ...fail(error, "Init Error"), isFinal: true };
    }
    failInvocation = onEmptyLoop = null;
    if (outcome.isFinal) {
      leave(outcome, 1);
    }
    answer(outcome);
    await new Promise(setImmediate);
  }
}

function leave(outcome, status) {
  answer(outcome, true);
  process.exit(status);
}

function endBy(error, kind) {
  if (failInvocation === null) {
    fail(error, kind);
    process.exit(129);
  }
  failInvocation(error, kind);
}

process.on("uncaughtException", (error) => endBy(error, "Uncaught Exception"));
process.on("unhandledRejection", (reason) => {
  endBy(nameError("UnhandledPromiseRejection", String(reason)), "Unhandled Promise Rejection");
});
process.on("beforeExit", () => {
  if (onEmptyLoop !== null) {
    setImmediate(onEmptyLoop);
  }
});
redirectRequests();
redirectConsole();
answerEvents();

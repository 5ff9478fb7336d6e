// Runs AWS's validation engine with its own rules and those of cdk-preflight: a request and an answer, each a line of JSON.
// Arguments: folder of @aws/cloudformation-validate, module with the rules.
const readline = require("readline");

const [, , engineFolder, rulesModule] = process.argv;
const { RegoEngine, TemplateFile } = require(engineFolder);
const { BUNDLED_RULES, BUNDLED_LIBS } = require(rulesModule);
const HEADER = "package cdk_preflight\n\nimport rego.v1\n\n";

let compiled = { place: "", rules: new Set(), engine: undefined };

/** Return an engine with these rules and those before; one with all that there are takes ten times as long to compile. */
function compile(wanted, region, account) {
  const place = `deploy_region := ${JSON.stringify(region)}\ndeploy_account := ${JSON.stringify(account)}\n`;
  if (compiled.place !== place || wanted.some((rule) => !compiled.rules.has(rule))) {
    compiled.engine?.free();
    const rules = new Set([...compiled.rules, ...wanted]);
    const customRules = [
      ...BUNDLED_LIBS.map(({ name, rego }) => ({ name, content: rego })),
      ...[...rules].map(({ id, rego }) => ({ name: id, content: rego })),
      { name: "deploy_environment", content: HEADER + place },
    ];
    compiled = { place, rules, engine: new RegoEngine({ customRules }) };
  }
  return compiled.engine;
}

/** Return findings, and the crashes of rules, without which the engine is asked again. */
function judge(rules, request) {
  const overrides = { accountId: request.account, region: request.region };
  try {
    const engine = compile(rules, request.region, request.account);
    const { diagnostics } = engine.validateTemplate(new TemplateFile(request.path), { pseudoParameterOverrides: overrides });
    return { found: diagnostics, crashes: [] };
  } catch (error) {
    // Not freed: after a panic of the engine, `free` throws.
    compiled = { place: "", rules: new Set(), engine: undefined };
    const others = rules.filter((rule) => !String(error).includes(`--> ${rule.id}:`));
    const { found, crashes } = others.length < rules.length ? judge(others, request) : { found: [], crashes: [] };
    return { found, crashes: [String(error), ...crashes] };
  }
}

readline.createInterface({ input: process.stdin }).on("line", (line) => {
  const request = JSON.parse(line);
  const types = new Set(["*", ...request.types]);
  const rules = BUNDLED_RULES.filter((rule) => rule.resourceTypes.some((type) => types.has(type)));
  process.stdout.write(`${JSON.stringify(judge(rules, request))}\n`);
});

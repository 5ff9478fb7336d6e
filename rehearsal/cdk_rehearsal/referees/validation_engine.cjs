// Runs AWS's validation engine with its own rules and those of cdk-preflight: a request and an answer, each a line of JSON.
// Arguments: folder of @aws/cloudformation-validate, module with the rules.
const readline = require("readline");

const [, , engineFolder, rulesModule] = process.argv;
const { RegoEngine, TemplateFile } = require(engineFolder);
const { BUNDLED_RULES, BUNDLED_LIBS } = require(rulesModule);
const HEADER = "package cdk_preflight\n\nimport rego.v1\n\n";

let compiled = { key: "", engine: undefined };

/** Return an engine with the rules of some resource types; one with all rules takes ten times as long to compile. */
function compile(types, region, account) {
  const rules = BUNDLED_RULES.filter((rule) => rule.resourceTypes.some((type) => type === "*" || types.has(type)));
  const key = [region, account, ...rules.map((rule) => rule.id)].join("|");
  if (compiled.key !== key) {
    compiled.engine?.free();
    const services = new Map();
    for (const rule of rules) {
      const body = rule.rego.replace(/^(?:package|import)\s.*\n/gm, "");
      services.set(rule.service, `${services.get(rule.service) ?? HEADER}${body}\n`);
    }
    const place = `deploy_region := ${JSON.stringify(region)}\ndeploy_account := ${JSON.stringify(account)}\n`;
    const customRules = [
      ...BUNDLED_LIBS.map(({ name, rego }) => ({ name, content: rego })),
      ...[...services].map(([service, content]) => ({ name: `rules_of_${service}`, content })),
      { name: "deploy_environment", content: HEADER + place },
    ];
    compiled = { key, engine: new RegoEngine({ customRules }) };
  }
  return compiled.engine;
}

function judge({ path, types, region, account }) {
  const overrides = { accountId: account, region };
  const engine = compile(new Set(types), region, account);
  return engine.validateTemplate(new TemplateFile(path), { pseudoParameterOverrides: overrides }).diagnostics;
}

readline.createInterface({ input: process.stdin }).on("line", (line) => {
  let answer;
  try {
    answer = { found: judge(JSON.parse(line)) };
  } catch (error) {
    answer = { crash: String(error) };
  }
  process.stdout.write(`${JSON.stringify(answer)}\n`);
});

"""
The arrows and limits of docs/architecture.md as checks over a folder, so that a test can plant a violation elsewhere.

Each check returns its findings, a line each; none means that all is well.
"""

import ast
import functools
import graphlib
import sys
from collections import Counter
from pathlib import Path

SOURCE_ROOTS = ("cli", "constructs", "contract", "lambda", "rehearsal", "userdata", "view")
FIRST_PARTY = frozenset(
    {
        "capacity_adjuster",
        "deeplearning_agent",
        "deeplearning_cdk",
        "deeplearning_cli",
        "deeplearning_command",
        "deeplearning_contract",
        "deeplearning_jobs",
        "deeplearning_member",
        "deeplearning_node",
        "deeplearning_provision",
        "cdk_rehearsal",
        "deeplearning_rehearsal",
        "deeplearning_view",
        "image_pin",
        "stacks",
    }
)
AWS = frozenset({"boto3", "botocore"})
CDK = frozenset({"aws_cdk", "constructs", "jsii"})
ROOMS = {
    "app.py": (frozenset({"stacks"}), CDK),
    "stacks": (frozenset({"deeplearning_cdk"}), CDK),
    # packaging and PyYAML read the files that name the software of jobs.
    "constructs/deeplearning_cdk": (frozenset({"deeplearning_contract"}), CDK | {"packaging", "yaml"}),
    "contract/deeplearning_contract": (frozenset(), frozenset()),
    "userdata/deeplearning_node": (frozenset({"deeplearning_contract"}), AWS),
    "userdata/deeplearning_agent": (frozenset({"deeplearning_contract", "deeplearning_node"}), AWS),
    "userdata/deeplearning_member": (
        frozenset({"deeplearning_agent", "deeplearning_contract", "deeplearning_jobs", "deeplearning_node"}),
        frozenset(),
    ),
    "userdata/deeplearning_jobs": (frozenset({"deeplearning_contract", "deeplearning_node"}), frozenset()),
    "userdata/deeplearning_provision": (frozenset({"deeplearning_contract", "deeplearning_node"}), AWS),
    "userdata/deeplearning_command": (
        frozenset({"deeplearning_contract", "deeplearning_jobs", "deeplearning_node", "deeplearning_provision"}),
        AWS,
    ),
    "userdata/fetch_agent.py": (frozenset(), frozenset()),
    "lambda/capacity_adjuster": (frozenset({"deeplearning_contract"}), AWS),
    "lambda/image_pin": (frozenset({"deeplearning_contract"}), AWS),
    "view/deeplearning_view": (frozenset({"deeplearning_contract"}), AWS),
    "rehearsal/cdk_rehearsal": (frozenset(), None),
    "rehearsal/deeplearning_rehearsal": (
        frozenset({"cdk_rehearsal", "deeplearning_contract", "deeplearning_view"}),
        None,
    ),
    "cli/deeplearning_cli": (
        frozenset({"cdk_rehearsal", "deeplearning_contract", "deeplearning_rehearsal", "deeplearning_view"}),
        None,
    ),
}
"""Room -> the first-party packages that it may import, and the third-party ones; None: any but the CDK's."""
OLD_SYNTAX = (
    "contract/deeplearning_contract",
    "userdata/deeplearning_agent",
    "userdata/deeplearning_command",
    "userdata/deeplearning_jobs",
    "userdata/deeplearning_member",
    "userdata/deeplearning_node",
    "userdata/deeplearning_provision",
    "userdata/fetch_agent.py",
    "lambda/capacity_adjuster",
    "lambda/image_pin",
)
HEAVY = AWS | CDK | frozenset({"jinja2", "moto", "rich", "werkzeug"})
MOST_MODULE_LINES = 400
MOST_MODULES = 16
"""Of a folder, `__init__` aside."""
MOST_FUNCTION_LINES = 45
PARTS_LIST = ("constructs/deeplearning_cdk/training_cluster.py", "__init__")
"""The one function that may be longer: to cut the list of a cluster's parts would only hide their order."""
MOST_BOOTSTRAP_LINES = 70
SKIPPED = frozenset({"build", "cdk.out", "node_modules"})


def find_modules(folder):
    """Return the Python files of a folder, or the one file; nothing that was built."""
    if folder.is_file():
        return [folder]
    return sorted(
        path
        for path in folder.rglob("*.py")
        if not any(part in SKIPPED or part.startswith(".") for part in path.relative_to(folder).parts)
    )


def find_imports(nodes, package):
    """Return the dotted names that nodes import; relative ones are resolved within the package."""
    names = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            prefix = ".".join([*base, *([node.module] if node.module else [])])
            names |= {prefix, *(f"{prefix}.{alias.name}" for alias in node.names)}
    return names


def parse(path):
    return ast.parse(path.read_text(), str(path))


def find_all_imports(path, package):
    """Return the dotted names that a file imports, wherever in it."""
    return find_imports(_find_import_nodes(path.read_text()), package)


@functools.cache
def _find_import_nodes(text):
    """Parse a text once for all checks."""
    return tuple(node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Import | ast.ImportFrom))


def check_arrows(root):
    """Each room imports only what its arrows lead to."""
    findings = []
    for room, (first_party, third_party) in ROOMS.items():
        for path in find_modules(root / room):
            own = Path(room).name
            for name in sorted({n.partition(".")[0] for n in find_all_imports(path, own)}):
                if name in FIRST_PARTY:
                    is_allowed = name in first_party or name == own
                else:
                    is_known = name in sys.stdlib_module_names or name == "__future__"
                    is_allowed = is_known or (name not in CDK if third_party is None else name in third_party)
                if not is_allowed:
                    findings.append(f"{path.relative_to(root)} imports {name}")
    return findings


def check_source_roots(root):
    """Source roots are no packages, and nothing takes the place of the package `constructs`."""
    findings = [f"{name}/__init__.py exists" for name in SOURCE_ROOTS if (root / name / "__init__.py").exists()]
    folders = (path for path in (root / "tests").rglob("constructs") if path.is_dir())
    findings += [f"{path.relative_to(root)} is called constructs" for path in folders]
    for path in find_modules(root):
        text = path.read_text()
        # Most files are not parsed: who imports it writes both words.
        names = find_all_imports(path, "") if "constructs" in text and "deeplearning_cdk" in text else ()
        if any(name.startswith("constructs.deeplearning_cdk") for name in names):
            findings.append(f"{path.relative_to(root)} imports constructs.deeplearning_cdk")
    return findings


def check_lazy_command(root):
    """Check that the command imports only light modules when it starts, directly or not."""
    modules = {}
    for source in ("cli", "contract", "rehearsal", "userdata", "view"):
        for path in find_modules(root / source):
            name = ".".join(path.relative_to(root / source).with_suffix("").parts).removesuffix(".__init__")
            modules[name] = path
    findings, reached, waiting = [], set(), sorted(name for name in modules if name.startswith("deeplearning_cli"))
    while waiting:
        name = waiting.pop()
        if name in reached:
            continue
        reached.add(name)
        package = name if modules[name].name == "__init__.py" else name.rpartition(".")[0]
        for found in find_imports(_run_at_import(parse(modules[name]).body), package):
            if found.partition(".")[0] in HEAVY:
                findings.append(f"{name} imports {found.partition('.')[0]} when it starts")
            parts = found.split(".")
            waiting += [p for p in (".".join(parts[:end]) for end in range(1, len(parts) + 1)) if p in modules]
    return sorted(set(findings))


def _run_at_import(statements):
    """Yield what runs when a module is imported: no bodies of functions, nothing that only type checkers see."""
    for node in statements:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            yield from _run_at_import(node.orelse)
            continue
        yield node
        yield from _run_at_import(ast.iter_child_nodes(node))


def check_agent(root):
    """The agent, the member and the spine run no shell, and wait in one place."""
    findings = []
    rooms = ("userdata/deeplearning_agent", "userdata/deeplearning_member", "userdata/deeplearning_node")
    for path in (path for room in rooms for path in find_modules(root / room)):
        for node in ast.walk(parse(path)):
            if isinstance(node, ast.keyword) and node.arg == "shell":
                findings.append(f"{path.relative_to(root)}:{node.value.lineno} passes shell=")
            calls = isinstance(node, ast.Attribute) and node.attr in ("system", "popen") and _names(node.value, "os")
            sleeps = isinstance(node, ast.Attribute) and node.attr == "sleep" and _names(node.value, "time")
            sleeps |= isinstance(node, ast.ImportFrom) and node.module == "time"
            if calls:
                findings.append(f"{path.relative_to(root)}:{node.lineno} calls os.{node.attr}")
            if sleeps and path.name != "deadline.py":
                findings.append(f"{path.relative_to(root)}:{node.lineno} sleeps")
    return findings


def _names(node, name):
    return isinstance(node, ast.Name) and node.id == name


def check_sizes(root):
    """Modules, functions and the bootstrap stay small enough to be read."""
    findings = []
    for room in ("app.py", "stacks", "docs", *SOURCE_ROOTS):
        for path in find_modules(root / room):
            where, text = path.relative_to(root), path.read_text()
            if len(text.splitlines()) > MOST_MODULE_LINES:
                findings.append(f"{where} has {len(text.splitlines())} lines")
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    lines = _count_statement_lines(node)
                    if lines > MOST_FUNCTION_LINES and (str(where), node.name) != PARTS_LIST:
                        findings.append(f"{where}:{node.lineno} {node.name} has {lines} lines")
    for bootstrap in (root / "userdata").glob("*bootstrap.sh"):
        lines = len(bootstrap.read_text().splitlines())
        if lines >= MOST_BOOTSTRAP_LINES:
            findings.append(f"{bootstrap.relative_to(root)} has {lines} lines")
    return findings


def _count_statement_lines(node):
    """Count the lines of what a function does; its arguments and its docstring may take what they need."""
    statements = node.body[1:] if ast.get_docstring(node) else node.body
    return node.end_lineno - statements[0].lineno + 1 if statements else 0


def check_old_syntax(root):
    """Check that programs of nodes and of the Lambda parse as Python 3.10."""
    findings = []
    for room in OLD_SYNTAX:
        for path in find_modules(root / room):
            try:
                ast.parse(path.read_text(), feature_version=(3, 10))
            except SyntaxError as error:  # noqa: PERF203 - each finding counts
                findings.append(f"{path.relative_to(root)}:{error.lineno} is newer than Python 3.10: {error.msg}")
    return findings


def check_public_names(root):
    """The library's front door holds a sorted `__all__` of what it imports, and nothing else."""
    path = root / "constructs/deeplearning_cdk/__init__.py"
    if not path.exists():
        return []
    imported, public, other = [], [], []
    for node in parse(path).body:
        if isinstance(node, ast.ImportFrom):
            imported += [alias.asname or alias.name for alias in node.names]
        elif isinstance(node, ast.Assign) and _names(node.targets[0], "__all__"):
            public = ast.literal_eval(node.value)
        elif not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
            other.append(f"line {node.lineno} is neither an import nor __all__")
    findings = [] if public == sorted(public) else ["__all__ is not sorted"]
    findings += [f"{name} is not in both" for name in sorted(set(public) ^ set(imported))]
    return [f"{path.relative_to(root)}: {finding}" for finding in [*findings, *other]]


def check_circles(root):
    """No module imports itself by way of others, also not inside a function or for type checkers alone."""
    modules = {}
    for source in SOURCE_ROOTS:
        for path in find_modules(root / source):
            modules[".".join(path.relative_to(root / source).with_suffix("").parts).removesuffix(".__init__")] = path
    imports = {}
    for name, path in modules.items():
        found = find_all_imports(path, name if path.name == "__init__.py" else name.rpartition(".")[0])
        # A package that holds the module is imported by everything in it.
        imports[name] = {n for n in found & modules.keys() if n != name and not name.startswith(f"{n}.")}
    try:
        graphlib.TopologicalSorter(imports).prepare()
    except graphlib.CycleError as error:
        return [f"circle: {' <- '.join(error.args[1])}"]
    return []


def check_crowding(root):
    """A folder of code has no more modules than a reader can keep apart."""
    counts = Counter(path.parent for room in SOURCE_ROOTS for path in find_modules(root / room))
    counts.subtract(path.parent for room in SOURCE_ROOTS for path in (root / room).rglob("__init__.py"))
    return [f"{folder.relative_to(root)} has {n} modules" for folder, n in counts.items() if n > MOST_MODULES]


CHECKS = (
    check_arrows,
    check_circles,
    check_crowding,
    check_source_roots,
    check_lazy_command,
    check_agent,
    check_sizes,
    check_old_syntax,
    check_public_names,
)

"""The house stands: imports go down only and in no circle, and each dependency has one door."""

import ast
import functools
import tomllib
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import onnx
import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = {"graphfix": ROOT / "graphfix", "graphfix.passes": ROOT / "passes"}

# From the top floor down; each room, or file beside the rooms, imports only what stands below it.
FLOORS = (
    "cli",
    "graphfix",
    "model_zoo",
    "testing",
    "integrations",
    "shipping",
    "reducing",
    "job",
    "show",
    "benchmark",
    "float16_search",
    "engine",
    "passes",
    "adapters",
    "rules",
    "probing",
    "proof",
    "core",
    "cache_axes",
    "feeds",
    "lengths",
    "shipped",
    "runtime",
    "providers",
    "editing",
    "facts",
    "files",
    "ops",
    "graph",
    "spec",
    "json_types",
    "wording",
    "paths",
    "errors",
    "version",
)
# Who may import what is not ours; onnx, onnx-ir and numpy are what the house is built of.
DOORS = {
    "click": {"cli"},
    "dask": {"model_zoo"},
    "distributed": {"model_zoo"},
    "filelock": {"files", "runtime"},
    "google": {"files"},
    "jinja2": {"show"},
    "olive": {"integrations"},
    "onnx_graphsurgeon": {"adapters"},
    "onnx_shape_inference": {"facts"},
    "onnxruntime": {"runtime", "shipped"},
    "onnxscript": {"adapters"},
    "psutil": {"runtime"},
    "rich": {"cli"},
    "sympy": {"facts", "lengths"},
}


def _modules() -> dict[str, Path]:
    found = {}
    for package, folder in FOLDERS.items():
        for path in folder.rglob("*.py"):
            parts = path.relative_to(folder).with_suffix("").parts
            found[".".join((package, *parts)).removesuffix(".__init__")] = path
    return found


MODULES = _modules()


def _room(module: str) -> str:
    _, _, inside = module.partition(".")
    return inside.split(".")[0] or "graphfix"


@functools.cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _names(module: str, path: Path) -> set[str]:
    """All that a file imports, at any place, for types only too; as written in full."""
    found: set[str] = set()
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = module if path.name == "__init__.py" else module.rpartition(".")[0]
            source = ".".join(x for x in (above if node.level else "", node.module) if x)
            found |= {f"{source}.{alias.name}" for alias in node.names}
    return found


def _files(module: str, path: Path) -> set[str]:
    """The files of ours that a file imports."""
    found = set()
    for name in _names(module, path):
        if name in MODULES:
            found.add(name)
        elif name.rpartition(".")[0] in MODULES:
            found.add(name.rpartition(".")[0])
    return found - {module}


def test_every_folder_of_modules_is_in_the_wheel() -> None:
    config = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    folders = {
        ".".join((package, *init.parent.relative_to(folder).parts))
        for package, folder in {**FOLDERS, "graphfix.models": ROOT / "models"}.items()
        for init in folder.rglob("__init__.py")
    }
    assert config["tool"]["setuptools"]["packages"] == sorted(folders)


def test_every_room_has_a_floor() -> None:
    assert {_room(module) for module in MODULES} <= {*FLOORS, "__main__"}


def test_an_import_goes_down_only() -> None:
    up = {}
    for module, path in MODULES.items():
        here = _room(module)
        below = FLOORS[FLOORS.index(here) + 1 :] if here in FLOORS else FLOORS
        up[module] = {x for x in _files(module, path) if _room(x) not in (here, *below)}
    assert not {module: found for module, found in up.items() if found}


def test_no_two_files_import_each_other() -> None:
    graph = {module: _files(module, path) for module, path in MODULES.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"a circle: {' -> '.join(error.args[1])}")


def test_each_dependency_has_its_door() -> None:
    wrong = set()
    for module, path in MODULES.items():
        taken = {name.split(".")[0] for name in _names(module, path)} & DOORS.keys()
        wrong |= {(module, name) for name in taken if _room(module) not in DOORS[name]}
    assert not wrong, f"each is for another room: {DOORS}"


def test_no_family_of_passes_imports_a_helper_of_another() -> None:
    wrong = {}
    for module, path in MODULES.items():
        if not module.startswith("graphfix.passes."):
            continue
        family = module.split(".")[2]
        others = {x for x in _files(module, path) if x.startswith("graphfix.passes.")}
        wrong[module] = {x for x in others if x.split(".")[2] not in (family, "common")}
    assert not {module: found for module, found in wrong.items() if found}


# What an operator is stands in graphfix/ops. Elsewhere a table has names of operators only where it
# leads from an operator to the function for it, or names what a pass makes or anchors on.
DISPATCH = {
    "graphfix.facts.intervals": {"_RULES"},
    "graphfix.facts.symbolic.integer_contents": {"EVALUATORS"},
    "graphfix.facts.symbolic.overrides": {"_DTYPE_RULES", "_SHAPE_RULES", "_READ_THEIR_INPUTS"},
    "graphfix.facts.symbolic.quotients": {"_EVALUATORS"},
    "graphfix.feeds.laws": {"BINARY"},
    "graphfix.lengths.rules": {"_NAMESAKES"},
    "graphfix.lengths.rules.result_tail": {"_COMBINATIONS"},
    "graphfix.shipping.dim_expression": {"_OPERATIONS"},  # functions of sizes, not operators
    "graphfix.passes.common.fold_view": {"_SIZE_LAWS"},
    "graphfix.passes.common.uniform": {"_NEUTRAL_NUMBER"},
    "graphfix.passes.defects._older_meaning": {"_REREAD"},
    "graphfix.passes.defects.older_operators": {"_RECIPES"},
    "graphfix.passes.sizes.cache.cache_effects": {"_EDITS_BY_OPERATOR"},
    "graphfix.passes.sizes.fold_rules.chains": {"_OPPOSITE", "_SIMPLIFIERS"},
    "graphfix.passes.sizes.fold_rules.integer_math": {"INTEGER_OPERATORS"},
    "graphfix.passes.sizes.fold_rules.size_nodes": {"_OPERATORS_OF_RECIPE"},
}
OPERATORS = {schema.name for schema in onnx.defs.get_all_schemas_with_history()}


def _lists_of_operators(path: Path) -> set[str]:
    """The module-level names whose value is written with several names of operators.

    A set of :mod:`graphfix.ops` that adds or leaves out some by ``ops.named`` is none.
    """
    lists = set()
    for node in _tree(path).body:
        if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
            continue
        named = {
            word
            for call in ast.walk(node.value)
            if isinstance(call, ast.Call) and ast.unparse(call.func).endswith("named")
            for word in ast.walk(call)
        }
        words = [x for x in ast.walk(node.value) if isinstance(x, ast.Constant) and x not in named]
        if sum(x.value in OPERATORS for x in words) > 1:
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            lists.add(ast.unparse(target))
    return lists


def test_what_an_operator_is_stands_in_one_table() -> None:
    lists = {
        module: _lists_of_operators(path) - DISPATCH.get(module, {"RULES"})
        for module, path in MODULES.items()
        if not module.startswith("graphfix.ops.")
    }
    assert not {module: found for module, found in lists.items() if found}
    stale = {
        module for module, names in DISPATCH.items() if names - _lists_of_operators(MODULES[module])
    }
    assert not stale, "these lists are gone"


# Functions of more than 15 decisions, each with what would be lost if it were split.
MOST_DECISIONS, MOST_EXCEPTIONS = 15, 40
MANY_DECISIONS = {
    "graphfix/benchmark/bench.py:bench": "places, setups and models: one table, filled in turn",
    "graphfix/cli/bench.py:bench": "a command with two forms, and a line for each form of output",
    "graphfix/cli/check.py:check": "a form of output for each of its options, as click calls it",
    "graphfix/cli/run.py:run": "its options are read and told apart where click hands them over",
    "graphfix/editing/join.py:join_models": "its steps use up both models in one order",
    "graphfix/engine/pipeline.py:passes_of_profiles": "two sets, a comprehension for each kind",
    "graphfix/facts/forced_sizes.py:_solve": "what one round dictates is what the next one reads",
    "graphfix/facts/symbolic/layout.py:_cut_length": "a list of guards before the law",
    "graphfix/facts/symbolic/windows.py:infer_pool": "a law for each way to count windows",
    "graphfix/feeds/case_search.py:search_cases": "each try depends on how the ones before it went",
    "graphfix/feeds/dim_groups.py:_tie_by_graph": "one law on two dims, each way round",
    "graphfix/feeds/states.py:_pair_by_growth": "three tables of one pairing, read together",
    "graphfix/job/merging.py:merge": "read, check, merge, prove and write, each if it is asked for",
    "graphfix/job/one_file.py:_repair_and_write": "proof, count and write in one order",
    "graphfix/lengths/analysis.py:_infer_outputs": "a list of guards in the order that counts",
    "graphfix/lengths/length_nodes.py:recompute_on_lengths": "a recursion, a line for each base",
    "graphfix/lengths/mask_counts.py:_track_count": "a line for each kind of node",
    "graphfix/lengths/rules/convolve.py:_conv_result": "one walk along the axes, with refusals",
    "graphfix/lengths/rules/elementwise.py:_infer_capped": "a list of guards, then two lines",
    "graphfix/lengths/rules/result_tail.py:infer_tail": "from the best tail to the worst, in order",
    "graphfix/model_zoo/stages.py:time_models": "one record from one measurement, with its gaps",
    "graphfix/proof/compare.py:_compare_floats": "six reasons, from figures that are kept",
    "graphfix/providers/memory.py:_inner_sizes": "one formula; each of its sizes may be unknown",
    "graphfix/providers/memory.py:_peak_of": "one walk that keeps what is live",
    "graphfix/shipped/stand_in_feeds.py:stand_in_feeds": "a line for each kind of an input",
    "graphfix/shipping/model_facts.py:_size_containers": "refusals first, each in its own words",
    "graphfix/shipping/stream_build.py:passes_at": "three kinds of passes, in one order",
    "graphfix/shipping/stream_plan.py:_dim_of_new_entries": "what shows the dim, the surest first",
    "graphfix/shipping/stream_plan.py:_split_states": "one condition, as dims may be unknown",
    "graphfix/shipping/stream_plan.py:plan_stream": "a plan has twelve parts that follow in turn",
    "graphfix/shipping/stream_steps.py:_make_array": "a line for each role of an input",
    "graphfix/shipping/stream_steps.py:iter_sequences": "the sequences, each where it applies",
    "passes/common/parameters.py:parameter_of": "a list of guards around one evaluation",
    "passes/defects/pad_slice.py:match": "a list of guards, each with its reason",
    "passes/defects/plain_attention.py:_build_grouped": "an operator written out, an input a line",
    "passes/defects/plain_attention.py:match": "a list of guards, each with its reason",
    "passes/interface/_scores.py:find_scores": "refusals first, each in its own words",
    "passes/interface/rename.py:_rename_dim": "one name, at a place or wherever it is declared",
    "passes/interface/select_output.py:repair": "what goes is listed before the graph changes",
}
_DECISIONS = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.IfExp, ast.ExceptHandler)
_DECISIONS += (ast.comprehension, ast.Assert, ast.match_case)


def _count_decisions(function: ast.AST) -> int:
    """What a reader follows in a function: branches, loops, and each part of a condition."""
    count = 1
    for node in ast.walk(function):
        count += isinstance(node, _DECISIONS)
        if isinstance(node, ast.comprehension):
            count += len(node.ifs)
        elif isinstance(node, ast.BoolOp):
            count += len(node.values) - 1
    return count


def test_a_function_of_many_decisions_has_its_reason() -> None:
    many = {
        f"{path.relative_to(ROOT).as_posix()}:{node.name}"
        for path in MODULES.values()
        for node in ast.walk(_tree(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and _count_decisions(node) > MOST_DECISIONS
    }
    assert not many - MANY_DECISIONS.keys(), "split these, or say why not"
    assert not MANY_DECISIONS.keys() - many, "these have fewer now"
    assert len(MANY_DECISIONS) <= MOST_EXCEPTIONS


@pytest.mark.parametrize(
    ("body", "count"),
    [
        ("return a", 1),
        ("return a or b or c", 3),
        ("return [x for x in a if x if x > 1]", 4),
        ("if a: return 1\n elif b and c: return 2", 4),
        ("for x in a:\n  while x: x = 1 if b else 2\n  assert x", 5),
        ("try: a()\n except E: pass", 2),
        ("def g():\n  return 1 if a else 2\n return g", 2),
    ],
)
def test_decisions_are_what_a_reader_follows(body: str, count: int) -> None:
    assert _count_decisions(ast.parse(f"def f():\n {body}").body[0]) == count

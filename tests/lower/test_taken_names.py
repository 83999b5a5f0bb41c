"""Names that a generated module has for itself are refused for ops."""

import ast
from pathlib import Path

import chunkdsl.runtime
from chunkdsl.lower.names import OP_NAMES_TAKEN


def test_every_attribute_of_an_instance_is_refused_as_the_name_of_an_op():
    path = Path(chunkdsl.runtime.__file__).parent / "instance.py"
    tree = ast.parse(path.read_text(encoding="utf-8"))
    cls = next(n for n in tree.body if isinstance(n, ast.ClassDef))
    names = {f.name for f in cls.body if isinstance(f, ast.FunctionDef) and not f.name.startswith("_")}
    for node in ast.walk(cls):
        for target in node.targets if isinstance(node, ast.Assign) else []:
            for t in target.elts if isinstance(target, ast.Tuple) else [target]:
                if isinstance(t, ast.Attribute) and isinstance(t.value, ast.Name) and t.value.id == "self":
                    names.add(t.attr)
    targets = [n.targets[0] for n in cls.body if isinstance(n, ast.Assign)]
    names |= {e.id for t in targets for e in (t.elts if isinstance(t, ast.Tuple) else [t])}
    assert len(names) > 10
    assert {n for n in names if not n.startswith("_")} <= set(OP_NAMES_TAKEN)  # those with one are never taken

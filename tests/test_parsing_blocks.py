"""A module's code, block by block: what is compiled once for all modules that hold it does what the whole does."""

import types

import pytest

from chunkdsl.parsing import compile_blocks

HEAD = '"""What it is."""\n\nfrom __future__ import annotations\n\nimport math\n\n\n'
WHOLE = {
    "blocks": f"{HEAD}def f(x: Unknown):\n    return math.floor(x)\n\n\nclass C:\n    def g(self):\n        return 2\n",
    "a text with empty lines": f'{HEAD}TEXT = """one\n\n\ntwo"""\n\n\ndef f():\n    return TEXT\n',
    "more empty lines": f"{HEAD}\n\ndef f():\n    return 1\n",
    "a body with empty lines": f"{HEAD}def f():\n    x = 1\n\n\n    return x\n",
    "no future": "def f(x: int):\n    return x\n\n\ndef g():\n    return f\n",
}


def run(codes):
    space: dict[str, object] = {"__name__": "made"}
    for code in codes:
        exec(code, space)
    return space


def told(code):
    """Of every function its name, lines and flags."""
    inner = [c for c in code.co_consts if isinstance(c, types.CodeType)]
    lines = sorted({line for *_, line in code.co_lines() if line})
    return [(code.co_qualname, code.co_filename, code.co_firstlineno, lines, code.co_flags), *map(told, inner)]


@pytest.mark.parametrize("what", WHOLE)
def test_blocks_are_the_whole(what):
    text, whole = WHOLE[what], compile(WHOLE[what], "m.py", "exec", dont_inherit=True)
    for _ in range(2):  # compiled, and found again
        codes = compile_blocks(text, "m.py")
        assert [told(c) for code in codes for c in code.co_consts if isinstance(c, types.CodeType)] == told(whole)[1:]
        made, wanted = run(codes), run([whole])
        assert made.keys() == wanted.keys() and made.get("__doc__") == wanted.get("__doc__")
    assert len(codes) == {"blocks": 3, "no future": 2}.get(what, 1)


def test_the_same_block_keeps_no_place_of_another_module():
    block = "\n\n\ndef f():\n    return 1\n"
    heads = {"short.py": "a = 1", "long.py": "a = (\n1)"}
    codes = [run(compile_blocks(f"{head}{block}", file))["f"].__code__ for file, head in heads.items()]
    assert [(c.co_filename, c.co_firstlineno) for c in codes] == [("short.py", 4), ("long.py", 5)]


def test_what_is_no_python_is_refused():
    for text in (f"{HEAD}def f(:\n    return 1\n", f"A = 1\n\n\n{HEAD}"):  # a future statement comes first
        with pytest.raises(SyntaxError):
            compile_blocks(text, "m.py")

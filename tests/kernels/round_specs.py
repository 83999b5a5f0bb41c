"""Specs that call the kernels of `kernel_zoo_rounds`, at sizes beyond those that are traced."""

HEAD = """
mesh tp[2]
dim M = 1..16
dim T = 1..544
tensor x : bf16[M @ tp, 544]
tensor c : bf16[T @ tp, 16]
tensor q : bf16[16, 16]
"""
ITEM = """
kernel k_{name}({tensors}) -> Y = "tests/kernels/kernel_zoo_rounds.py" : {name} {{
{bound}    grid = {grid}
    const B = 16, ODD = {odd}
}}
op {name}({params}) -> y {{ y = k_{name}({args}) with {{ chunk = 24 along {rows}, via = copy_engine }} }}
"""
ROWS = "    X = x_ptr : [m, n]\n    Y = y_ptr : [m, 16]\n    arg n = n\n"
TURNS = "    X = x_ptr : [t, 16]\n    Q = q_ptr : [s, 16]\n    Y = y_ptr : [s, 16]\n    arg T = t\n"
ARRIVING = dict(tensors="X, Q", bound=TURNS, grid="s", params="c, q", args="all_gather(c), q", rows="T")
OTHERS = {
    "peeks_among_columns": ARRIVING, "goes_down": ARRIVING, "begins_between": ARRIVING,
    "peeks_by_a_block_pointer": dict(bound=ROWS + "    arg m = m\n"),
    "stores_elsewhere": dict(bound=ROWS.replace("[m, 16]", "[m, n]")),
    "knows_its_stride": dict(bound=ROWS + "    arg stride = X.stride(0)\n"),
}  # fmt: skip


def rounds_spec(names, odd: int) -> str:
    """`odd`: 512 times a program, and one of its rounds."""
    plain = dict(tensors="X", bound=ROWS, grid="m", params="x", args="all_gather(x)", rows="M", odd=odd)
    return HEAD + "".join(ITEM.format(**{**plain, **OTHERS.get(name, {})}, name=name) for name in names)

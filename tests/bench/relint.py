"""How long a keystroke in a large file takes to become findings: `python tests/bench/relint.py [ITEMS]`.

Drives `chunkdsl lsp` over stdio as an editor does, with a file of 1,000 items of which each has names of its own, and
with one of whose items half are ops that all use one mesh, dim, tensor and policy. Prints for each kind of keystroke
the time to the first answer and the processor time that the server took for it, and the same for the last answer, which
is what `chunkdsl check` finds; mostly there is but one. Asserts nothing about time: machines differ. Linux only.
"""

import statistics
import sys
import tempfile
import time
from pathlib import Path

from chunkdsl.editor.relint import lint
from chunkdsl.pipeline import check_source
from chunkdsl.source import Source

REPEATS = 3


def large(items):
    """A spec with so many items: a mesh, and groups of a dim, two tensors, a policy and an op."""
    lines = ["mesh tp[8] over nvlink", "dim M = 1..16384", "dim K = 4096"]
    for i in range((items - 3) // 5):
        lines += [
            f"dim N{i} = {1024 + 256 * (i % 8)}",
            f"tensor x{i} : bf16[M @ tp, K]  # activations {i}",
            f"tensor w{i} : bf16[N{i} @ tp, K]",
            f"policy gather{i} {{ chunk = 512 along M, route = swizzle, via = copy_engine }}",
            f"op layer{i}(x{i}, w{i}) -> y {{\n    y = gelu(all_gather(x{i}) @ w{i}.T)  with gather{i}\n}}",
        ]
    return "\n".join(lines) + "\n"


def alike(items):
    """One with as many, where each tensor but one has an op, and all ops share a dim, a tensor and a policy."""
    lines = ["mesh tp[8] over nvlink", "dim M = 1..16384", "dim K = 4096", "dim N = 1024", "tensor w : bf16[N @ tp, K]",
             "policy gather { chunk = 512 along M, route = swizzle, via = copy_engine }"]
    for i in range((items - 6) // 2):
        lines += [
            f"tensor x{i} : bf16[M @ tp, K]",
            f"op layer{i}(x{i}, w) -> y {{\n    y = gelu(all_gather(x{i}) @ w.T)  with gather\n}}",
        ]
    return "\n".join(lines) + "\n"


def keystrokes(items):
    """(kind, text, part of it, what it becomes)"""
    own, shared, middle = large(items), alike(items), (items - 3) // 10
    yield from ((kind, own, old, new) for kind, old, new in (
        ("op: a bracket too many", f"op layer{middle}(", f"op layer{middle}(("),
        ("op: a misspelt function", f"gelu(all_gather(x{middle})", f"gelu(al_gather(x{middle})"),
        ("tensor of one op: renamed", f"tensor w{middle} ", f"tensor ww{middle} "),
        ("dim of one op: a digit", f"dim N{middle} = 1", f"dim N{middle} = 11"),
        ("comment at a tensor", f"# activations {middle}", f"# activations, {middle}"),
        ("comment at the head", "mesh tp", "# a\nmesh tp"),
        ("comment behind the mesh", "over nvlink", "over nvlink # a"),
        ("mesh: size", "tp[8]", "tp[4]"),
        ("mesh: name", "mesh tp[", "mesh t["),
        ("mesh: keyword", "mesh tp", "msh tp"),
        ("dim of all tensors: a digit", "dim K = 4096", "dim K = 409"),
        ("dim of all tensors: name", "dim K =", "dim KK ="),
    ))  # fmt: skip
    yield from ((f"{kind}, 497 ops" if items == 1000 else kind, shared, old, new) for kind, old, new in (
        ("op: a misspelt function", "layer9(x9, w) -> y {\n    y = gelu(", "layer9(x9, w) -> y {\n    y = glu("),
        ("mesh: size", "tp[8]", "tp[4]"),
        ("tensor of all ops: dtype", "tensor w : bf16", "tensor w : f16"),
        ("tensor of all ops: name", "tensor w :", "tensor ww :"),
        ("policy of all ops: a value", "chunk = 512", "chunk = 51"),
        ("policy of all ops: a key", "{ chunk =", "{ chnk ="),
    ))  # fmt: skip


def measure(editor, name, text, changed):
    """Of a text that was opened a while ago and has changed: for each answer, until the last, seconds to it, seconds of
    the processor up to it, findings."""
    editor.open(name, text)
    editor.answers(name, 1)
    rest(editor)
    began, before = editor.clock()
    editor.change(name, changed)
    found = []
    for _ in range(1 if lint(name, changed, lint(name, text)).complete else 2):
        (((at, spent), count),) = editor.answers(name, 1)
        found.append((at - began, spent - before, count))
    editor.notify("textDocument/didClose", {"textDocument": {"uri": editor.uri(name)}})
    return found


def rest(editor):
    """Wait until the server has nothing to do."""
    spent = -1.0
    while spent != (spent := processor_time(editor)):
        time.sleep(0.6)


def processor_time(editor):
    """Seconds that all threads of the server have run."""
    threads = Path(f"/proc/{editor.process.pid}/task").iterdir()
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9


def main(items):
    sys.path.insert(0, str(Path(__file__).parent.parent / "lsp"))
    from editor_client import Editor

    for text in (large(items), alike(items)):
        began = time.perf_counter()
        check_source(Source("x.chunk", text))
        print(f"check of {items} items, {text.count('op ')} ops: {(time.perf_counter() - began) * 1000:.0f} ms")
    print("| keystroke | first answer (largest) | of the processor (largest) | last answer | of the processor |"
          " findings |")
    print("| --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as folder:
        editor = Editor(folder)
        editor.clock = lambda: (time.perf_counter(), processor_time(editor))
        for kind, text, old, new in keystrokes(items):
            assert text.count(old), old
            changed = text.replace(old, new, 1)
            runs = [measure(editor, "x.chunk", text, changed) for _ in range(REPEATS)]
            assert runs[0][-1][2] == len(check_source(Source("x.chunk", changed)).report.diagnostics)
            shown = [", then ".join(str(count) for _, _, count in runs[0])]
            for answer, largest in ((0, True), (-1, False)):
                for figure in (0, 1):
                    times = sorted(run[answer][figure] * 1000 for run in runs)
                    more = f" ({times[-1]:.0f})" if largest else ""
                    shown.insert(-1, f"{statistics.median(times):.0f} ms{more}")
            print(f"| {kind} | {' | '.join(shown)} |", flush=True)
        editor.close()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)

"""How long a keystroke in a large file takes to become findings: `python tests/bench/relint.py [ITEMS]`.

Edits one op of a file of 1,000 items and prints the time of each stage, and of the document that the language server
keeps. Asserts nothing: machines differ.
"""

import sys
import time


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


def seconds(work):
    started = time.process_time()
    result = work()
    return time.process_time() - started, result


def main(items):
    from chunkdsl.editor.lint import lint, lint_whole

    text = large(items)
    spent, before = seconds(lambda: lint_whole("x.chunk", text))
    print(f"{items} items, {len(text.splitlines())} lines; checked whole: {spent * 1000:.0f} ms of processor time")
    last = (items - 3) // 5 - 1
    edits = {
        "a digit of a dim": (f"dim N{last // 2} = 1", f"dim N{last // 2} = 11"),
        "a bracket too many": (f"op layer{last // 2}(", f"op layer{last // 2}(("),
        "a misspelt function": (f"(x{last // 2}) @", f"(xx{last // 2}) @"),
        "a renamed tensor": (f"tensor w{last} ", f"tensor ww{last} "),
        "a comment": (f"# activations {last // 3}", f"# activations, {last // 3}"),
    }
    for name, (old, new) in edits.items():
        changed = text.replace(old, new, 1)
        assert changed != text
        spent, after = seconds(lambda changed=changed: lint("x.chunk", changed, before))
        shown, report = seconds(after.report)
        codes = ", ".join(d.code for d in report.diagnostics) or "nothing"
        print(f"{name}: {(spent + shown) * 1000:.0f} ms, {'whole' if after.whole else 'a part'}, finds {codes}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)

"""Rules about `kernel` items and users' kernels: CD235 to CD238 what the item says, CD355 and CD650 what the
kernel does."""

from __future__ import annotations

from chunkdsl.check.registry import Finding, rule
from chunkdsl.diagnostics import Label
from chunkdsl.source import Span


@rule("CD235", "kernel-not-readable")
def kernel_not_readable(path: str, line: int | None, reason: str, span: Span | None, mend: str) -> Finding:
    """A `kernel` item names a Python file, by its path from the spec, and a `@triton.jit` function in it.

    Of the file only the function, the helpers that it calls and the constants that these name are used. They may
    import Triton, torch and math.

    Fails:
        kernel norm(X) -> Y = "specs/kernels/matmul.py" : norm_kernel {
            X = x_ptr : [m, n]
            Y = y_ptr : [m, n]
            grid = m
        }

    Mended:
        kernel gemm(A, B) -> C = "specs/kernels/matmul.py" : matmul_kernel {
            A = a_ptr : [m, k]
            B = b_ptr : [k, n]
            C = c_ptr : [m, n]
            arg M = m
            arg N = n
            arg K = k
            arg stride_am = A.stride(0)
            arg stride_ak = A.stride(1)
            arg stride_bk = B.stride(0)
            arg stride_bn = B.stride(1)
            arg stride_cm = C.stride(0)
            arg stride_cn = C.stride(1)
            grid = cdiv(m, BM) * cdiv(n, BN)
            const BM = 128, BN = 128, BK = 64, GROUP = 8
        }
    """
    return Finding(f"{place(path, line)}: {reason}", span, "this kernel", help=mend)


@rule("CD236", "kernel-binding")
def kernel_binding(what: str, span: Span, label: str, hint: str, labels: tuple[Label, ...] = ()) -> Finding:
    """Every parameter of the kernel is bound once: to a tensor, a size, a stride, a number or a constant.

    A parameter that is named like a size of the item (`m`, or `M` where the item says `m`) binds by itself, and one
    with a default keeps it. `tl.constexpr` parameters are bound by `const`, the others by `arg`. `const` also takes
    `num_warps` and `num_stages`. A parameter that is a tensor descriptor made on the host is bound with what it loads
    or stores at once: `A = a_desc[BM, BK] : [m, k]`, powers of two, over numbers and constants.

    Fails:
        kernel gemm(A, B) -> C = "specs/kernels/matmul.py" : matmul_kernel {
            A = a_ptr : [m, k]
            B = b_ptr : [k, n]
            C = c_ptr : [m, n]
            arg stride_am = A.stride(0)
            arg stride_ak = A.stride(1)
            arg stride_bk = B.stride(0)
            arg stride_bn = B.stride(1)
            arg stride_cm = C.stride(0)
            grid = cdiv(m, BM) * cdiv(n, BN)
            const BM = 128, BN = 128, BK = 64, GROUP = 8
        }

    Mended:
        kernel gemm(A, B) -> C = "specs/kernels/matmul.py" : matmul_kernel {
            A = a_ptr : [m, k]
            B = b_ptr : [k, n]
            C = c_ptr : [m, n]
            arg stride_am = A.stride(0)
            arg stride_ak = A.stride(1)
            arg stride_bk = B.stride(0)
            arg stride_bn = B.stride(1)
            arg stride_cm = C.stride(0)
            arg stride_cn = C.stride(1)
            grid = cdiv(m, BM) * cdiv(n, BN)
            const BM = 128, BN = 128, BK = 64, GROUP = 8
        }
    """
    return Finding(what, span, label, labels, hint)


@rule("CD237", "kernel-argument-does-not-fit")
def kernel_argument(what: str, span: Span, label: str, labels: tuple[Label, ...], hint: str) -> Finding:
    """The sizes of a kernel item are its own; a call unifies them with those of the arguments.

    Fails:
        mesh tp[2]
        dim M = 1..4096
        tensor x : bf16[M @ tp, 512]
        tensor w : bf16[256, 512]
        kernel add(A, B) -> C = "specs/kernels/add.py" : add_kernel {
            A = a_ptr : [m, n]
            B = b_ptr : [m, n]
            C = c_ptr : [m, n]
            grid = m
            const BLOCK = 512
        }
        op f(x, w) -> y { y = add(all_gather(x), w) }

    Mended:
        mesh tp[2]
        dim M = 1..4096
        tensor x : bf16[M @ tp, 512]
        tensor w : bf16[M, 512]
        kernel add(A, B) -> C = "specs/kernels/add.py" : add_kernel {
            A = a_ptr : [m, n]
            B = b_ptr : [m, n]
            C = c_ptr : [m, n]
            grid = m
            const BLOCK = 512
        }
        op f(x, w) -> y { y = add(all_gather(x), w) }
    """
    return Finding(what, span, label, labels, hint)


@rule("CD238", "kernel-size-sharded")
def kernel_size_sharded(size: str, why: str, span: Span, labels: tuple[Label, ...], hint: str) -> Finding:
    """A size that is sharded over the ranks must mean something for the result: the result has it and is sharded
    there, or the item says `sum k` and the result is Partial.

    Without `sum`, each rank would compute on its part of the size alone, which is wrong for a softmax.

    Fails:
        mesh tp[2]
        dim M = 1..4096
        tensor a : bf16[M, 512 @ tp]
        tensor w : bf16[512 @ tp, 512]
        kernel gemm(A, B) -> C = "specs/kernels/matmul.py" : matmul_kernel {
            A = a_ptr : [m, k]
            B = b_ptr : [k, n]
            C = c_ptr : [m, n]
            arg stride_am = A.stride(0)
            arg stride_ak = A.stride(1)
            arg stride_bk = B.stride(0)
            arg stride_bn = B.stride(1)
            arg stride_cm = C.stride(0)
            arg stride_cn = C.stride(1)
            grid = cdiv(m, BM) * cdiv(n, BN)
            const BM = 128, BN = 128, BK = 64, GROUP = 8
        }
        op f(a, w) -> y { y = reduce_scatter(gemm(a, w), M) }

    Mended:
        mesh tp[2]
        dim M = 1..4096
        tensor a : bf16[M, 512 @ tp]
        tensor w : bf16[512 @ tp, 512]
        kernel gemm(A, B) -> C = "specs/kernels/matmul.py" : matmul_kernel {
            A = a_ptr : [m, k]
            B = b_ptr : [k, n]
            C = c_ptr : [m, n] sum k
            arg stride_am = A.stride(0)
            arg stride_ak = A.stride(1)
            arg stride_bk = B.stride(0)
            arg stride_bn = B.stride(1)
            arg stride_cm = C.stride(0)
            arg stride_cn = C.stride(1)
            grid = cdiv(m, BM) * cdiv(n, BN)
            const BM = 128, BN = 128, BK = 64, GROUP = 8
        }
        op f(a, w) -> y { y = reduce_scatter(gemm(a, w), M) }
    """
    return Finding(f"`{size}` is sharded, {why}", span, "in this call", labels, hint)


@rule("CD650", "kernel-cannot-be-fused")
def kernel_cannot_be_fused(
    path: str, line: int | None, reason: str, code: str, span: Span | None, mend: str
) -> Finding:  # fmt: skip
    """What a kernel's programs touch is found by running its index arithmetic. A kernel is refused, at its own line,
    where that cannot be told or cannot be made safe.

    Refused: addresses or masks that depend on loaded data, except where the kernel reads what is whole on each rank
    (the group of weights may stand in a table); atomics on declared tensors; stores to an argument; reading a result;
    elements of a result that are stored twice or not at all; accesses outside a declared shape; programs that share
    rows of a result that is sent to other ranks; a tensor descriptor without its block; a `return` that stands
    elsewhere than at the end of an `if` at the top level (that one is rewritten).

    Fails:
        mesh tp[2]
        dim M = 1..4096
        tensor x : bf16[M @ tp, 512]
        kernel copy(A, B) -> C = "specs/kernels/add.py" : add_kernel {
            A = a_ptr : [m, n]
            B = b_ptr : [m, n]
            C = c_ptr : [m, n]
            grid = m
            const BLOCK = 256
        }
        op f(x) -> y { g = all_gather(x) y = copy(g, g) }

    Mended:
        mesh tp[2]
        dim M = 1..4096
        tensor x : bf16[M @ tp, 512]
        kernel copy(A, B) -> C = "specs/kernels/add.py" : add_kernel {
            A = a_ptr : [m, n]
            B = b_ptr : [m, n]
            C = c_ptr : [m, n]
            grid = m
            const BLOCK = 512
        }
        op f(x) -> y { g = all_gather(x) y = copy(g, g) }
    """
    shown = f"{path}:{line} | {code}\n" if line and code else ""
    return Finding(f"{place(path, line)}: {reason}", span, "by this call", help=shown + mend)


@rule("CD355", "chunk-edge-inside-a-tile")
def chunk_edge_inside_a_tile(
    path: str, line: int | None, reason: str, code: str, span: Span | None, mend: str
) -> Finding:  # fmt: skip
    """Rows that a kernel gives away are sent chunk by chunk: a chunk goes when all tiles with rows of it are stored.

    Tiles are counted by blocks of rows. A chunk may end inside of such a block, whose tiles it then waits for, as the
    next chunk does; but a tile that begins in one block and ends in another belongs to none of them: no count would say
    when a chunk is complete. Kernels that take a matrix as one long vector have such tiles. Bound to a name
    first, the result is stored by the kernel, and a launch after it sends it.

    Fails:
        mesh tp[2]
        dim M = 1..4096
        tensor x : bf16[8 @ tp, M, 480]
        kernel add(X) -> Y = "specs/kernels/add.py" : add_flat_kernel {
            X = x_ptr : [e, m, n]
            Y = y_ptr : [m, n] sum e
            arg elements = m * n
            grid = cdiv(m * n, BLOCK)
            const BLOCK = 1024
        }
        op f(x) -> y { y = reduce_scatter(add(x), M) }

    Mended:
        mesh tp[2]
        dim M = 1..4096
        tensor x : bf16[8 @ tp, M, 480]
        kernel add(X) -> Y = "specs/kernels/add.py" : add_flat_kernel {
            X = x_ptr : [e, m, n]
            Y = y_ptr : [m, n] sum e
            arg elements = m * n
            grid = cdiv(m * n, BLOCK)
            const BLOCK = 1024
        }
        op f(x) -> y { s = add(x) y = reduce_scatter(s, M) }
    """
    shown = f"{path}:{line} | {code}\n" if line and code else ""
    return Finding(f"{place(path, line)}: {reason}", span, "by this call", help=shown + mend)


@rule("CD671", "order-of-a-kernels-loop")
def order_of_a_loop(where: str, order: str, span: Span) -> Finding:
    """A kernel whose loop reads gathered rows goes through them in its own order, whichever shard arrives first.

    `order` is the order of tiles, and here every program reads all rows. Begun at another row the loop would add up in
    another order, so its bits would not be those of the untouched kernel in `exact`, and of some loops (pointers that
    go along, a maximum that begins below a causal mask) the result would be wrong. What it costs: rank r waits for
    shard 0 first, which comes to it as the W - r th. Waits stay chunk by chunk, so what lies in order overlaps.

    Fails:
        mesh tp[2]
        dim M = 16..4096
        tensor a : bf16[M, 512]
        tensor w : bf16[512 @ tp, 512]
        kernel gemm(A, B) -> C = "specs/kernels/matmul.py" : matmul_kernel {
            A = a_ptr : [m, k]
            B = b_ptr : [k, n]
            C = c_ptr : [m, n]
            arg stride_am = A.stride(0)
            arg stride_ak = A.stride(1)
            arg stride_bk = B.stride(0)
            arg stride_bn = B.stride(1)
            arg stride_cm = C.stride(0)
            arg stride_cn = C.stride(1)
            grid = cdiv(m, BM) * cdiv(n, BN)
            const BM = 128, BN = 128, BK = 64, GROUP = 8
        }
        op f(a, w) -> y { y = gemm(a, all_gather(w)) with { chunk = 64 KiB, order = arrival } }

    Mended:
        mesh tp[2]
        dim M = 16..4096
        tensor a : bf16[M, 512]
        tensor w : bf16[512 @ tp, 512]
        kernel gemm(A, B) -> C = "specs/kernels/matmul.py" : matmul_kernel {
            A = a_ptr : [m, k]
            B = b_ptr : [k, n]
            C = c_ptr : [m, n]
            arg stride_am = A.stride(0)
            arg stride_ak = A.stride(1)
            arg stride_bk = B.stride(0)
            arg stride_bn = B.stride(1)
            arg stride_cm = C.stride(0)
            arg stride_cn = C.stride(1)
            grid = cdiv(m, BM) * cdiv(n, BN)
            const BM = 128, BN = 128, BK = 64, GROUP = 8
        }
        op f(a, w) -> y { y = gemm(a, all_gather(w)) with { chunk = 64 KiB } }
    """
    mend = "leave `order` out: the loop waits for its rows chunk by chunk"
    message = f"the loop at {where} goes through gathered rows in its own order, not by {order}"
    return Finding(message, span, "the order of tiles", help=mend)


def place(path: str, line: int | None) -> str:
    return f"{path}:{line}" if line else path

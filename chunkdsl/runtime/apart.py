"""Tensors that an op writes lie apart from those that it reads: where chunks arrive and tiles are stored in an order
of their own, a result in the place of an input would change what is still to be read. Copied into the module.

Only addresses are compared, of calls with `out=` or with tensors that are updated in place; those of calls that come
again are looked up.
"""

from __future__ import annotations

MOST_CALLS = 256  # of an op, whose addresses are kept


def keep_apart(operation, tensors, outs=()):
    """ValueError where a tensor of `outs`, or one that is updated in place, shares memory with another of the call or
    lies in the op's own buffers."""
    key = tuple([(t.data_ptr(), t.dtype, t.shape, t.stride()) for t in (*tensors, *outs)])
    known = operation.__dict__.setdefault("apart", set())
    if key in known:
        return
    named = list(zip(operation.PARAMETERS, tensors, strict=True))
    written = [(f"{n}, which is updated in place,", t) for n, t in named if n in operation.INOUT]
    results = [(f"out for {n}", t) for n, t in zip(operation.RESULTS, outs, strict=False)]
    for i, (name, tensor) in enumerate(results):
        for low, end in getattr(operation, "owned", ()):
            if tensor.numel() and low < tensor.data_ptr() + tensor.nbytes and tensor.data_ptr() < end:
                raise ValueError(f"{operation.NAME}: {name} lies in a buffer of the instance: pass memory of your own")
        refuse_shared(operation, name, tensor, [*named, *results[:i]])
    for name, tensor in written:
        refuse_shared(operation, name, tensor, [(n, t) for n, t in named if not name.startswith(f"{n},")])
    if len(known) >= MOST_CALLS:
        known.clear()
    known.add(key)


def refuse_shared(operation, name, tensor, others):
    for other, read in others:
        if share_memory(tensor, read):
            raise ValueError(
                f"{operation.NAME}: {name} shares memory with {other}, which would be overwritten while it is read: "
                f"pass another tensor"
            )


def share_memory(a, b):
    """Do two tensors have an element in common? Column blocks of one matrix have none; of others it is asked whether
    the stretches from their first element to their last meet."""
    if a.numel() == 0 or b.numel() == 0 or a.device != b.device:
        return False
    ends = [t.data_ptr() + (sum((n - 1) * s for n, s in zip(t.shape, t.stride(), strict=True)) + 1) * t.element_size()
            for t in (a, b)]  # fmt: skip
    if a.data_ptr() >= ends[1] or b.data_ptr() >= ends[0]:
        return False
    if a.dim() == b.dim() == 2 and a.stride() == b.stride() and a.stride(1) == 1 <= a.stride(0) and a.dtype == b.dtype:
        apart = (b.data_ptr() - a.data_ptr()) // a.element_size() % a.stride(0)
        return not (a.shape[1] <= apart and apart + b.shape[1] <= a.stride(0))
    return True

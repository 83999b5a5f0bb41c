"""Texts of a module about layouts of shards (ir/layouts): sizes in the wrapper, rows in a kernel."""

from __future__ import annotations

from chunkdsl.ir.layouts import CONTIGUOUS, Cyclic, Layout


def layout_value(layout: Layout) -> str:
    """What a module's tables hold for an extent that is cut: True, or its layout."""
    if layout == CONTIGUOUS:
        return "True"
    return f'("cyclic", {layout.block})' if isinstance(layout, Cyclic) else '("zigzag",)'


def held_text(size: str, layout: Layout, nested: bool, rank: str = "rank") -> str:
    """Elements that a rank holds. `nested`: two axes cut one after the other."""
    if layout == CONTIGUOUS:
        return f"shard_rows({size}, W, {rank}{', inner' * nested})"
    return f"layout_held({size}, W, {rank}, {layout_value(layout)})"


def shard_text(size: str, layout: Layout) -> str:
    """Elements of a nominal shard."""
    return f"cdiv({size}, W)" if layout == CONTIGUOUS else f"layout_shard({size}, W, {layout_value(layout)})"


def stride_text(size: str, ranks: str, layout: Layout, pad: str) -> str:
    """Rows between the shards of a communication buffer."""
    if layout == CONTIGUOUS or ranks == "1":
        return f"stride_of({size}, {ranks}, {pad})"
    return f"round_up(max(1, {shard_text(size, layout)}), {pad})"


def height_text(layout: Layout, owner: str, nested: bool) -> str:
    """Rows that a shard has, in a kernel."""
    if nested:
        return f"shard_height({owner}, rows, W, INNER)"
    if layout == CONTIGUOUS:
        return f"tl.minimum(rows - {owner} * shard, shard)"
    if isinstance(layout, Cyclic):
        return f"cyclic_height({owner}, rows, {layout.block}, W)"
    return f"zigzag_height({owner}, rows, W)"


def row_text(layout: Layout, local: str) -> str:
    """Row of the whole of a row of shard `owner`, in a kernel."""
    if isinstance(layout, Cyclic):
        return f"cyclic_row(owner, {local}, {layout.block}, W)"
    return f"zigzag_row(owner, {local}, rows, W)"

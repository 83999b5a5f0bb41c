"""What computes the tiles of a launch, and from what: the kinds that rules tell apart."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chunkdsl.plan.schedule import Launch


def kind_of(n: Launch) -> str:
    """library    calls of the library, one for each chunk
    kernel     a user's kernel
    over_rows  products and sums over rows, whose tiles walk the rows
    ahead      products whose right operand is gathered ahead
    product    other products: a tile has rows of the left operand and columns of the right one
    elements   nothing is contracted: tiles read, add up and store
    """
    if n.library or n.body:
        return "library" if n.library else "kernel"
    if n.over or n.fold or n.ahead:
        return "ahead" if n.ahead else "over_rows"
    return "product" if n.products else "elements"

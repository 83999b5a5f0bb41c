"""Which form a payload takes in a small all-reduce, and into which blocks it is cut: arithmetic on sizes that are the
same on every rank. Copied into the module, and called by the plan and the cost model, so: the standard library only."""

from __future__ import annotations


def words_each(count, W, rounds, wide=1):
    """Words of 32 bits that a rank sends to another in a round, of a payload of `count`: all of them, or, in two
    rounds, the piece that the other adds up, which holds a multiple of `wide`."""
    return -(-count // (W * wide)) * wide if rounds == 2 else count


def row_pieces(row, block, W, wide):
    """(spans, words of a piece) of a row of `row` words in two rounds that keep rows whole: spans of equal size, none
    longer than a block, each cut into a piece for every rank, a multiple of `wide`. The last pieces are padding."""
    spans = -(-row // (block // (W * wide) * (W * wide)))
    return spans, -(-row // (spans * W * wide)) * wide


def most_each(words, W):
    """The most of them in a form that holds up to `words` for all others together."""
    return max(1, words // max(1, W - 1))


def form_for(limits, each, W):
    """Number of the first form that holds `each` words; a limit of 0 is none."""
    return next(i for i, words in enumerate(limits) if not words or each <= most_each(words, W))


def blocks_on(blocks, W):
    """Of (words, warps), ascending, those that W ranks use: of more than 8, words and addresses do not fit the 64
    registers that each of 1,024 threads has."""
    return [b for b in blocks if b[1] < 32] if W > 8 else blocks


def block_for(blocks, each, multiprocessors):
    """The first with which every block has a program of its own, else the last."""
    return next((b for b in blocks if -(-each // b[0]) <= multiprocessors), blocks[-1])

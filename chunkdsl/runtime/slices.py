"""Into which pieces a call's work is cut, where there is more than one way. Arithmetic on sizes, copied into the module
and called by the plan, so: the standard library only."""

# Tiles that a program of a sum takes at a time, with one wait and one signal, each a way to memory and back, for all of
# them, and the least tiles of a multiprocessor for that. Sums run beside a product on the few multiprocessors that it
# leaves: there fewer, larger pieces keep up with it. Behind the product all multiprocessors share its last wave: there
# they are too many for pieces of four. Measured on two H200s, 4096 columns, an all-reduce in one shot: four tiles of 16
# rows instead of two cost 1.5 and 3 % of a call at 4096 and 2048 rows, and save 1 % at 8192.
MANY = ((4, 48), (2, 8))


def slices_of(multiprocessors, tiles, rows, *chunks):
    """How many of a call's `tiles` of `rows` rows a program takes. All have to be of one of the `chunks` (their rows),
    as the plan lets each tile wait for its own chunks only."""
    fits = (n for n, least in MANY if tiles >= least * multiprocessors and all(c % (n * rows) == 0 for c in chunks))
    return next(fits, 1)


def tiles_of(tiles, n, before, columns):
    """Tiles of so many columns of a product of n columns that has `tiles` of `before` columns."""
    return tiles // max(1, -(-n // before)) * max(1, -(-n // columns))


def shape_for(shapes, multiprocessors, tiles, n, before):
    """Of (columns, stages, time) of tiles, the one that keeps multiprocessors busy for the shortest time, of equals the
    first; `tiles` of `before` columns."""
    return min(shapes, key=lambda s: s[2] * -(-tiles_of(tiles, n, before, s[0]) // multiprocessors))

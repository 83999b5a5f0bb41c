"""How many tiles a program of a sum takes at a time, with one wait and one signal, each a way to memory and back, for
all of them. Arithmetic on sizes, copied into the module, so: the standard library only.

Sums run beside a product on the few multiprocessors that it leaves: there fewer, larger pieces keep up with it. Behind
the product all multiprocessors share its last wave: there they are too many for pieces of four. Measured on two H200s,
4096 columns, an all-reduce in one shot: four tiles of 16 rows instead of two cost 1.5 and 3 % of a call at 4096 and
2048 rows, and save 1 % at 8192.
"""

MANY = ((4, 48), (2, 8))  # (tiles at a time, least tiles of a multiprocessor)


def slices_of(multiprocessors, tiles, rows, *chunks):
    """Of a call's `tiles` of `rows` rows. All have to be of one of the `chunks` (their rows), as the plan lets each
    tile wait for its own chunks only."""
    fits = (n for n, least in MANY if tiles >= least * multiprocessors and all(c % (n * rows) == 0 for c in chunks))
    return next(fits, 1)

"""How long a call will take: predicted from its plan, never measured.

    data/           figures of GPUs, links and kernels, each with its source, kind and date
    constants.py    the figures that a prediction uses, by the name of a GPU and a link
    work.py         what each task of a plan costs: seconds of a program, bytes over the link
    servers.py      programs that take tiles, links that carry bytes
    simulate.py     the plan played out: when each task starts and ends
    predict.py      totals: exposed communication, the ideal, the baseline
    baseline.py     the same op as a library runs it: whole collectives, whole products
    choose.py       what `auto` becomes
    forms.py        which ends of a reduction are held against each other, and where

Needs neither torch nor a GPU. Its error against measurements: tests/bench/MODEL.md.
"""

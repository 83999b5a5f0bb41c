"""Faults around products that the library computes: between a chunk and its call, and between a call and its copy."""

from mutant_faults import EITHER, LOG, SIM, Fault, in_module, in_template

WRAPPER, TEMPLATE, LIBRARY = "wrapper", "template", "_library.py.jinja"
HOLD = "hold_until(self, self._f_x_gathered_arrived, owner * chunk_cap + c, 0, active)"
WAIT = "hold_until(self, self._{{ n.chunk_flags }}, owner * chunk_cap + c,"
FLAG = 'm.copy(flag[owner] + 4 * (rank * chunk_cap + c), self.word.data_ptr(), 4, "f_y_move")'

FAULTS = (
    Fault(
        "no wait before a chunk's product",
        "gather_library",
        "the library reads rows that have not come",
        WRAPPER,
        SIM,
        in_module(HOLD, "pass"),
    ),
    Fault(
        "no wait before a chunk's product, unseen",
        "gather_library",
        "the same where rows happen to be there",
        WRAPPER,
        LOG,
        in_module(HOLD, "pass"),
        run={"races": False},
    ),
    Fault(
        "a product waits for the first chunk",
        "gather_library",
        "chunk off by one",
        TEMPLATE,
        EITHER,
        in_template(LIBRARY, WAIT, WAIT.replace(" + c,", ",")),
    ),
    Fault(
        "a product's copy does not wait for it",
        "scatter_library",
        "sends what is not made",
        WRAPPER,
        SIM,
        in_module('                    m.fork("f_y_move")\n', ""),
    ),
    Fault(
        "a product's copy to the next place",
        "scatter_library",
        "addends overwrite others",
        WRAPPER,
        EITHER,
        in_module("there[owner] + (rank * stride + first)", "there[owner] + (owner * stride + first)"),
    ),
    Fault(
        "chunks without addends are not signalled",
        "scatter_library",
        "the sum waits for ever",
        WRAPPER,
        SIM,
        in_module(FLAG, "first < end and " + FLAG),
    ),
)

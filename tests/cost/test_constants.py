"""Every figure says where it comes from; machines are put together from them."""

import re

import pytest

from chunkdsl.cost import constants
from chunkdsl.cost.constants import default_gpu, figures, gpu_names, machine, without_communication, without_compute
from chunkdsl.plan.limits import MULTIPROCESSORS

KINDS = {"data sheet", "measured", "fitted", "assumed"}


def leaves(tree, path=""):
    for key, value in tree.items():
        if isinstance(value, dict) and "value" not in value:
            yield from leaves(value, f"{path}{key}.")
        elif isinstance(value, dict):
            yield f"{path}{key}", value


def faults(figure):
    """What is wrong with one figure of a data file."""
    if set(figure) != {"value", "kind", "source", "date"}:
        return "keys"
    if figure["kind"] not in KINDS or not figure["source"] or not re.fullmatch(r"20\d\d-\d\d(-\d\d)?", figure["date"]):
        return "provenance"
    return "" if figure["value"] > 0 else "value"


@pytest.mark.parametrize("name", ["gpus", "links", "kernels"])
def test_every_figure_has_its_source_kind_and_date(name):
    found = dict(leaves(figures(name)))
    assert len(found) >= 12
    assert {path: faults(figure) for path, figure in found.items() if faults(figure)} == {}


def test_a_figure_without_a_source_is_seen():
    good = {"value": 1.0, "kind": "measured", "source": "a bench", "date": "2026-11-29"}
    assert faults(good) == ""
    assert faults({**good, "source": ""}) == faults({**good, "date": "yesterday"}) == "provenance"
    assert faults({**good, "value": 0}) == "value" and faults({"value": 1}) == "keys"


def test_only_our_gpu_has_fitted_figures():
    ours = ("measured", "fitted")
    fitted = {path.split(".")[0] for path, figure in leaves(figures("gpus")) if figure["kind"] in ours}
    assert fitted == {"h200"}


@pytest.mark.parametrize("name", gpu_names())
def test_multiprocessors_are_those_of_the_target(name):
    gpu = machine(name).gpu
    assert gpu.multiprocessors == MULTIPROCESSORS[gpu.target]


def test_links_that_a_gpu_does_not_have_mean_its_own():
    assert machine("mi300x", "nvlink").link.name == "xgmi" and machine("h200", "fabric").link.name == "nvlink"
    assert machine("a100", "pcie").link.name == "pcie"
    assert default_gpu("xgmi") == "mi300x" and default_gpu("nvlink") == default_gpu(None) == "h200"


def test_a_mesh_of_links_is_slower_between_a_pair():
    link = machine("mi300x").link
    assert link.pair_gbs < link.programs and machine("h200").link.pair_gbs == machine("h200").link.programs


def test_machines_without_a_part():
    m = machine("h200")
    assert without_communication(m).gpu == m.gpu and without_communication(m).link.copy_pull == float("inf")
    assert without_compute(m).link == m.link and without_compute(m).kernels.kernel_us == 0


def test_reading_needs_nothing_but_the_standard_library():
    with open(constants.__file__, encoding="utf-8") as file:
        assert "torch" not in file.read()

"""The lines that are read off Nsight Compute's counters. What they are read from has the profiler's layout."""

import profiled_rows

STALLED = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
COUNTERS = ["Kernel Name", "gpu__time_duration.sum", "launch__registers_per_thread", STALLED.format("barrier"),
            STALLED.format("wait"), "sm__pipe_tensor_op.avg.pct_of_peak_sustained_active"]  # fmt: skip


def page(*kernels):
    rows = [COUNTERS, ["", "ns", "register/thread", "inst", "inst", "%"], *kernels]
    return "==PROF== Connected\n" + "\n".join(",".join(f'"{cell}"' for cell in row) for row in rows) + "\n"


def test_a_line_has_a_kernels_time_and_what_its_warps_waited_for_most():
    rows = ["mine", "362,000", "124", "3.4", "5.1", "79.7"], ["n/a", "", "", "", "", ""]
    kernels = profiled_rows.counters(page(*rows))
    mine, empty = map(profiled_rows.line, kernels)
    assert mine.startswith("| mine | 362 | - |") and mine.endswith("| 124 | - | 79.7 | wait 5.10, barrier 3.40 |")
    assert empty.startswith("| n/a | - |") and empty.endswith("| - |  |")

"""`chunkdsl verify` from the command line: what holds, what fails, what it prints and how it exits."""

import json

import pytest

from chunkdsl.verify import verify as whole

OPENS = "if fused:\n            self.open(active, dims)"
WAIT = "ok = ok & wait_flag("
UNEVEN = """mesh tp[2] over nvlink
dim M = 1..24
dim F = 40
tensor a : bf16[M, F @ tp]
tensor w : bf16[24, F @ tp]
op f(a, w) -> y { y = reduce_scatter(a @ w.T, M) with { tile = 16x16x16, chunk = 8 along M } }
"""
QUICK = ("--world", "2", "--seeds", "1", "--no-compile", "--full-size")


@pytest.fixture
def broken(monkeypatch):
    """`broken(old, new)`: modules come out of the renderer with this change."""
    plain = whole.render_module

    def change(old, new):
        def render(*args):
            text = plain(*args)
            assert text.count(old) == 1, f"{old!r} occurs {text.count(old)} times"
            return text.replace(old, new)

        monkeypatch.setattr(whole, "render_module", render)

    return change


def test_everything_holds_and_every_target_compiles(spec, call):
    code, out, err = call("verify", spec, "--world", "2", "--seeds", "1")
    lines = [line.split("  ") for line in out.splitlines()]
    assert code == 0, out
    assert out.endswith(" s)\n") and "small.chunk: 10 of 10 checks hold" in out
    checks = [[cell.strip() for cell in line if cell.strip()][1:3] for line in lines[2:12]]
    assert checks == [
        ["proof", "2 ranks"],
        ["simulation", "2 ranks, seed 0, TMA"],
        ["conformance", "2 ranks, seed 0, TMA"],
        ["y = exact, bit by bit", "2 ranks, seed 0, TMA"],
        ["y = float64 on small integers, equal", "2 ranks, seed 0, TMA"],
        ["y of the fallback = float64 on small integers, equal", "2 ranks, seed 0, TMA"],
        ["compiles for sm_80 and passes the lints", "2 ranks"],
        ["compiles for sm_90 and passes the lints", "2 ranks"],
        ["compiles for sm_100 and passes the lints", "2 ranks"],
        ["compiles for gfx942 and passes the lints", "2 ranks"],
    ]
    said = err.splitlines()
    assert said[0].startswith("compiling the shipped module for sm_80, sm_90, sm_100 and gfx942")
    assert "proving proj for 2 ranks" in said
    assert (
        "simulating proj on 2 ranks, seed 0: x[M x 24], w[80 x 24], tile 16x16x16, calls M=109; M=0; M=1; M=57" in said
    )


def test_json_is_one_object_and_seeds_change_the_variant(tiny, call):
    code, out, _ = call("verify", tiny, *QUICK, "--seeds", "2", "--json")
    made = json.loads(out)
    assert code == 0 and made["passed"] is True and made["path"] == "tiny.chunk"
    assert len(made["checks"]) == 10 and [c["where"] for c in made["checks"] if "fallback" in c["check"]] == [
        "2 ranks, seed 0, TMA"
    ]
    for check in made["checks"]:
        assert set(check) == {"op", "check", "where", "passed", "detail", "seconds", "again", "ran"}
        assert check["passed"] is True and check["again"] == ""
    wheres = list(dict.fromkeys(c["where"] for c in made["checks"]))
    assert wheres == ["2 ranks", "2 ranks, seed 0, TMA", "2 ranks, seed 1, pointer loads"]
    assert "y = float64 within 2e-05" in [c["check"] for c in made["checks"]]


def test_a_module_without_its_wait_fails(tiny, call, broken):
    broken(WAIT, "ok = ok & (1).__and__(1) if True else wait_flag(")
    code, out, _ = call("verify", tiny, *QUICK)
    assert code == 1
    assert "proj  simulation  2 ranks, seed 0, TMA  FAILED" in out
    told = out[out.index("\nproj, simulation, 2 ranks, seed 0, TMA:\n") :]
    assert "Race" in told or "race" in told or "reads" in told
    assert "proj_x_gathered" in told and "program" in told
    assert "    again: chunkdsl verify tiny.chunk --full-size --world 2 --seeds 1 --no-compile\n" in told
    assert len(told.splitlines()) < 30


def test_wrong_numbers_are_told_with_place_and_size(tiny, call, broken):
    broken(
        "if fused:\n            self.open(active, dims)",
        "if fused and (w_.add_(1) is None or True):\n            self.open(active, dims)",
    )
    code, out, _ = call("verify", tiny, *QUICK)
    assert code == 1
    assert "y = float64 on small integers, equal" in out and "FAILED" in out
    assert "call 0 (M = 21): error" in out and "allowed 0; farthest [" in out


def test_a_wrong_fallback_is_told(tiny, call, broken):
    broken("m.gather(padded, flat=True)", "m.gather(padded).flip(0).flatten(0, 1)")
    code, out, _ = call("verify", tiny, *QUICK)
    assert code == 1 and out.count("FAILED") == 1
    told = out[out.index("\nproj, y of the fallback = float64 on small integers, equal, 2 ranks") :]
    assert "call 0 (M = 21): error" in told and "allowed 0" in told


def test_a_fallback_of_another_dtype_is_told(tiny, call, broken):
    broken("return (y_, )", "return (y_.double(), )")
    code, out, _ = call("verify", tiny, *QUICK)
    assert code == 1 and out.count("FAILED") == 1
    assert "call 0 (M = 21), rank 0: torch.float64, declared as f32" in out


def test_a_wrapper_that_raises_is_a_failed_row_not_a_crash(tiny, call, broken):
    broken(OPENS, OPENS.replace("open", "opened"))
    code, out, _ = call("verify", tiny, *QUICK)
    assert code == 1 and "AttributeError: '_Proj' object has no attribute 'opened'" in out
    assert "in the host function of rank" in out and "CD001" not in out


def test_dims_bound_the_calls_and_full_size_keeps_the_spec_s_numbers(tiny, call):
    code, out, err = call("verify", tiny, *QUICK, "--dim", "M=21")
    assert code == 0, out
    assert "x[M x 24], w[48 x 24], tile 16x16x16, calls M=18; M=0; M=1; M=11" in err


def test_a_world_size_that_the_module_refuses_fails_with_the_reason_and_is_not_simulated(tmp_path, monkeypatch, call):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "uneven.chunk").write_text(UNEVEN)
    code, out, err = call("verify", "uneven.chunk", "--no-compile", "--world", "2")
    assert code == 1 and "0 of 1 checks hold" in out and "simulating" not in err
    assert "f, proof, 2 ranks:\n    rank 0's rows of a have 20 elements, 40 bytes: no TMA stride" in out


def test_specs_with_errors_and_specs_that_are_not_there(spec, call, tmp_path):
    (tmp_path / "bad.chunk").write_text("dim step = 4\n")
    code, out, _ = call("verify", "bad.chunk")
    assert code == 1 and "CD108" in out
    code, out, _ = call("verify", "gone.chunk", "--json")
    assert code == 2 and json.loads(out)[0]["code"] == "CD002"
    code, out, _ = call("verify", spec, "--dim", "M=999")
    assert code == 2 and "M" in out


@pytest.mark.parametrize("option", [["--seeds", "0"], ["--seeds", "many"], ["--world", "0"], ["--dim", "M"]])
def test_options_that_mean_nothing_are_usage_errors(spec, call, option):
    code, _, err = call("verify", spec, *option)
    assert code == 2 and "usage: chunkdsl verify" in err

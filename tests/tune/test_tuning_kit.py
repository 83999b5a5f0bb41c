"""Tuning in three parts: what is prepared, measured elsewhere and taken back is what one command does; what does not
belong together is refused."""

import json
import subprocess
import sys
from io import StringIO
from pathlib import Path

import pytest

from chunkdsl import kits
from chunkdsl.cli import main
from chunkdsl.tune.evidence import Malformed, Result
from chunkdsl.tune.kit import read_kit, settings_of
from chunkdsl.tuning import Options

SPEC = """mesh tp[2] over nvlink
dim M = 64..4096 step 64
tensor x : bf16[M @ tp, 1024]
tensor w : bf16[2048 @ tp, 1024]
op up(x, w) -> h { h = all_gather(x) @ w.T with { route = swizzle, via = copy_engine, chunk = 2 MiB, side = pull } }
"""


class Clock:
    """Times by a function of the number of the setting and the rows."""

    gpu, rehearsal, versions = "NVIDIA H200", False, {"torch": "2.11.0", "triton": "3.6.0"}

    def __init__(self, kit, times):
        self.kit, self.times, self.read = kit, times, []

    def measure(self, job, ahead=()):
        self.read.append(Path(self.kit.path(job)).read_text())
        number = list(job.space.files).index(job.setting)
        results = []
        for sizes in job.sizes:
            us = (self.times(number, dict(sizes)["M"]),)
            results.append(Result("up", 2, sizes, job.setting, us, (1.0,), "", us, (1.0,), job.compared))
        return results


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """A folder with a spec and a kit of it: four settings."""
    folder = tmp_path_factory.mktemp("tuning")
    (folder / "up.chunk").write_text(SPEC)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        argv = ["--prepare", "kit", "--shapes", "M=1024,4096", "--most", "4"]
        assert main(["tune", "up.chunk", *argv]) == 0
    return folder


@pytest.fixture
def place(prepared, tmp_path, monkeypatch):
    """The same, to write to."""
    for path in prepared.rglob("*"):
        if path.is_file():
            target = tmp_path / path.relative_to(prepared)
            target.parent.mkdir(exist_ok=True)
            target.write_bytes(path.read_bytes())
    monkeypatch.chdir(tmp_path)


def measure(times=lambda number, rows: 0.8 if number == 2 else 0.9, **options):
    made = []

    def clock_of(kit):
        made.append(Clock(kit, times))
        return made[-1]

    report, text = kits.measure("kit", clock_of, Options(**options), StringIO())
    return report, text, made


def test_a_kit_lists_settings_with_their_modules_the_untuned_one_first(place):
    kit = read_kit("kit/up.kit.json")
    (up,) = kit.found
    assert (kit.spec, kit.world, up.name, up.calls) == ("up.chunk", 2, "up", ((("M", 1024),), (("M", 4096),)))
    assert up.base == () and list(up.files.values()) == [f"up.up.{i}.py" for i in range(4)]
    texts = [Path("kit", name).read_text() for name in up.files.values()]
    assert all("class Up(Instance)" in text for text in texts) and len(set(texts)) == 4


def test_what_is_prepared_measured_and_collected_is_what_a_build_takes(place, capsys):
    report, text, (clock,) = measure()
    assert not report.failed and "up on 2 x NVIDIA H200: 4 of 4 settings" in text and len(set(clock.read)) == 4
    assert main(["tune", "up.chunk", "--collect", "kit"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("up on 2 x NVIDIA H200: 4 of 4 settings\n")
    assert said.endswith("up.tuned.json\nup.tuned.html\n")
    assert "fused, captured: 64 along M" in said and "fused, eager: 64 along M" in said
    best = list(read_kit("kit/up.kit.json").found[0].files)[2]
    assert all(f"{key} = {value}" in said.split("best: ")[1] for _, key, value in best)
    assert main(["plan", "up.chunk"]) == 0
    assert "tuned: 12.5 % faster than untuned, best of 4 settings" in " ".join(capsys.readouterr().out.split())


def test_measuring_goes_on_where_it_stopped(place):
    _, text, (first,) = measure(seconds=-1.0)
    assert "not measured yet" in text and first.read == []
    _, _, (whole,) = measure()
    _, _, (again,) = measure()
    assert len(whole.read) > 4 and again.read == []


def test_collected_results_are_added_to_those_that_are_there_of_the_same_gpu(place, capsys):
    measure()
    assert main(["tune", "up.chunk", "--collect", "kit/up.tuned.json"]) == 0
    once = Path("up.tuned.json").read_text()
    assert main(["tune", "up.chunk", "--collect", "kit"]) == 0 and Path("up.tuned.json").read_text() == once
    Path("kit/up.tuned.json").write_text(once.replace("NVIDIA H200", "NVIDIA H100"))
    assert main(["tune", "up.chunk", "--collect", "kit"]) == 2
    assert "CD036[tuned-elsewhere] up.tuned.json has results of NVIDIA H200" in capsys.readouterr().out
    assert Path("up.tuned.json").read_text() == once


def test_what_does_not_belong_together_is_refused(place, capsys):
    assert main(["tune", "up.chunk", "--collect", "kit"]) == 2
    assert "CD040[unusable-kit] cannot use kit/up.tuned.json: there is no such file" in capsys.readouterr().out
    measure()
    Path("up.chunk").write_text(SPEC + "# more\n")
    assert main(["tune", "up.chunk", "--collect", "kit"]) == 2
    assert "it is of another text of up.chunk" in capsys.readouterr().out
    assert main(["tune", "up.chunk", "--measure", "kit"]) == main(["tune"]) == 2, "SPEC or --measure, one of both"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"chunkdsl": "9.9"}, "it was made by chunkdsl 9.9"),
        ({"version": 2}, 'it is no "chunkdsl tuning kit" of version 1'),
        ({"ops": []}, "something is missing"),
        ({"world": [2, 2, 2]}, "something is missing"),
        ({"ops": [{"op": "up", "calls": [{"M": 64}], "settings": [[{}, "../up.py"]]}]}, "../up.py lies elsewhere"),
        (None, "it is not JSON"),
    ],
)
def test_a_kit_that_cannot_be_used_is_named(place, change, why):
    path = Path("kit/up.kit.json")
    path.write_text("{" if change is None else json.dumps(json.loads(path.read_text()) | change))
    report, _, made = measure()
    (found,) = report.diagnostics
    assert found.code == "CD040" and why in found.message and made == []
    if change != {"chunkdsl": "9.9"}:
        with pytest.raises(Malformed):
            read_kit(str(path))


def test_a_folder_without_a_kit_is_named(place):
    report, _ = kits.measure("nowhere", None, Options(), StringIO())
    assert [d.code for d in report.diagnostics] == ["CD040"]


def test_measuring_needs_neither_the_parser_nor_the_templates(place):
    """Where the GPUs are there may be no lark."""
    program = """
import sys
from chunkdsl import kits
from chunkdsl.tune import gpu, kit, worker
assert kit.read_kit("kit/up.kit.json").found[0].count == 4
print(sorted({"lark", "jinja2", "torch"} & set(sys.modules)))
"""
    environ = {"PYTHONPATH": str(Path(__file__).parents[2]), "PATH": ""}
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environ)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "[]\n", "")


class Steps:
    """Two collectives with two other values each."""

    base, steps = (("a", "k", "0"),), 2

    def step(self, i, best):
        kept = [s for s in best if s[0] != "ab"[i]]
        return [tuple(sorted([*kept, ("ab"[i], "k", n)])) for n in "12"]


def test_combinations_come_after_what_stands_alone_those_of_early_values_first():
    short = [" ".join(f"{label}{n}" for label, _, n in setting) for setting in settings_of(Steps(), 24)]
    assert short == ["a0", "a1", "a0 b1", "a2", "a0 b2", "a1 b1", "a1 b2", "a2 b1", "a2 b2"]
    assert len(settings_of(Steps(), 3)) == 3

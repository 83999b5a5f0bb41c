"""Every planted fault is caught by a catcher that should, and no catcher speaks where no fault is planted."""

import mutants_of_data
import mutants_of_deals
import mutants_of_helpers
import mutants_of_layouts
import mutants_of_library
import mutants_of_plans
import mutants_of_programs
import mutants_of_schedules
import mutants_of_signals
import mutants_of_sums
import mutants_of_wrappers
import pytest
from mutant_bases import SPECS, build_base
from mutant_catchers import CATCHERS, Run, catch, quiet_torch

FILES = (
    mutants_of_schedules,
    mutants_of_signals,
    mutants_of_sums,
    mutants_of_data,
    mutants_of_programs,
    mutants_of_helpers,
    mutants_of_plans,
    mutants_of_wrappers,
    mutants_of_deals,
    mutants_of_layouts,
    mutants_of_library,
)
FAULTS = [fault for file in FILES for fault in file.FAULTS]
# Each base under a way in which a fault of it is run, and each way with a base: sound, no catcher may speak.
WAYS = sorted({(f.base, tuple(sorted(f.run.items()))) for f in FAULTS}, key=repr)
UNUSUAL = {way: base for base, way in WAYS if way}
SOUND = [(base, way) for way, base in UNUSUAL.items()]
SOUND += [(base, ()) for base in SPECS if base not in UNUSUAL.values()]


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    quiet_torch()


@pytest.mark.parametrize("fault", FAULTS, ids=[f.name for f in FAULTS])
def test_a_planted_fault_is_caught(fault, record_property):
    caught = catch(fault.base, fault, Run(**fault.sized), fault.by)
    by = sorted({catcher for catcher, _ in caught}, key=CATCHERS.index)
    kinds = [said.split(":")[0] for catcher, said in caught if catcher == "simulator"]
    said = ", ".join(f"{c} ({kinds[0]})" if c == "simulator" else c for c in by)
    record_property("mutant", (fault.name, fault.base, fault.planted, said))
    assert set(by) & set(fault.by), f"{fault.name} ({fault.breaks}): wanted {fault.by}, caught {caught}"


@pytest.mark.parametrize(("base", "run"), SOUND, ids=[f"{b}-{'-'.join(f'{k}={v}' for k, v in r)}" for b, r in SOUND])
def test_a_sound_base_raises_no_alarm(base, run):
    run = Run(**dict(run))
    catchers = ("proof", "lint") if base == "large" else ("proof", "simulator")
    assert catch(base, None, run, catchers) == []


def test_the_suite_covers_every_place_and_every_catcher():
    assert len(FAULTS) >= 100 and len({f.name for f in FAULTS}) == len(FAULTS)
    assert {f.planted for f in FAULTS} == {"schedule", "template", "helper", "wrapper"}
    assert {catcher for f in FAULTS for catcher in f.by} == set(CATCHERS)
    assert {f.base for f in FAULTS} == set(SPECS)
    assert all(build_base(base).schedule.ops for base in SPECS)

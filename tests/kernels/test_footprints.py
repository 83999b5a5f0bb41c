"""What is found of kernels that nobody wrote for this, and where the others are refused."""

import threading
import time

import pytest
from kernel_specs import HEAD, KERNELS, PATH, ROOT, checked, gathered, reduced, refused

from chunkdsl.kernels import answers
from chunkdsl.kernels.fault import KernelFault

FOUND = {
    # block of rows, (grouped rows, across), rows read of the gathered argument, columns of a program
    "matmul_2d": (32, 0, "block", 32),
    "matmul_persistent": (32, 4, "block", 32),
    "matmul_descriptor": (32, 1, "block", 32),
    "matmul_blocks": (32, 0, "block", 32),
    "rms_norm": (1, 1, "block", 0),
    "layer_norm": (1, 1, "block", 0),
    "softmax": (1, 1, "block", 0),
    "gated": (1, 0, "block", 32),
}
REFUSED = {
    "by_index": "an address depends on data",
    "adds_atomically": "an atomic on Y",
    "reads_its_result": "reads its result Y",
    "works_in_place": "stores to X, which is an argument",
    "looks_ahead": "a load outside the declared shape of X",
    "returns_early": "returns early",
    "half_of_it": "of Y unwritten",
}


@pytest.fixture(autouse=True)
def at_root(monkeypatch):
    monkeypatch.chdir(ROOT)


def body_of(text):
    made = checked(text)
    assert [d.message for d in made.report.diagnostics] == []
    return next(n.body for n in made.schedule.ops[0].launches if n.body)


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_is_understood(name):
    body = body_of(gathered(name))
    assert (body.block, body.order[1], body.fetched.gathered, body.column_block) == FOUND[name]


@pytest.mark.parametrize("name", REFUSED)
def test_an_unfit_kernel_is_refused_at_its_own_line(name):
    (found,) = checked(refused(name, ", I" if name == "by_index" else "")).report.diagnostics
    assert found.code == "CD650" and REFUSED[name] in found.message
    place, line = found.message.split(":")[:2]
    assert place == PATH
    lines = (ROOT / PATH).read_text().splitlines()
    first = next(i for i, text in enumerate(lines, 1) if text.startswith(f"def {name}("))
    last = next((i for i in range(first + 1, len(lines)) if lines[i - 1].startswith("@triton")), len(lines))
    assert first <= int(line) <= last
    assert found.help.startswith(f"{PATH}:{line} | {lines[int(line) - 1].strip()}")


def test_a_result_is_sent_only_by_programs_that_store_whole_row_blocks():
    text = HEAD + KERNELS["matmul_2d"].replace("grid = cdiv(m, BM), cdiv(n, BN)", "grid = cdiv(m, BM), 2 * cdiv(n, BN)")
    (found,) = checked(text + "op f_op(a, v) -> y { y = reduce_scatter(f(a, v), M) }").report.diagnostics
    assert found.code == "CD650"


@pytest.mark.parametrize("policy", ["side = push", "route = ring, place = co_located", "place = own_sms(2)"])
def test_a_transport_that_needs_another_store_is_refused(policy):
    (found,) = checked(reduced("matmul_2d", policy)).report.diagnostics
    assert found.code == "CD601"


def test_a_softmax_over_a_sharded_size_is_refused():
    head = HEAD.replace("x : bf16[M @ tp, K]", "x : bf16[M, K @ tp]")
    (found,) = checked(head + KERNELS["softmax"] + "op f_op(x) -> y { y = f(x) }").report.diagnostics
    assert found.code == "CD650" and "`n` is sharded" in found.message


def test_a_result_that_no_argument_sizes_is_refused():
    text = HEAD + KERNELS["rms_norm"].replace("Y = y_ptr : [m, n]", "Y = y_ptr : [m, z]")
    (found,) = checked(text + "op f_op(x, g) -> y { y = f(x, g) }").report.diagnostics
    assert found.code == "CD237"


def test_a_question_is_answered_once_and_by_one_thread_at_a_time(monkeypatch):
    busy, most, asked, started = [], [], [], threading.Barrier(3)

    class Slow(answers.Finder):
        def find(self):
            busy.append(1)
            most.append(len(busy))
            asked.append(self.q)
            time.sleep(0.05)
            busy.pop()
            raise KernelFault("unfit", 3, "mend it")

    monkeypatch.setattr(answers, "Finder", Slow)
    monkeypatch.setattr(answers, "_answers", {})
    texts = [gathered("rms_norm"), gathered("softmax")]

    def ask(text, found):
        started.wait()
        found += [d.message for d in checked(text).report.diagnostics]

    found = [[], [], []]
    threads = [threading.Thread(target=ask, args=(t, f)) for t, f in zip([*texts, texts[0]], found, strict=True)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert all(len(f) == 1 and "unfit" in f[0] for f in found)
    assert len(asked) == 2 and max(most) == 1

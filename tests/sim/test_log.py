"""The log says what happened, from addresses and values: the events of small modules are spelled out."""

import torch

from chunkdsl.sim import World
from chunkdsl.sim.buffers import Buffer
from chunkdsl.sim.log import Add, Box, Copy, Place, Read, Signal, Wait, Write


def gather(module, **options):
    world = World(2, log=True, **options)

    def host(machine):
        op = module("copied_gather").DoubledGather(machine, 40)
        for _ in range(2):
            machine.next_call()
            op(machine.adopt("x", torch.ones(40)))

    world.run(host)
    return world.log


def test_copies_with_places_boxes_and_the_signalled_value(module):
    (trail,) = gather(module).of(rank=1, call=2, label="copy")
    assert (trail.origin.lane, trail.origin.launch, trail.origin.program) == ("to 1", -1, -1)
    data, flag = trail.events
    row = (Box(0, 1, 2, 0, 40),)
    assert isinstance(data, Copy) and (data.source, data.destination) == (Place("gathered", 1), Place("gathered", 0))
    assert (data.source_boxes, data.destination_boxes, data.nbytes, data.value) == (row, row, 160, None)
    assert (flag.source, flag.destination, flag.value) == (Place("epoch", 1), Place("flags", 0), 2)
    assert flag.destination_boxes == (Box(0, 0, 1, 1, 2),)
    assert data.seq < flag.seq


def test_waits_reads_and_writes_of_a_consumer(module):
    log = gather(module, policy="copies-last")
    trails = [t for t in log.of(rank=0, call=1, label="double")]
    assert [(t.origin.program, t.origin.launch, t.origin.lane) for t in trails] == [(0, 2, "main"), (1, 2, "main")]
    own, remote = ([e for e in t.events] for t in trails)
    assert [type(e) for e in own] == [Read, Write]
    waits = [e for e in remote if isinstance(e, Wait)]
    assert waits[-1].value == 1 and all(w.at == Place("flags", 0) and w.index == 1 for w in waits)
    assert [w.value for w in waits] in ([1], [0, 1]) and waits[-1].sem == "acquire" and waits[-1].scope == "sys"
    read, write = remote[-2:]
    assert (read.at, read.boxes) == (Place("gathered", 0), (Box(0, 1, 2, 0, 40),))
    assert write.boxes == (Box(0, 1, 2, 0, 40),) and write.at.buffer.startswith("result")
    assert waits[-1].seq < read.seq < write.seq


def test_signals_and_counters(module):
    world = World(2, log=True)

    def host(machine):
        op = module("fused_gemm").GemmAllReduce(machine, 16, 32)
        machine.next_call()
        op(torch.ones(16, 16), torch.ones(16, 32))

    world.run(host)
    trails = list(world.log.of(call=1))
    assert len(trails) == 4
    tickets = sorted((t.origin.rank, t.events[0].before, t.events[0].value) for t in trails)
    assert all(isinstance(t.events[0], Add) for t in trails)
    assert tickets == [(0, 0, 1), (0, 1, 2), (1, 0, 1), (1, 1, 2)]
    signals = {(t.origin.rank, e.at.owner, e.index, e.value, e.sem, e.scope)
               for t in trails for e in t.events if isinstance(e, Signal)}  # fmt: skip
    assert signals == {(r, o, 2 * r + t, 1, "release", "sys") for r in range(2) for o in range(2) for t in range(2)}
    pushed = {b for t in trails for e in t.events if isinstance(e, Write) and e.at.buffer == "stage" for b in e.boxes}
    assert pushed == {Box(2 + r, 0, 16, 16 * t, 16 * t + 16) for r in range(2) for t in range(2)}
    order = [e.seq for _, e in world.log.ordered()]
    assert order == sorted(set(order))


def test_boxes_are_in_the_buffers_own_coordinates():
    def boxes(tensor, *cells):
        return Buffer("t", 0, "device", tensor, None).in_elements(list(cells))

    three = torch.zeros(2, 4, 8, dtype=torch.bfloat16)
    assert boxes(three, (3, 6, 4, 8)) == (Box(0, 3, 4, 2, 4), Box(1, 0, 2, 2, 4))
    assert boxes(torch.zeros(10), (0, 1, 8, 16)) == (Box(0, 0, 1, 2, 4),)
    view = torch.zeros(4, 32)[:, :8]
    assert Buffer("v", 0, "argument", view, None).pitch == 128
    assert boxes(torch.zeros(4, 6).T, (1, 2, 0, 4)) == (Box(0, 1, 2, 0, 1),)

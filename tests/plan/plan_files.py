"""Plan files with the structure of published algorithms, made here: MSCCL's XML and MSCCL++'s JSON.

`python tests/plan/plan_files.py` writes those in imported/; tests also take the texts of other world sizes.
"""

from __future__ import annotations

import json
from pathlib import Path

FOLDER = Path(__file__).parent / "imported"

# ---- MSCCL: algo -> rank -> threadblock (send, recv, chan, steps)


class Algo:
    def __init__(self, name, coll, world, chunks, inplace=1, scratch=0):
        self.head = dict(name=name, proto="Simple", nchannels=1, nchunksperloop=chunks, ngpus=world, coll=coll,
                         inplace=inplace, redop="nop", minBytes=0, maxBytes=0)
        self.world, self.scratch, self.chunks = world, scratch, chunks
        self.blocks = [[] for _ in range(world)]

    def block(self, rank, send=-1, recv=-1, chan=0):
        self.blocks[rank].append((send, recv, chan, []))
        return len(self.blocks[rank]) - 1

    def step(self, rank, tb, kind, src=("i", -1), dst=("o", -1), cnt=1, dep=(-1, -1), hasdep=0):
        steps = self.blocks[rank][tb][3]
        steps.append(dict(s=len(steps), type=kind, srcbuf=src[0], srcoff=src[1], dstbuf=dst[0], dstoff=dst[1], cnt=cnt,
                          depid=dep[0], deps=dep[1], hasdep=hasdep))
        return len(steps) - 1

    def text(self):
        coll, world, chunks = self.head["coll"], self.world, self.chunks
        i = chunks // world if coll == "allgather" else chunks
        o = chunks // world if coll == "reduce_scatter" else chunks
        lines = [f"<algo {_attributes(self.head)}>"]
        for rank, blocks in enumerate(self.blocks):
            lines.append(f'  <gpu id="{rank}" i_chunks="{i}" o_chunks="{o}" s_chunks="{self.scratch}">')
            for tb, (send, recv, chan, steps) in enumerate(blocks):
                lines.append(f'    <tb id="{tb}" send="{send}" recv="{recv}" chan="{chan}">')
                lines += [f"      <step {_attributes(s)}/>" for s in steps]
                lines.append("    </tb>")
            lines.append("  </gpu>")
        return "\n".join([*lines, "</algo>", ""])


def _attributes(found):
    return " ".join(f'{k}="{v}"' for k, v in found.items())


def ring_all_gather(world, inplace=1):
    """Send the own chunk on, pass on world - 2 chunks, take the last."""
    a = Algo("ring_all_gather", "allgather", world, world, inplace)
    for r in range(world):
        tb = a.block(r, (r + 1) % world, (r - 1) % world)
        own = ("o", r) if inplace else ("i", 0)
        if not inplace:
            a.step(r, tb, "cpy", own, ("o", r))
        a.step(r, tb, "s", own)
        for k in range(1, world - 1):
            a.step(r, tb, "rcs", dst=("o", (r - k) % world))
        a.step(r, tb, "r", dst=("o", (r + 1) % world))
    return a.text()


def all_pairs_all_gather(world):
    a = Algo("all_pairs_all_gather", "allgather", world, world)
    for r in range(world):
        for peer in (p for p in range(world) if p != r):
            tb = a.block(r, peer, peer)
            a.step(r, tb, "s", ("i", 0))
            a.step(r, tb, "r", dst=("o", peer))
    return a.text()


def hierarchical_all_gather(nodes, gpus):
    """Across nodes first, into scratch; then every rank gives its neighbours what it has, from scratch and input."""
    world = nodes * gpus
    a = Algo("hierarchical_all_gather", "allgather", world, world, scratch=nodes)
    for n in range(nodes):
        for g in range(gpus):
            r = n * gpus + g
            came = {}
            for m in (m for m in range(nodes) if m != n):
                tb = a.block(r, m * gpus + g, m * gpus + g)
                a.step(r, tb, "s", ("i", 0))
                came[m] = tb, a.step(r, tb, "r", dst=("s", m), hasdep=1)
            keep = a.block(r)
            for m, dep in came.items():
                a.step(r, keep, "cpy", ("s", m), ("o", m * gpus + g), dep=dep)
            for h in (h for h in range(gpus) if h != g):
                tb = a.block(r, n * gpus + h, n * gpus + h)
                for m in range(nodes):
                    a.step(r, tb, "s", ("i", 0) if m == n else ("s", m), dep=came.get(m, (-1, -1)))
                for m in range(nodes):
                    a.step(r, tb, "r", dst=("o", m * gpus + h))
    return a.text()


def ring_reduce_scatter(world, parts=1):
    """Chunk c starts one rank behind its owner and is added to on the way round."""
    a = Algo("ring_reduce_scatter", "reduce_scatter", world, world * parts, inplace=0)
    for r in range(world):
        tb = a.block(r, (r + 1) % world, (r - 1) % world)
        for p in range(parts):
            a.step(r, tb, "s", ("i", (r - 1) % world * parts + p))
        for k in range(2, world):
            for p in range(parts):
                a.step(r, tb, "rrs", ("i", (r - k) % world * parts + p))
        for p in range(parts):
            a.step(r, tb, "rrc", ("i", r * parts + p), ("o", p))
    return a.text()


def all_pairs_reduce_scatter(world):
    """Everyone sends the owner its addend, into scratch; one threadblock adds, held back by a nop for each but one."""
    a = Algo("all_pairs_reduce_scatter", "reduce_scatter", world, world, scratch=world)
    for r in range(world):
        came = []
        for peer in (p for p in range(world) if p != r):
            tb = a.block(r, peer, peer)
            a.step(r, tb, "s", ("i", peer))
            came.append((peer, (tb, a.step(r, tb, "r", dst=("s", peer), hasdep=1))))
        add = a.block(r)
        for _, dep in came[:-1]:
            a.step(r, add, "nop", dep=dep)
        for i, (peer, _) in enumerate(came):
            a.step(r, add, "re", ("s", peer), ("i", r), dep=(-1, -1) if i else came[-1][1])
    return a.text()


def ring_all_reduce(world, cut=1):
    """Ring reduce-scatter, then ring all-gather, of `cut` x world chunks in place; rrcs where the two meet."""
    a = Algo("ring_all_reduce", "allreduce", world, world * cut)
    for r in range(world):
        for c in range(cut):
            tb = a.block(r, (r + 1) % world, (r - 1) % world, c)

            def at(k, r=r, c=c):
                return "i", (r - k) % world * cut + c

            a.step(r, tb, "s", at(0))
            for k in range(1, world - 1):
                a.step(r, tb, "rrs", at(k), at(k))
            a.step(r, tb, "rrcs", at(world - 1), at(world - 1))
            for k in range(world, 2 * world - 2):
                a.step(r, tb, "rcs", at(k), at(k))
            a.step(r, tb, "r", dst=at(2 * world - 2))
    return a.text()


def all_pairs_all_reduce(world):
    """Rank r adds chunk r up in scratch's company, then sends the sum to all."""
    a = Algo("all_pairs_all_reduce", "allreduce", world, world, scratch=world)
    for r in range(world):
        others = [p for p in range(world) if p != r]
        came = {}
        for tb, peer in enumerate(others):
            a.block(r, peer, peer)
            a.step(r, tb, "s", ("i", peer))
            came[peer] = tb, a.step(r, tb, "r", dst=("s", peer), hasdep=1)
        add = a.block(r)
        for peer in others:
            last = a.step(r, add, "re", ("s", peer), ("i", r), dep=came[peer], hasdep=int(peer == others[-1]))
        for tb, peer in enumerate(others):
            a.step(r, tb, "s", ("i", r), dep=(add, last))
            a.step(r, tb, "r", dst=("i", peer))
    return a.text()


def all_to_all(world):
    """Every pair exchanges; the own chunk is copied."""
    a = Algo("all_pairs_all_to_all", "alltoall", world, world, inplace=0)
    for r in range(world):
        tb = a.block(r)
        a.step(r, tb, "cpy", ("i", r), ("o", r))
        for k in range(1, world):
            tb = a.block(r, (r + k) % world, (r - k) % world)
            a.step(r, tb, "s", ("i", (r + k) % world))
            a.step(r, tb, "r", dst=("o", (r - k) % world))
    return a.text()


# ---- MSCCL++


class Plan:
    """Memory channels from every rank to every other; remote buffers of the kinds named, one for each peer."""

    def __init__(self, name, collective, world, i, o, scratch=0, inplace=True, kinds="o"):
        self.world, self.kinds = world, kinds
        self.plan = {"name": name, "collective": collective, "protocol": "Simple", "inplace": inplace,
                     "reuse_resources": False, "gpus": [], "num_threads_per_block": 1024,
                     "use_double_scratch_buffer": False, "buffer_alignment": 16, "min_message_size": 0,
                     "max_message_size": 2**64 - 1}
        for r in range(world):
            peers = self.peers(r)
            remote = [{"rank": p, "type": k, "access_channel_types": ["memory"]} for k in kinds for p in peers]
            self.plan["gpus"].append({
                "id": r, "input_chunks": i, "output_chunks": o, "scratch_chunks": scratch, "threadblocks": [],
                "channels": [{"channel_type": "memory", "connected_to": peers}], "remote_buffers": remote,
                "semaphores": [],
            })

    def peers(self, rank):
        return [p for p in range(self.world) if p != rank]

    def block(self, rank, ops):
        blocks = self.plan["gpus"][rank]["threadblocks"]
        peers = self.world - 1
        blocks.append({
            "id": len(blocks), "ops": ops, "channels": [{"channel_type": "memory", "channel_ids": [*range(peers)]}],
            "remote_buffer_refs": [
                {"access_channel_type": "memory", "remote_buffer_ids": [*range(peers * len(self.kinds))]}
            ],
        })

    def near(self, kind, index, size=1):
        return {"type": kind, "index": index, "size": size}

    def far(self, rank, peer, kind, index, size=1):
        number = self.kinds.index(kind) * (self.world - 1) + self.peers(rank).index(peer)
        return {"buffer_id": number, "index": index, "size": size}

    def sync(self, rank, name, peers=None):
        ids = [self.peers(rank).index(p) for p in (self.peers(rank) if peers is None else peers)]
        return {"name": name, "channel_ids": ids, "channel_type": "memory"}

    def text(self):
        return json.dumps(self.plan, indent=1) + "\n"


NOP = {"name": "nop"}


def _op(name, src, dst, **more):
    reduce = {"reduce_op": "sum"} if name.startswith("r") else {}
    return {"name": name, "src_buff": src, "dst_buff": dst, **reduce, **more}


def put_all_gather(world):
    """Everyone puts its chunk into everyone's output and signals; all wait for all."""
    p = Plan("put_all_gather", "allgather", world, 1, world)
    for r in range(world):
        puts = [_op("put", [p.near("i", 0)], [p.far(r, q, "o", r)], channel_type="memory") for q in p.peers(r)]
        p.block(r, [*puts, NOP, p.sync(r, "signal"), p.sync(r, "wait"), NOP])
    return p.text()


def get_all_gather(world):
    """Everyone fetches, after a handshake; and another one before anyone leaves."""
    p = Plan("get_all_gather", "allgather", world, 1, world)
    for r in range(world):
        gets = [_op("get", [p.far(r, q, "o", q)], [p.near("o", q)], channel_type="memory") for q in p.peers(r)]
        hands = [p.sync(r, "rlxsignal"), p.sync(r, "rlxwait"), NOP]
        p.block(r, [*hands, *gets, NOP, *hands])
    return p.text()


def read_all_reduce(world):
    """Rank r reads chunk r from all, adds, and stores the sum everywhere: rres."""
    p = Plan("read_all_reduce", "allreduce", world, world, world, kinds="i")
    for r in range(world):
        far = [p.far(r, q, "i", r) for q in p.peers(r)]
        mine = p.near("i", r)
        p.block(r, [p.sync(r, "rlxsignal"), p.sync(r, "rlxwait"), NOP, _op("rres", [mine, *far], [mine, *far]), NOP,
                    p.sync(r, "signal"), p.sync(r, "wait"), NOP])
    return p.text()


def two_block_reduce_scatter(world):
    """Put the addends into scratch; two threadblocks meet at a barrier, and the second adds up: re."""
    p = Plan("two_block_reduce_scatter", "reducescatter", world, world, 1, scratch=world, inplace=False, kinds="s")
    for r in range(world):
        meet = {"name": "barrier", "barrier_id": 0, "num_threadblocks": 2}
        puts = [_op("put", [p.near("i", q)], [p.far(r, q, "s", r)], channel_type="memory") for q in p.peers(r)]
        p.block(r, [*puts, NOP, p.sync(r, "signal"), p.sync(r, "wait"), meet])
        p.block(r, [meet, _op("re", [p.near("i", r), *[p.near("s", q) for q in p.peers(r)]], [p.near("o", 0)])])
    return p.text()


def exchange_all_reduce():
    """Two ranks: each adds one half with rre or res and passes it on."""
    p = Plan("exchange_all_reduce", "allreduce", 2, 2, 2, scratch=2, kinds="si")
    for r in range(2):
        q, mine = 1 - r, p.near("i", r)
        hands = [NOP, p.sync(r, "signal"), p.sync(r, "wait"), NOP]
        first = _op("copy", [p.near("i", q)], [p.near("s", q)])
        if r == 0:
            add = [_op("rre", [mine, p.far(r, q, "s", r)], [mine]), NOP,
                   _op("put", [mine], [p.far(r, q, "i", r)], channel_type="memory")]
        else:
            add = [_op("get", [p.far(r, q, "s", r)], [p.near("s", r)], channel_type="memory"), NOP,
                   _op("res", [mine, p.near("s", r)], [mine, p.far(r, q, "i", r)])]
        p.block(r, [first, *hands, *add, *hands])
    return p.text()


def put_all_to_all(world):
    p = Plan("put_all_to_all", "alltoall", world, world, world, inplace=False)
    for r in range(world):
        puts = [_op("put", [p.near("i", q)], [p.far(r, q, "o", r)], channel_type="memory") for q in p.peers(r)]
        own = _op("copy", [p.near("i", r)], [p.near("o", r)])
        p.block(r, [own, *puts, NOP, p.sync(r, "signal"), p.sync(r, "wait"), NOP])
    return p.text()


# (text, contract, world size)
PROGRAMS = {
    "ring all-gather": (ring_all_gather(4), "all_gather", 4),
    "ring all-gather, out of place": (ring_all_gather(3, inplace=0), "all_gather", 3),
    "all-pairs all-gather": (all_pairs_all_gather(4), "all_gather", 4),
    "hierarchical all-gather": (hierarchical_all_gather(2, 3), "all_gather", 6),
    "ring reduce-scatter": (ring_reduce_scatter(4), "reduce_scatter", 4),
    "ring reduce-scatter of two parts": (ring_reduce_scatter(3, 2), "reduce_scatter", 3),
    "all-pairs reduce-scatter": (all_pairs_reduce_scatter(4), "reduce_scatter", 4),
    "ring all-reduce": (ring_all_reduce(4), "all_reduce", 4),
    "ring all-reduce on two channels": (ring_all_reduce(3, 2), "all_reduce", 3),
    "all-pairs all-reduce": (all_pairs_all_reduce(4), "all_reduce", 4),
    "all-to-all": (all_to_all(4), "all_to_all", 4),
    "put all-gather": (put_all_gather(3), "all_gather", 3),
    "get all-gather": (get_all_gather(3), "all_gather", 3),
    "read all-reduce": (read_all_reduce(3), "all_reduce", 3),
    "reduce-scatter with a barrier": (two_block_reduce_scatter(3), "reduce_scatter", 3),
    "exchange all-reduce": (exchange_all_reduce(), "all_reduce", 2),
    "put all-to-all": (put_all_to_all(3), "all_to_all", 3),
}

FILES = {
    "ring_all_gather_4.xml": ring_all_gather(4),
    "hierarchical_all_gather_2x2.xml": hierarchical_all_gather(2, 2),
    "ring_reduce_scatter_4.xml": ring_reduce_scatter(4),
    "all_pairs_all_reduce_3.xml": all_pairs_all_reduce(3),
    "all_to_all_3.xml": all_to_all(3),
    "put_all_gather_3.json": put_all_gather(3),
    "get_all_gather_3.json": get_all_gather(3),
    "read_all_reduce_2.json": read_all_reduce(2),
    "two_block_reduce_scatter_2.json": two_block_reduce_scatter(2),
}

if __name__ == "__main__":
    for name, text in FILES.items():
        (FOLDER / name).write_text(text, encoding="utf-8")

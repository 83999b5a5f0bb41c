"""What MODEL.md says in words: of what the model stands for, what was fitted, and where it is weakest."""

HEAD = """# The cost model against measurements

Written by `python tests/bench/model_errors.py > tests/bench/MODEL.md` from `recorded.json`, which holds the rows of
[RESULTS.md](RESULTS.md) and those taken before the compiler existed; a test writes it again and compares. Times in
us. Where they disagree the measurement is right.

The model stands for GPUs under load: graphs of 16 ms, in which long products hold an H200 at its power cap (690 to
700 TFLOP/s of a bf16 product; cool it does 740 to 810). What runs for a shorter time, such as what is tuned, takes up
to 10 % less than it says. It predicts the kernel that a module runs at that size: specialised warps on Hopper where
plan/tile_kernels.toml has them, else Triton's, or the library's.

Fitted were, on the rows marked "yes" and those named at the layers:

- on all GEMMs of one H200, and of the two-GPU table on M = 2048 and 8192: `inner_loop`, `library_loop`, `memory` of
  the h200; `tile_stores` of nvlink; `kernel_us`, `first_tile_us`, `ticket_us`, `store_gbs`, `library_gemm_us`;
- on ag_gemm of 512 and 1024 rows: `copy_us`, the start of a copy engine whose lane was idle;
- on products by specialised warps and on the layers: `warps_loop` of the h200, the one figure that their kernel has
  of its own; all else is what happens beside the steps of the next tile. `library`, `library_reduce`,
  `library_all_reduce`, `library_us` of nvlink on NCCL in all tables;
- on products of few tiles, those of 256 columns: `capped` and `boost` of the h200, between which clocks follow the cube
  root of how many multiprocessors are busy; tiles of 128 columns and Triton's are held out;
- `warp_stores` of nvlink is that of other programs, which rows of a short depth need;
- behind the host link, at the clock of each run (that at which its cuBLAS took what it took): `warp_stores` of pcie on
  r8, `program_gbs` and `tma_program_gbs` on two programs by each, `crowding` on four programs by loads and stores;
- on the smallest payload of each form of small all-reduce: `word_us` of nvlink; `exchange_us`, `fence_us`, `read_us`,
  `empty_us`, `row_us`.

All other rows are held out. Figures of other GPUs than the h200, of links between nodes and of more than two ranks
are data sheets and assumptions: **no row is of more than two GPUs, and none of two nodes**. What is said of 4 and 8
ranks and of two tiers rests on its form alone. Of clocks the model knows that they rise where multiprocessors are
idle, and no more: under its power cap an H200 drifts by 10 % from one run to the next, and the rows come from several
runs; only fused calls behind the host link are predicted at the clock of theirs, which was 15 % higher. Tables that
name no kernel are of modules of which all tiles were Triton's, and so are their predictions.
"""
WEAKEST = """
Weakest, and why:

- **cuBLAS's small products** take up to 32 % less than the model says, also with higher clocks: it shares the depth of
  a tile out where tiles are few. NCCL + cuBLAS of 512 rows took 49 to 60 us of one op in three runs; the model says 49.
- **Narrow tiles of 96 and 128 multiprocessors** took 9 and 11 % less than the model says: they ran in turns with
  kernels that leave half of the machine idle, and clocks follow what runs in some milliseconds, not one kernel. Of
  layers of 256 rows there is only what was tuned when tiles were wide at all sizes: reductions took 168 to 185 us, the
  model says 153 to 164; a gather 92, and 77.
- **First modules of 512 rows**, 2026-11-29, took 11 to 29 % longer than the model says, as they did from 1024 rows on,
  since it knows that clocks are higher there; before, two errors met. `copy_us` stays what was fitted on two of them.
- **NCCL + cuBLAS of gemm_ar**, and ours there: the fallback of that day copied what it added up, at a small part of
  the memory's bandwidth; graphs had few calls. The layers have the same product without either.
- **NCCL's all-gathers by themselves** take 20 to 40 % longer than the model says, those in front of a product, which
  the fallback has, do not. **NCCL's small all-reduces** took 13 to 20 us in three runs and 9 to 14 in the decode loop
  and before the compiler; the model says 17.
- **GEMM + reduce-scatter and all-reduce of the first modules**, all tiles Triton's, took 13 to 19 % longer than the
  model says from 1024 and 4096 rows on; the layers by the same kernel 1 to 4 % less. Why was not found out.
- **Prototypes of small all-reduces** started behind the kernel ahead of them; a module's start while it still runs,
  which is worth 0.4 to 0.5 us a call. All-reduces with barriers beyond 32 KiB are slower than the model knows.
- **A user's kernel by ticket**: the model knows one program for a multiprocessor; the kernel has two.
- GEMMs behind the host link were measured on a cooler chip; so cuBLAS there, and what comes one after the other.
- **Loads and stores of programs behind the host link** that offer more than it takes hold a product up, the kernel of
  specialised warps more than Triton's: 0.12 and 0.30 of the transfer's time, where the model says 0.20. Programs of
  the day before hid 5 % less than the later ones.
- The run of multi_gpu.py on two GPUs is older than what is predicted for it: its ag_gemm pulled, its kernels did not
  start beside those ahead, its reductions ended with a barrier. No table of two GPUs has calls of two buffers that are
  larger than 1 MiB.

Rows of RESULTS.md without a line here are no predictions of this model: torch's own all-reduces (other people's
kernels; its async TP too), 99th percentiles (the model has no jitter), whole steps of the decode loop and tokens a
second (their attention and projections are not in the spec; what one all-reduce adds is below), the host's time for
an eager call (the dispatcher's), whose gate is that of a call in graphs (a test holds it against the rows that were
measured), products with waits and signals, which specialised warps do beside their steps (within 1 % of the kernels
alone), `exact` and everything about bits; what a second buffer saves, in calls whose peer is gone; the second run of
small all-reduces, which measures what the first one has, and virtual ranks, which have no link.
"""

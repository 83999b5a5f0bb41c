"""The Python form of a spec: `chunkdsl.compile` of a Triton kernel in the program that calls it.

What a call shows (tensors, numbers, constants, grid) and a `ChunkSchedule` become the text of a spec, and that goes the
way of every spec. Nothing is planned, proven or rendered here.
"""

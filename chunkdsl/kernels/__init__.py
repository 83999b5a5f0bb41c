"""Users' single-GPU Triton kernels: read, traced, rewritten. Knows nothing of specs, schedules or ranks."""

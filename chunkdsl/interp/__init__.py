"""Triton's CPU interpreter, repaired and switched on for the length of a `with` block.

`interpreting(memory)` makes every `@triton.jit` function callable as ordinary Python; `bind` prepares the arguments
of a launch; a `Memory` sees each access. Nothing is patched at import and no environment variable is read, so the
same imported module can be interpreted and compiled ahead of time in one process, in either order.

It does not schedule programs, know ranks or find races: that is `chunkdsl.sim`.
"""

from chunkdsl.interp.arguments import bind
from chunkdsl.interp.memory import Memory
from chunkdsl.interp.switch import Interpreter, interpreting

__all__ = ["Interpreter", "Memory", "bind", "interpreting"]

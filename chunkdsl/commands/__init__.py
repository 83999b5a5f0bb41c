"""The commands, one module each: `configure(subparsers)` declares its arguments, `run(args)` returns the exit code.

A new command is one module and its name in NAMES. Modules are imported on every call, so they import what they need
inside `run`. What several commands share is in chunkdsl/arguments.py.
"""

NAMES = ("check", "fmt", "new", "lsp", "build", "plan", "timeline", "tune", "explain", "verify")

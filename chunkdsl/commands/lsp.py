"""`chunkdsl lsp`: the language server that editors start. It speaks over standard input and output."""

from __future__ import annotations

import argparse
import gc
import sys


def configure(subparsers) -> None:
    parser = subparsers.add_parser("lsp", help="serve an editor (extra: lsp)", description=__doc__)
    parser.add_argument("--stdio", action="store_true", help="the default, and all there is; some editors insist on it")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """0 when the editor has gone, 2 without pygls."""
    try:
        from chunkdsl.lsp.server import make_server
    except ModuleNotFoundError as error:
        if error.name not in ("pygls", "lsprotocol"):
            raise
        print("chunkdsl lsp needs pygls: pip install 'chunkdsl[lsp]'", file=sys.stderr)
        return 2
    # An answer makes thousands of objects and hardly a cycle; the server looks for those when nothing else is to do.
    gc.set_threshold(100_000, 20, 20)
    make_server().start_io()
    return 0

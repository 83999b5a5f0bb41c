"""Completion as a person has it: a shell on a terminal, part of a line, the tab key. For each shell that is there."""

import fcntl
import os
import pty
import select
import shutil
import subprocess
import sys
import termios
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PATIENCE = 300  # seconds: only a hang takes longer
SHELLS = {
    "bash": (["bash", "--norc", "--noprofile", "-i"], 'eval "$(register-python-argcomplete chunkdsl)"'),
    "zsh": (["zsh", "-f", "-i"],
            'autoload -U compinit && compinit -u -D; eval "$(register-python-argcomplete chunkdsl)"'),
    "fish": (["fish", "--no-config", "-i"], "register-python-argcomplete --shell fish chunkdsl | source"),
}  # fmt: skip
TYPED = {
    "chunkdsl chec": "chunkdsl check",
    "chunkdsl check --out": "chunkdsl check --output-format",
    "chunkdsl check specs/on": "chunkdsl check specs/one.chunk",
    "chunkdsl new decode_al": "chunkdsl new decode_all_reduce",
    "chunkdsl explain contracted-s": "chunkdsl explain contracted-sizes-differ",
}
TAB, START_OF_LINE, END_OF_LINE = "\t\x01\x05"


def control():
    """Make the terminal on standard input that of this session."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


class Terminal:
    """A shell with a terminal, in a folder that has a spec and, on its path, a command `chunkdsl`."""

    def __init__(self, command, folder):
        (folder / "bin").mkdir()
        (folder / "specs").mkdir()
        (folder / "specs" / "one.chunk").touch()
        start = folder / "bin" / "chunkdsl"
        start.write_text(f"#!{sys.executable}\nfrom chunkdsl.cli import entry\nentry()\n")
        start.chmod(0o755)
        path = os.pathsep.join([str(start.parent), str(Path(sys.executable).parent), os.environ["PATH"]])
        environment = {"PATH": path, "PYTHONPATH": str(ROOT), "HOME": str(folder), "TERM": "xterm", "LC_ALL": "C.UTF-8"}
        self.file, inner = pty.openpty()
        self.process = subprocess.Popen(command, stdin=inner, stdout=inner, stderr=inner, env=environment, cwd=folder,
                                        start_new_session=True, preexec_fn=control)
        os.close(inner)
        self.said = b""

    def type(self, keys, until):
        os.write(self.file, keys.encode())
        while until.encode() not in self.said:
            ready, _, _ = select.select([self.file], [], [], PATIENCE)
            assert ready, self.said
            self.said += os.read(self.file, 1 << 16)
        self.said = b""

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self.file)


@pytest.mark.parametrize("shell", SHELLS)
def test_the_tab_key_completes(shell, tmp_path):
    command, setup = SHELLS[shell]
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} here")
    terminal = Terminal(command, tmp_path)
    try:
        terminal.type(f"{setup}; echo set''up\n", "setup")
        for line in TYPED:
            # What the line has become goes into a file: the screen holds it in pieces.
            terminal.type(f"{line}{TAB}{START_OF_LINE}echo '{END_OF_LINE}' >>typed; echo writ''ten\n", "written")
    finally:
        terminal.close()
    assert [line.strip() for line in (tmp_path / "typed").read_text().splitlines()] == list(TYPED.values())

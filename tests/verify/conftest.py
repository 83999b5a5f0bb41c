"""A small spec that goes the whole way in seconds."""

import pytest

SPEC = """mesh tp[2] over nvlink
dim M = 0..256
dim H = 128
dim N = 256
tensor x : bf16[M @ tp, H]
tensor w : bf16[N @ tp, H]
op proj(x, w) -> y {
    y = all_gather(x) @ w.T with { tile = 128x64x64, chunk = 64 along M, via = ldst, place = co_located }
}
"""
TINY = """mesh tp[2] over nvlink
dim M = 0..24
dim H = 24
dim N = 48
tensor x : f32[M @ tp, H]
tensor w : f32[N @ tp, H]
op proj(x, w) -> y { y = all_gather(x) @ w.T with { tile = 16x16x16, chunk = 8 along M, via = ldst } }
"""


@pytest.fixture
def spec(tmp_path, monkeypatch):
    """Path of the spec, in the current folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.chunk").write_text(SPEC)
    return "small.chunk"


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """Path of a spec so small that it is simulated as it is."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.chunk").write_text(TINY)
    return "tiny.chunk"


@pytest.fixture
def call(capsys):
    """`call("verify", ...)`: exit code, standard output, standard error."""
    from chunkdsl.cli import main

    def run(*argv):
        code = main(argv)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run

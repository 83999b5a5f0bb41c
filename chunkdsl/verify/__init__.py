"""`chunkdsl verify`: the module that a spec builds, run and compared on simulated ranks, compiled for every target."""

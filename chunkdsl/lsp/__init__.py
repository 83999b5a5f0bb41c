"""The language server: converts between the Language Server Protocol and `editor/`, and nothing else."""

"""What an editor asks about a spec, in code-point offsets. Speaks no protocol; imports nothing beyond the compiler."""

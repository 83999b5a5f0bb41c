"""The stages by name, in order, on one screen. Interpreter, simulator and compiler are imported only when asked for."""

from __future__ import annotations

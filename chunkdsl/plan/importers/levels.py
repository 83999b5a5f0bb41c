"""Least levels of numbered things that constrain each other: b at least `gap` (0 or 1) above a.

Things that must not lie above each other share a level; a circle with a gap in it has none. Strongly connected
components after Tarjan (1972), without recursion.
"""

from __future__ import annotations

Edge = tuple[int, int, int]  # a, b, gap


def find_levels(count: int, edges: list[Edge]) -> tuple[list[int], list[int]]:
    """(levels, ()): the least levels; or ([], things in a circle that cannot be)."""
    after: list[list[int]] = [[] for _ in range(count)]
    for a, b, _ in edges:
        after[a].append(b)
    component, order = _components(count, after)
    for a, b, gap in edges:
        if gap and component[a] == component[b]:
            return [], [i for i in range(count) if component[i] == component[a]]
    leading: list[list[tuple[int, int]]] = [[] for _ in order]  # of a component, to others
    for a, b, gap in edges:
        if component[a] != component[b]:
            leading[component[a]].append((component[b], gap))
    levels = [0] * len(order)
    for c in order:
        for other, gap in leading[c]:
            levels[other] = max(levels[other], levels[c] + gap)
    return [levels[component[i]] for i in range(count)], []


def _components(count: int, after: list[list[int]]) -> tuple[list[int], list[int]]:
    """The component of each thing, and the components in an order that all edges between them follow."""
    index, low, component = [-1] * count, [0] * count, [-1] * count
    stack: list[int] = []
    seen = found = 0
    for root in range(count):
        if index[root] >= 0:
            continue
        index[root] = low[root] = seen
        seen += 1
        stack.append(root)
        path = [(root, iter(after[root]))]
        while path:
            at, rest = path[-1]
            for b in rest:
                if index[b] < 0:
                    index[b] = low[b] = seen
                    seen += 1
                    stack.append(b)
                    path.append((b, iter(after[b])))
                    break
                if component[b] < 0:
                    low[at] = min(low[at], index[b])
            else:
                path.pop()
                if path:
                    low[path[-1][0]] = min(low[path[-1][0]], low[at])
                if low[at] == index[at]:
                    while True:
                        b = stack.pop()
                        component[b] = found
                        if b == at:
                            break
                    found += 1
    return component, list(range(found - 1, -1, -1))

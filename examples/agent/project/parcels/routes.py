"""Routes: the shortest way between depots (Dijkstra, 1959)."""

import heapq
from random import Random

Roads = dict[int, list[tuple[int, int]]]


def random_roads(depots: int, seed: int) -> Roads:
    """Return a network in which every depot has roads to the next one and to four others."""
    random = Random(seed)
    roads: Roads = {depot: [] for depot in range(depots)}
    for depot in range(depots):
        for other in ((depot + 1) % depots, *random.sample(range(depots), 4)):
            length = random.randint(1, 100)
            roads[depot].append((other, length))
            roads[other].append((depot, length))
    return roads


def distances(roads: Roads, start: int) -> dict[int, int]:
    """Return the length of the shortest way to each depot."""
    found: dict[int, int] = {}
    waiting = [(0, start)]
    while waiting:
        length, depot = heapq.heappop(waiting)
        if depot in found:
            continue
        found[depot] = length
        for other, road in roads[depot]:
            if other not in found:
                heapq.heappush(waiting, (length + road, other))
    return found

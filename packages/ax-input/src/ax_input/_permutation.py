"""A keyed permutation of the numbers below ``size``: no table, and any place of it is computed directly.

It is a Feistel network on two digits, ``x = high · b + low`` with ``high < a``, ``low < b`` and ``a · b`` barely above ``size``: the
digits change in turn, each by the addition of a hash of the other (modulo ``a`` or ``b``), which is a bijection whatever the hash.
What falls outside is sent through again until it falls inside (both after Black & Rogaway, "Ciphers with arbitrary finite
domains", 2002). So the order of an epoch needs no memory and no replay, and numpy computes a batch of it at once.

The order of a run is kept by these lines, not by a library's version: they must not change what they give. (Grain has such a
permutation too, for one index a call and for sizes below 2**32; here an array is permuted at once.)
"""

from __future__ import annotations

import hashlib
import math

import numpy as np

_ROUNDS = 8
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_30, _27, _31 = np.uint64(30), np.uint64(27), np.uint64(31)


def key_of(*parts: str | int) -> int:
    """64 bits that stand for ``parts``: equal ones give equal keys, others unrelated ones."""
    text = "\0".join(f"{type(part).__name__}:{part}" for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8, person=b"ax permutation").digest(), "little")


def permute(indices: np.ndarray, *, size: int, key: int) -> np.ndarray:
    """Where ``indices`` (each in [0, size), any shape) are sent: int64 of the same shape, a bijection of [0, size) for every key."""
    a = math.isqrt(size - 1) + 1
    num_high, num_low = np.uint64(a), np.uint64(-(-size // a))
    keys = _mixed(np.uint64(key) + np.arange(1, _ROUNDS + 1, dtype=np.uint64) * _GOLDEN)

    def network(values: np.ndarray) -> np.ndarray:
        high, low = np.divmod(values, num_low)
        for i in range(0, _ROUNDS, 2):
            low = (low + _mixed(high ^ keys[i]) % num_low) % num_low
            high = (high + _mixed(low ^ keys[i + 1]) % num_high) % num_high
        joined: np.ndarray = high * num_low + low
        return joined

    result = network(indices.astype(np.uint64).reshape(-1))
    outside = np.flatnonzero(result >= size)
    while outside.size:
        result[outside] = network(result[outside])
        outside = outside[result[outside] >= size]
    return result.astype(np.int64).reshape(indices.shape)


def _mixed(values: np.ndarray) -> np.ndarray:
    """The finalizer of SplitMix64 (Steele, Lea & Flood, 2014), on 64 bits that wrap around."""
    values = (values ^ (values >> _30)) * _MIX_1
    values = (values ^ (values >> _27)) * _MIX_2
    result: np.ndarray = values ^ (values >> _31)
    return result

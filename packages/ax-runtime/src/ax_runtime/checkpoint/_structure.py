"""Compare what a checkpoint holds with what is asked for, parameter by parameter, before any array is read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import jax
import jax.numpy as jnp

Tree = TypeVar("Tree")

_MOST_SHOWN = 10


def place(abstract: Tree) -> Tree:
    """``abstract`` with the default device for each leaf that names no place."""
    here = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])

    def placed(leaf: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=leaf.sharding or here)

    tree: Tree = jax.tree.map(placed, abstract)
    return tree


def check_structure(saved: object, abstract: object, *, where: str, whole: bool) -> None:
    """Raise ValueError that names each parameter of ``abstract`` which ``saved`` lacks or has in another form.

    With ``whole``, also each that ``saved`` has in excess.
    """
    there = {path: _form(leaf.shape, leaf.dtype) for path, leaf in _by_path(saved).items()}
    wanted = {path: _form(leaf.shape, leaf.dtype) for path, leaf in _by_path(abstract).items()}
    problems = [
        f"{path}: the checkpoint has {there[path]}, wanted is {form}" if path in there
        else f"{path}: not in the checkpoint, wanted is {form}"
        for path, form in wanted.items()
        if there.get(path) != form
    ]  # fmt: skip
    if whole:
        problems += [f"{path}: the checkpoint has {there[path]}, not wanted" for path in there if path not in wanted]
    _raise_if_any(problems, where)


def expected(restored: Tree, abstract: Tree, *, where: str) -> Tree:
    """``restored``, after a check that each leaf is of the dtype asked for: a random key's kind is known only now."""
    found = _by_path(restored)
    _raise_if_any(
        [
            f"{path}: the checkpoint has {found[path].dtype}, wanted is {leaf.dtype}"
            for path, leaf in _by_path(abstract).items()
            if found[path].dtype != leaf.dtype
        ],
        where,
    )
    return restored


def _raise_if_any(problems: list[str], where: str) -> None:
    if not problems:
        return
    more = len(problems) - _MOST_SHOWN
    raise ValueError(
        f"{where} does not fit:\n"
        + "\n".join(f"  {problem}" for problem in problems[:_MOST_SHOWN])
        + (f"\n  … and {more} more" if more > 0 else "")
    )


def _by_path(tree: object) -> Mapping[str, jax.ShapeDtypeStruct]:
    """Leaves by their path; anything with shape and dtype passes for a ShapeDtypeStruct here."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in leaves}


def _form(shape: tuple[int, ...], dtype: jax.typing.DTypeLike) -> str:
    """Dtype and shape as stored, such as ``float32[3,4]``; of a random key, those of its data."""
    if jnp.issubdtype(dtype, jax.dtypes.prng_key):
        data = jax.eval_shape(jax.random.key_data, jax.ShapeDtypeStruct(shape, dtype))
        shape, dtype = data.shape, data.dtype
    return f"{jnp.dtype(dtype).name}[{','.join(map(str, shape))}]"

"""Configs as plain data, for tools that know nothing of Python: JSON and YAML.

One way only (``dumps`` is what reads back). A config is a mapping of its fields; where it came from stands under a key with a
dollar sign, which no field's name has:

| value | plain |
|---|---|
| a config | ``{"$new": "module:Class", field: …}``; of a function ``{"$call": …}``, ``{"$partial": …}``, ``{"$modify": …}`` |
| an opened field | ``{"$open": true}`` |
| a class or a function | ``{"$name": "module:thing"}`` |
| an enum's member | ``{"$enum": "module:Class.MEMBER"}`` |
| a frozen dataclass | ``{"$data": "module:Class", field: …}`` |
| a dtype | ``{"$dtype": "bfloat16"}`` |
| bytes | ``{"$bytes": "base64"}`` |
| a tuple or a list | a list |
| a dict | a mapping; a key that begins with a dollar sign gets a second one |

Numbers, strings, booleans and None are themselves. Infinities and NaN are floats too, which YAML can write and JSON only in
Python's way (``Infinity``, ``NaN``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TypeAlias, Union, cast

from ._config import Config, is_dataclass
from ._text import OPEN, PLAIN, Writer

Plain: TypeAlias = Union[bool, int, float, str, list["Plain"], dict[str, "Plain"], None]  # noqa: UP007  # it names itself


def to_plain(config: Config[object]) -> dict[str, Plain]:
    """The config as nested dicts, lists, strings and numbers; see the module for the shape.

    Raises:
        TextError: A value can't be imported by name.
    """
    return cast("dict[str, Plain]", _plain(config, Writer()))


def to_json(config: Config[object]) -> str:
    """``to_plain`` as JSON, indented."""
    import json

    text = json.dumps(to_plain(config), indent=2, ensure_ascii=False)
    if re.search("[\ud800-\udfff]", text):  # halves of characters, which no file holds
        text = json.dumps(to_plain(config), indent=2)
    return f"{text}\n"


def to_yaml(config: Config[object]) -> str:
    """``to_plain`` as YAML in block style; every YAML 1.1 or 1.2 reader gives the same data."""
    return "".join(f"{line}\n" for line in _block(to_plain(config)))


def _plain(value: object, writer: Writer) -> Plain:
    if isinstance(value, bytes):
        import base64

        return {"$bytes": base64.b64encode(value).decode()}
    if value is OPEN:
        return {"$open": True}
    if isinstance(value, list | tuple):
        return [_plain(item, writer) for item in value]
    if isinstance(value, dict):
        return {f"${k}" if k.startswith("$") else k: _plain(v, writer) for k, v in value.items()}
    if type(value) in PLAIN or type(value) is float:
        return cast("Plain", value)
    text, parts = writer.told(value)
    kind, _, rest = text.partition(" ")
    if isinstance(value, Config):
        return {f"${kind}": rest, **{step[1:]: _plain(item, writer) for step, item in parts}}
    if is_dataclass(value):
        fields = writer.fields(value).items()
        return {"$data": rest.partition(" ")[0], **{name: _plain(item, writer) for name, item in fields}}
    return {f"${kind}": rest}


_BARE = re.compile(r"[A-Za-z_$][A-Za-z0-9_$./-]*(?::[A-Za-z0-9_$./-]+)*", re.ASCII)
"""Strings that mean themselves without quotes, if they are no word that YAML 1.1 has another use for."""

_WORDS = frozenset(["y", "n", "yes", "no", "on", "off", "true", "false", "null"])
_WIDTH = 100


def _block(value: Plain) -> Iterator[str]:
    """The lines of a value that stands in lines of its own."""
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _entry(f"{_string(key)}:", item)
    elif isinstance(value, list) and value:
        for item in value:
            if (isinstance(item, dict) and item) or (isinstance(item, list) and item and _flow(item) is None):
                first, *rest = _block(item)
                yield f"- {first}"
                yield from (f"  {line}" if line else line for line in rest)
            else:
                yield from _entry("-", item)
    else:
        yield cast("str", _flow(value))


def _entry(start: str, value: Plain) -> Iterator[str]:
    text = _literal_block(value) if isinstance(value, str) else None
    if text is not None:
        yield f"{start} {text[0]}"
        yield from (f"  {line}" if line else line for line in text[1:])
        return
    flow = _flow(value)
    if flow is not None:
        yield f"{start} {flow}"
    else:
        yield start
        yield from (f"  {line}" if line else line for line in _block(value))


def _flow(value: Plain) -> str | None:
    """The value in one line, if it is a scalar, empty, or a short list of scalars."""
    if isinstance(value, dict):
        return None if value else "{}"
    if isinstance(value, list):
        if any(isinstance(item, dict | list) for item in value):
            return None
        line = f"[{', '.join(cast('str', _flow(item)) for item in value)}]"
        return line if len(line) <= _WIDTH else None
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, float):
        return _float(value)
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _float(value: float) -> str:
    text = repr(value)
    if text.lstrip("-") in ("inf", "nan"):
        return text.replace("inf", ".inf").replace("nan", ".nan")
    mantissa, e, exponent = text.partition("e")
    return text if "." in mantissa else f"{mantissa}.0{e}{exponent}"  # YAML 1.1 takes 1e-05 for a string


def _string(value: str) -> str:
    if _BARE.fullmatch(value) and value.lower() not in _WORDS:
        return value
    return '"' + "".join(_escaped(char) for char in value) + '"'


def _escaped(char: str) -> str:
    if char in '"\\':
        return f"\\{char}"
    if char.isprintable():
        return char
    if char == "\n":
        return "\\n"
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _literal_block(value: str) -> list[str] | None:
    """The lines of a text of several lines as it stands, where YAML keeps it so."""
    lines = value.split("\n")
    end = "|-" if lines[-1] else "|"
    lines = lines if lines[-1] else lines[:-1]
    if len(lines) < 2 or not lines[0] or not lines[-1] or not all(line.isprintable() for line in lines):
        return None
    return None if lines[0].startswith(" ") else [end, *lines]

"""Hierarchical, typed, composable configs; the standard library only.

Start with ``Config``; ``config_for`` and ``partial_for`` make configs of other people's functions; ``walk``, ``select`` and
``replace`` work on whole trees; ``dumps`` and ``loads`` give their text; ``override`` reads ``path=value``.
"""

from ._callables import built as built
from ._callables import config_for as config_for
from ._callables import partial_for as partial_for
from ._config import Config as Config
from ._config import fields_of as fields_of
from ._config import path_of as path_of
from ._config import values_of as values_of
from ._errors import ConfigError as ConfigError
from ._errors import ConflictError as ConflictError
from ._errors import FieldTypeError as FieldTypeError
from ._errors import MissingFieldError as MissingFieldError
from ._errors import NoMatchError as NoMatchError
from ._errors import TextError as TextError
from ._errors import UnknownFieldError as UnknownFieldError
from ._errors import nearest as nearest
from ._fields import REQUIRED as REQUIRED
from ._fields import Field as Field
from ._fields import field as field
from ._modify import AnyModifier as AnyModifier
from ._modify import Modifier as Modifier
from ._modify import chain as chain
from ._modify import replacing as replacing
from ._modify import setting as setting
from ._override import override as override
from ._override import settable_paths as settable_paths
from ._text import Change as Change
from ._text import diff as diff
from ._text import dumps as dumps
from ._text import fingerprint as fingerprint
from ._text import flatten as flatten
from ._text import import_by_name as import_by_name
from ._text import import_name as import_name
from ._text import loads as loads
from ._tree import Target as Target
from ._tree import describes as describes
from ._tree import get_at as get_at
from ._tree import leaves as leaves
from ._tree import replace as replace
from ._tree import select as select
from ._tree import set_at as set_at
from ._tree import walk as walk
from ._version import __version__ as __version__
from .protocols import Buildable as Buildable

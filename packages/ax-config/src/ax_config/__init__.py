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
from ._diff import Change as Change
from ._diff import diff as diff
from ._diff import diff_texts as diff_texts
from ._diff import render_diff as render_diff
from ._errors import ConfigError as ConfigError
from ._errors import ConflictError as ConflictError
from ._errors import FieldTypeError as FieldTypeError
from ._errors import MissingFieldError as MissingFieldError
from ._errors import NoMatchError as NoMatchError
from ._errors import TextError as TextError
from ._errors import UnknownFieldError as UnknownFieldError
from ._errors import nearest as nearest
from ._explain import Explanation as Explanation
from ._explain import Step as Step
from ._explain import explain as explain
from ._export import to_json as to_json
from ._export import to_plain as to_plain
from ._export import to_yaml as to_yaml
from ._fields import REQUIRED as REQUIRED
from ._fields import Field as Field
from ._fields import field as field
from ._loads import loads as loads
from ._modifier import AnyModifier as AnyModifier
from ._modifier import Modifier as Modifier
from ._modifier import modifier_for as modifier_for
from ._names import import_by_name as import_by_name
from ._names import import_name as import_name
from ._override import override as override
from ._override import settable_paths as settable_paths
from ._replace import Replacement as Replacement
from ._replace import replace as replace
from ._text import dumps as dumps
from ._text import fingerprint as fingerprint
from ._text import flatten as flatten
from ._tree import get_at as get_at
from ._tree import leaves as leaves
from ._tree import map_values as map_values
from ._tree import set_at as set_at
from ._tree import walk as walk
from ._version import __version__ as __version__
from .modifiers import chain as chain
from .modifiers import for_each as for_each
from .modifiers import overriding as overriding
from .modifiers import replacing as replacing
from .modifiers import setting as setting
from .modifiers import when as when
from .protocols import Buildable as Buildable
from .selectors import Target as Target
from .selectors import describes as describes
from .selectors import role as role
from .selectors import select as select

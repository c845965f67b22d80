"""Mesh rules: from the accelerator's name to what has to change in a config for it.

What depends on the hardware (the mesh's shape, what is rematerialised, precision, kernels) stands in no layer and no
recipe, but in rules over the config's tree:

    rules = MeshRules(rules={"cpu-*": chain(), "h100-*": setting(Mesh, axes={"data": -1, "fsdp": 8})})
    config = rules.build(accelerator="h100-64")(config)
"""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import final

from ax_config import REQUIRED, Config, Modifier, NoMatchError, nearest


@final
class MeshRules(Modifier):
    """The modifier that the first pattern to match the accelerator's name has.

    Attributes:
        rules: Modifiers by pattern, in which ``*`` stands for anything.
        accelerator: What to apply them for; see ``accelerator_name``.
    """

    rules: dict[str, Callable[[Config[object]], Config[object]]]
    accelerator: str = REQUIRED

    def apply(self, tree: Config[object]) -> Config[object]:
        """Apply the rule; there has to be one, if only ``chain()``, which changes nothing.

        Raises:
            NoMatchError: No pattern matches; with the nearest ones.
        """
        for pattern, modifier in self.rules.items():
            if fnmatchcase(self.accelerator, pattern):
                return modifier(tree)
        kinds = [pattern.partition("-")[0] for pattern in self.rules]
        near = nearest(self.accelerator.partition("-")[0], kinds).replace("legal names", "there are rules for")
        raise NoMatchError(f"no mesh rule matches the accelerator {self.accelerator!r}; {near}")

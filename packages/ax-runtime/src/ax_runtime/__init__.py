"""Everything around a training job: its folder, its signals, its checkpoints and its metric files.

``ax_runtime.agent`` needs neither JAX nor any third party; ``ax_runtime.checkpoint`` needs the extra ``orbax``,
``ax_runtime.tensorboard``, ``.prometheus``, ``.wandb`` and ``.mlflow`` the extras of their names. Import the one you use.
"""

from ._version import __version__ as __version__

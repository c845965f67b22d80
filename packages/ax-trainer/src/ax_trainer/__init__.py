"""A training loop for any JAX model, over optax."""

from ._divergence import Difference as Difference
from ._divergence import differences as differences
from ._divergence import first_divergence as first_divergence
from ._divergence import layer_by_layer as layer_by_layer
from ._divergence import observe as observe
from ._evaluator import Evaluator as Evaluator
from ._learner import Learner as Learner
from ._learner import decay_mask as decay_mask
from ._logbook import NonFiniteError as NonFiniteError
from ._speed import Speedometer as Speedometer
from ._state import TrainState as TrainState
from ._state import abstract_state as abstract_state
from ._state import init_state as init_state
from ._step import CompiledStep as CompiledStep
from ._step import compile_step as compile_step
from ._step import eval_step as eval_step
from ._step import lower_step as lower_step
from ._step import train_step as train_step
from ._trainer import CheckpointError as CheckpointError
from ._trainer import Result as Result
from ._trainer import Trainer as Trainer
from ._version import __version__ as __version__

"""The catalogue of training configs, and the experiment that they describe. The ``ax`` command is ``ax_recipes.cli``."""

from ._catalogue import CATALOGUE as CATALOGUE
from ._catalogue import Recipe as Recipe
from ._catalogue import effective as effective
from ._catalogue import goldens as goldens
from ._catalogue import recipe as recipe
from ._evaluation import Evaluation as Evaluation
from ._experiment import Experiment as Experiment
from ._experiment import ExperimentError as ExperimentError
from ._experiment import Plan as Plan
from ._experiment import for_accelerator as for_accelerator
from ._models import model as model
from ._models import model_names as model_names
from ._version import __version__ as __version__

"""Device meshes, logical axis rules and shardings by config.

Models name their dims ("batch", "embed", "heads", …); a :class:`Mesh` knows which devices there are and by which rules
those names fall onto them.
"""

from ._accelerators import ACCELERATORS as ACCELERATORS
from ._accelerators import Accelerator as Accelerator
from ._accelerators import AcceleratorGroup as AcceleratorGroup
from ._accelerators import accelerator_group as accelerator_group
from ._accelerators import accelerator_name as accelerator_name
from ._collectives import Collective as Collective
from ._compiler_options import COMPILER_OPTIONS as COMPILER_OPTIONS
from ._compiler_options import CompilerOptions as CompilerOptions
from ._compiler_options import compiler_options as compiler_options
from ._flops import flops as flops
from ._layout import Placement as Placement
from ._lint import ASKED as ASKED
from ._lint import Surprise as Surprise
from ._lint import lint as lint
from ._mesh import Mesh as Mesh
from ._mesh_rules import MeshRules as MeshRules
from ._overlap import Overlap as Overlap
from ._peak_flops import PeakFlops as PeakFlops
from ._peak_flops import peak_flops as peak_flops
from ._program import Memory as Memory
from ._program import Program as Program
from ._program import compile_program as compile_program
from ._reshard import reshard as reshard
from ._resolve import AxisSizeError as AxisSizeError
from ._rules import DEFAULT_RULES as DEFAULT_RULES
from ._rules import Rule as Rule
from ._rules import ShardingRuleError as ShardingRuleError
from ._topology import TopologyError as TopologyError
from ._topology import slice_shape as slice_shape
from ._topology import topology as topology
from ._version import __version__ as __version__

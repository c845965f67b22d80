"""Real shapes, float64 oracles, and suites to inherit: what a backend of one of these ops must pass."""

from ._attention_cases import ATTENTION_CASES as ATTENTION_CASES
from ._attention_cases import AttentionCase as AttentionCase
from ._attention_cases import attention_case as attention_case
from ._attention_oracle import attention_oracle as attention_oracle
from ._attention_suite import Attention as Attention
from ._attention_suite import AttentionSuite as AttentionSuite
from ._cross_entropy_cases import CROSS_ENTROPY_CASES as CROSS_ENTROPY_CASES
from ._cross_entropy_cases import CrossEntropyCase as CrossEntropyCase
from ._cross_entropy_oracle import cross_entropy_oracle as cross_entropy_oracle
from ._cross_entropy_suite import CrossEntropy as CrossEntropy
from ._cross_entropy_suite import CrossEntropySuite as CrossEntropySuite
from ._grouped_matmul_cases import GROUPED_MATMUL_CASES as GROUPED_MATMUL_CASES
from ._grouped_matmul_cases import GroupedMatmulCase as GroupedMatmulCase
from ._grouped_matmul_suite import GroupedMatmul as GroupedMatmul
from ._grouped_matmul_suite import GroupedMatmulSuite as GroupedMatmulSuite

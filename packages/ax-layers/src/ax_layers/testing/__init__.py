"""Checks that any layer, and any implementation of this package's protocols, can be put through.

Each raises AssertionError that says what was wrong; none needs a test framework.
"""

from ._attention_fn import check_attention_fn as check_attention_fn
from ._attention_fn import check_attention_options as check_attention_options
from ._attention_fn import reference_attention as reference_attention
from ._cross_entropy_fn import check_cross_entropy_fn as check_cross_entropy_fn
from ._grouped_matmul import check_grouped_matmul as check_grouped_matmul
from ._kv_cache import check_kv_cache as check_kv_cache
from ._layer import check_extend as check_extend
from ._layer import check_layer as check_layer
from ._partial_attention import check_partial_attention as check_partial_attention
from ._recurrence_fn import check_delta_rule_fn as check_delta_rule_fn
from ._recurrence_fn import check_state_space_fn as check_state_space_fn
from ._sharded import check_sharded as check_sharded
from ._sharder import check_sharder as check_sharder

"""The part of the runtime that knows steps, not tensors: it imports neither JAX nor any third party."""

from ._jsonl import JsonlSink as JsonlSink
from ._jsonl import Record as Record
from ._jsonl import iter_jsonl as iter_jsonl
from ._jsonl import read_jsonl as read_jsonl
from ._local import Outcome as Outcome
from ._local import run_locally as run_locally
from ._run_folder import RunFolder as RunFolder
from ._run_folder import RunFolderError as RunFolderError
from ._run_folder import read_config as read_config
from ._run_folder import read_starts as read_starts
from ._signals import StopOnSignals as StopOnSignals

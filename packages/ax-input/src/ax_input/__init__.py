"""Deterministic, resumable text input pipelines on Grain. No JAX."""

from ._batches import BatchStream as BatchStream
from ._batches import EvaluationBatches as EvaluationBatches
from ._byte_tokenizer import ByteTokenizer as ByteTokenizer
from ._document import Document as Document
from ._errors import BadRecordError as BadRecordError
from ._errors import BadRecordLog as BadRecordLog
from ._errors import DataError as DataError
from ._errors import Reason as Reason
from ._errors import Report as Report
from ._files import Files as Files
from ._files import find_files as find_files
from ._files import standard_library_paths as standard_library_paths
from ._holdout import holdout_mask as holdout_mask
from ._read import read_documents as read_documents
from ._sources import JsonlSource as JsonlSource
from ._sources import ParquetSource as ParquetSource
from ._sources import TextSource as TextSource
from ._sources import open_source as open_source
from ._text_input import TextInput as TextInput
from ._token_store import TokenStore as TokenStore
from ._token_store import Windows as Windows
from ._version import __version__ as __version__

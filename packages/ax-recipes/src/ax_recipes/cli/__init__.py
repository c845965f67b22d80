"""The ``ax`` command: ``ax train``, ``ax generate``, ``ax list``. Each is a thin layer over what the packages do."""

from ._app import main as main

"""``ax data show``."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import numpy as np
from ax_config import loads
from ax_input import PreparedCorpus
from ax_input.protocols import Tokenizer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

_TOKENS = 120
_QUANTILES = (0, 10, 50, 90, 100)


def show(folder: Path, *, num_documents: int, verify: bool) -> None:
    """Print what is there."""
    corpus = PreparedCorpus(folder)
    if verify:
        corpus.verify()
    console = Console()
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    report, manifest = corpus.report, corpus.manifest
    spread = np.percentile(corpus.lengths, _QUANTILES).astype(np.int64)
    tokenizer = manifest["tokenizer"]
    facts = {
        "documents": f"{report.num_documents:,}",
        "tokens": f"{report.num_tokens:,}   {report.num_bytes / max(report.num_tokens, 1):.2f} bytes of text each",
        "lengths": ", ".join(f"{value:,}" for value in spread) + "   (least, 10 %, half, 90 %, most)",
        "arrays": ", ".join(f"{name} {np.dtype(dtype).name}" for name, dtype in manifest["arrays"].items()),
        "tokenizer": f"{tokenizer['vocab_size']:,} ids, {tokenizer['eos_id']} ends a document",
        "files": f"{len(manifest['sources']):,}, the first {manifest['sources'][0]['name']}",
        "shards": f"{len(manifest['shards']):,}",
        "fingerprint": corpus.fingerprint,
        "left out": f"{report.num_bad_records:,}",
    }
    for name, value in facts.items():
        table.add_row(f"[bold]{name}[/bold]", escape(value))
    for reason, count in report.bad_records.items():
        table.add_row("", escape(f"{count:,} {reason}"))
    console.print(table, highlight=False)
    for example in report.examples:
        console.print(f"  {example}", highlight=False, markup=False, soft_wrap=True)
    if not manifest["tokenizer_config"] or not num_documents:
        return
    reader = cast(Tokenizer, loads(manifest["tokenizer_config"]).build())
    for index in np.linspace(0, len(corpus) - 1, min(num_documents, len(corpus))).astype(np.int64).tolist():
        length = int(corpus.lengths[index])
        console.print(f"\n[bold]{index:,}[/bold]  {escape(corpus.origin(index))}, {length:,} tokens", highlight=False)
        text = reader.decode(corpus.part(index, 0, min(length, _TOKENS))["tokens"])
        console.print(text + (" …" if length > _TOKENS else ""), highlight=False, markup=False)

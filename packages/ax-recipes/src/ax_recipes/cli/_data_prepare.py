"""``ax data prepare``."""

from __future__ import annotations

from pathlib import Path

import typer
from ax_config import Buildable, Config, config_for, dumps
from ax_input import (
    CHATML,
    ByteTokenizer,
    ChatEncoder,
    HuggingFaceTokenizer,
    PreferenceEncoder,
    TextEncoder,
    prepare_corpus,
    read_chat_template,
)
from ax_input.protocols import Encoder, Tokenizer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from ax_recipes._experiment import ExperimentError


def prepare(
    paths: tuple[str, ...],
    out: Path,
    *,
    tokenizer: str,
    eos: str | None,
    kind: str,
    field: str | None,
    template: Path | None,
    jobs: int,
    shard_bytes: int,
    on_bad_record: str,
) -> None:
    """Prepare, with a progress bar, and say what came of it."""
    config = _tokenizer(tokenizer, eos)
    built: Tokenizer = config.build()
    encoder: Encoder = _encoder(kind, field, template).build(tokenizer=built)
    console = Console(stderr=True)
    columns = (TextColumn("preparing"), BarColumn(bar_width=None), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("preparing", total=None)
        try:
            corpus = prepare_corpus(
                [path if "://" in path else str(Path(path).expanduser().absolute()) for path in paths],
                out,
                tokenizer=built,
                encoder=encoder,
                tokenizer_config=dumps(config),
                processes=jobs,
                on_bad_record=on_bad_record,
                shard_bytes=shard_bytes,
                on_progress=lambda done, total: bar.update(task, completed=done, total=total),
            )
        except KeyboardInterrupt:
            console.print("stopped; the same command goes on where it stopped", highlight=False)
            raise typer.Exit(130) from None
    print(corpus.report)
    for example in corpus.report.examples:
        print(f"  left out: {example}")
    print(f"{out}: {len(corpus.manifest['shards'])} shards, fingerprint {corpus.fingerprint}")
    print(f"train on it: ax train --data {out}" if kind != "preference" else f"look at it: ax data show {out}")


def _tokenizer(name: str, eos: str | None) -> Config[ByteTokenizer] | HuggingFaceTokenizer.Config:
    if name == "bytes":
        return config_for(ByteTokenizer)()
    return HuggingFaceTokenizer.Config(path=str(Path(name).expanduser().absolute()), eos_token=eos)


def _encoder(kind: str, field: str | None, template: Path | None) -> Buildable[Encoder]:
    if kind == "text":
        return TextEncoder.Config(text_field=field or "text")
    chat = ChatEncoder.Config(messages_field=field or "messages", template=_template(template))
    if kind == "chat":
        return chat
    if kind == "preference":
        return PreferenceEncoder.Config(chat=chat)
    raise ExperimentError(f"--kind: wanted text, chat or preference, got {kind!r}")


def _template(path: Path | None) -> str:
    if path is None:
        return CHATML
    return read_chat_template(path) if path.is_dir() else path.read_text(encoding="utf-8")

"""``ax data``: text becomes tokens on disk, once; and what a run learns from, batch by batch. Each command is one file beside this one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from ._failure import explained

data = typer.Typer(
    name="data",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="Prepare data for training, and look at it.\n\nBegin with `ax data prepare notes/ --out prepared/notes`.",
)


@data.command()
def prepare(
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="PATH...",
            help="Files, folders and URLs (.txt .md .py .jsonl .jsonl.gz .parquet .arrow .arrayrecord).",
        ),
    ],
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Where to; a folder of its own.")],
    tokenizer: Annotated[
        str, typer.Option(metavar="bytes|FILE", help="`bytes`, or the tokenizer.json of a Hugging Face model.")
    ] = "bytes",
    eos: Annotated[
        str | None, typer.Option(help="The token that ends a document. Default: what the model's files say.")
    ] = None,
    kind: Annotated[
        str,
        typer.Option(
            metavar="text|chat|preference",
            help="What records are: texts; conversations, of which only what the model says is learnt; or pairs of answers.",
        ),
    ] = "text",
    field: Annotated[
        str | None, typer.Option(help="The field with the text or the messages. Default: `text` or `messages`.")
    ] = None,
    template: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The chat template: a Jinja file, or a model's folder. Default: ChatML."),
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="How many processes.", show_default="one a core")] = os.cpu_count()
    or 1,
    shard_mb: Annotated[int, typer.Option(min=1, help="How much of the corpus goes into a shard.")] = 64,
    on_bad_record: Annotated[
        str,
        typer.Option(metavar="error|skip", help="Stop at a record that can't be read, or skip, count and report it."),
    ] = "error",
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Tokenise a corpus into a folder, by all cores. **Interrupt it as you like**: the same command goes on where it stopped.

    What is in the folder at the end depends on the corpus, the tokenizer and the size of shards alone. Train on it with
    `ax train --data FOLDER`.

    Examples:

        ax data prepare notes/ book.txt --out prepared/notes

        ax data prepare s3://bucket/corpus --out prepared/web --tokenizer smollm2/tokenizer.json --on-bad-record skip

        ax data prepare chats.jsonl --out prepared/chats --kind chat --tokenizer qwen/ --template qwen/
    """
    with explained(debug=debug):
        from ._data_prepare import prepare as run_prepare

        run_prepare(
            tuple(paths),
            out,
            tokenizer=tokenizer,
            eos=eos,
            kind=kind,
            field=field,
            template=template,
            jobs=jobs,
            shard_bytes=shard_mb * 2**20,
            on_bad_record=on_bad_record,
        )


@data.command()
def show(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="What `ax data prepare` made.")],
    documents: Annotated[int, typer.Option(min=0, help="Show so many documents, evenly spread.")] = 3,
    verify: Annotated[
        bool, typer.Option("--verify", help="Read everything before, and compare it with the checksums.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Print what is in a prepared corpus: counts, lengths, tokenizer, what was left out and why, and some documents.

    Examples:

        ax data show prepared/notes --documents 10
    """
    with explained(debug=debug):
        from ._data_show import show as run_show

        run_show(folder, num_documents=documents, verify=verify)


@data.command()
def which(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run, such as runs/tiny.")],
    step: Annotated[int, typer.Option(min=1, help="Which step, counted from 1 as in metrics and logs.")],
    text: Annotated[bool, typer.Option("--text", help="Show the text of each span too.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """List the documents in the batch of a step, and which part of each: computed, not looked up, for any step, done or to come.

    Examples:

        ax data which runs/tiny --step 300

        ax data which runs/tiny --step 300 --text
    """
    with explained(debug=debug):
        from ._data_which import which as run_which

        run_which(run, step=step, text=text)

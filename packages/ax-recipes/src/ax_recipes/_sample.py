"""Text from an experiment's model: the tokenizer on one side, sampling on the other."""

from __future__ import annotations

from collections.abc import Iterator

from ax_inference import Sampler, generate
from ax_layers import as_decoder
from ax_layers.protocols import ArrayTree

from ._experiment import Experiment


def stream_text(
    experiment: Experiment,
    params: ArrayTree,
    prompt: str,
    *,
    max_new_tokens: int,
    temperature: float = 0.8,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int = 0,
) -> Iterator[str]:
    """The continuation of ``prompt``, piece by piece as it is written; ends early where the model ends the document.

    A piece is held back while its last character is incomplete.
    """
    tokenizer = experiment.tokenizer
    # A document begins after the end of another, so that is what the model has seen before every first character.
    prompt_ids = [tokenizer.eos_id, *(int(token) for token in tokenizer.encode(prompt))]
    sampler = Sampler.Config(temperature=temperature, top_k=top_k, top_p=top_p).build()
    written: list[int] = []
    shown = ""
    for tokens in generate(
        as_decoder(experiment.model),
        params,
        [prompt_ids],
        sampler=sampler,
        max_new_tokens=max_new_tokens,
        eos_id=tokenizer.eos_id,
        seed=seed,
    ):
        token = int(tokens[0])
        if token < 0 or token == tokenizer.eos_id:
            break
        written.append(token)
        text = tokenizer.decode(written)
        if not text.endswith("\ufffd"):
            yield text[len(shown) :]
            shown = text
    rest = tokenizer.decode(written)[len(shown) :]
    if rest:
        yield rest

from pathlib import Path

import numpy as np
import pytest
from ax_config import partial_for
from ax_input import (
    ByteTokenizer,
    DataError,
    MemorySource,
    Mixture,
    PreparedText,
    TextEncoder,
    by_length,
    find_files,
    prepare_corpus,
)
from ax_input.testing import check_batch_stream, check_token_documents

TEXTS = [f"{i} " + "ab " * (i % 40) for i in range(300)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("prepared") / "out"
    tokenizer = ByteTokenizer()
    encoder = TextEncoder.Config().build(tokenizer=tokenizer)
    check_token_documents(prepare_corpus([MemorySource(TEXTS)], out, tokenizer=tokenizer, encoder=encoder))
    return out


def test_a_part_is_held_out(folder: Path) -> None:
    text = PreparedText.Config(folder=str(folder), holdout_fraction=0.2).build()
    assert text.validation is not None
    check_token_documents(text.train)
    check_token_documents(text.validation)
    origins = [part.origin(i) for part in (text.train, text.validation) for i in range(len(part))]
    assert sorted(origins) == sorted(f"memory:{i}" for i in range(1, 301))
    assert 30 < len(text.validation) < 90
    lengths = text.validation.lengths
    assert text.bytes_per_token == lengths.sum() / (lengths + 1).sum()
    assert text.report.num_documents == 300
    whole = PreparedText.Config(folder=str(folder), holdout_fraction=0.0).build()
    assert (len(whole.train), whole.validation) == (300, None)


def test_the_rest_is_transformed(folder: Path) -> None:
    config = PreparedText.Config(folder=str(folder), transforms=(partial_for(by_length, maximum=30),))
    text = config.build()
    assert text.validation is not None
    assert text.train.lengths.max() <= 30 < text.validation.lengths.max()


def test_batches_of_it(folder: Path) -> None:
    config = Mixture.Config(sources={"prepared": PreparedText.Config(folder=str(folder))}, seq_length=32, batch_size=4)
    mixtures = {
        (index, count): config.build(shard_index=index, shard_count=count) for index, count in [(0, 1), (0, 2), (1, 2)]
    }
    check_batch_stream(lambda *, shard_index, shard_count: mixtures[shard_index, shard_count].train())
    batch = next(mixtures[0, 1].train())
    span = mixtures[0, 1].ledger.spans(0)[0]
    text = TEXTS[int(span.origin.removeprefix("memory:")) - 1]
    targets = batch["targets"][span.row, span.offset : span.offset + span.end - span.begin]
    assert np.array_equal(targets, np.append(ByteTokenizer().encode(text), 256)[span.begin : span.end])


def test_another_tokenizer_is_refused(folder: Path) -> None:
    class Other(ByteTokenizer):  # type: ignore[misc]  # final, for users
        vocab_size = 300

    with pytest.raises(DataError, match=r"prepared with another tokenizer \(vocab_size: 257, now 300"):
        PreparedText.Config(folder=str(folder)).build(tokenizer=Other())


def test_it_is_no_folder_of_text(folder: Path) -> None:
    with pytest.raises(DataError, match="a prepared corpus, finished or not, whose files aren't text"):
        find_files([folder])

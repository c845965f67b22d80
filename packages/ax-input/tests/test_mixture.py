from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from ax_config import dumps, loads, override
from ax_input import (
    BatchStream,
    ByteTokenizer,
    DataError,
    Mixture,
    Packing,
    Phase,
    PreparedText,
    ReadAhead,
    TextCorpus,
    TextEncoder,
    TextInput,
    prepare_corpus,
)
from ax_input.testing import check_batch_stream, check_source


@pytest.fixture
def corpora(tmp_path: Path) -> Mapping[str, Path]:
    folders = {}
    for name, size in (("code", 40), ("prose", 25)):
        folders[name] = tmp_path / name
        folders[name].mkdir()
        for i in range(size):
            (folders[name] / f"{i:02}.txt").write_text(f"{name} {i}\n" * (i + 3))
    return folders


def mixture(corpora: Mapping[str, Path], **settings: object) -> Mixture.Config:
    sources = {name: TextCorpus.Config(paths=(str(path),), holdout_fraction=0.2) for name, path in corpora.items()}
    phases = (Phase.Config(weights={"code": 3, "prose": 1}), Phase.Config(begin=5, weights={"prose": 1}))
    packing = Packing.Config(mode="best_fit", segments=True)
    config = Mixture.Config(sources=sources, phases=phases, seq_length=32, batch_size=24, packing=packing, block_rows=8)
    return config.clone(**settings)


def test_weights_hold_in_rows_and_change_on_the_way(corpora: Mapping[str, Path]) -> None:
    data = mixture(corpora).build()
    assert isinstance(data, Mixture)
    for batch in range(8):
        rows = Counter({span.row: span.source for span in data.ledger.spans(batch)}.values())
        assert rows == ({"code": 18, "prose": 6} if batch < 5 else {"prose": 24})
    texts = {data.tokenizer.decode(row).split()[0] for row in data.ledger.read(6)["tokens"]}
    assert texts <= {"prose", "rose", "ose", "se", "e"} | {str(i) for i in range(25)}


def test_streams_pass_the_kit(corpora: Mapping[str, Path]) -> None:
    def make_stream(*, shard_index: int, shard_count: int) -> BatchStream:
        return mixture(corpora, skip=((2, 3),)).build(shard_index=shard_index, shard_count=shard_count).train()

    check_batch_stream(make_stream, num_batches=6, shard_counts=(1, 2, 3, 4, 8))


def test_batches_are_as_the_config_says(corpora: Mapping[str, Path]) -> None:
    for packing in (Packing.Config(), Packing.Config(mode="first_fit", segments=True)):
        config = mixture(corpora, packing=packing)
        shapes = {name: (array.shape, array.dtype) for name, array in next(config.build().train()).items()}
        assert shapes == config.batch_shapes()
        assert ("segments" in shapes) == packing.segments


def test_validation_is_of_all_sources(corpora: Mapping[str, Path]) -> None:
    data = mixture(corpora, packing=Packing.Config()).build()
    batches = data.validation()
    check_source(batches)
    targets = np.concatenate([batch["targets"].ravel() for batch in batches])
    held_out = data.tokenizer.decode(targets[targets >= 0])
    assert {line.split()[0] for line in held_out.splitlines()} == {"code", "prose"}
    assert data.bytes_per_token == pytest.approx(len(held_out.encode()) / (targets >= 0).sum(), rel=1e-12)
    shards = [
        mixture(corpora, packing=Packing.Config()).build(shard_index=i, shard_count=3).validation() for i in range(3)
    ]
    for batch, *parts in zip(batches, *shards, strict=True):
        assert np.array_equal(batch["tokens"], np.concatenate([part["tokens"] for part in parts]))


def test_nothing_held_out(corpora: Mapping[str, Path]) -> None:
    sources = {name: TextCorpus.Config(paths=(str(path),), holdout_fraction=0.0) for name, path in corpora.items()}
    data = mixture(corpora, sources=sources).build()
    num_bytes = sum(file.stat().st_size for path in corpora.values() for file in path.iterdir())
    assert data.bytes_per_token == pytest.approx(num_bytes / (num_bytes + 65), rel=1e-12)
    with pytest.raises(DataError, match="nothing is held out"):
        data.validation()


def test_one_source_alone_holds_something_out(corpora: Mapping[str, Path]) -> None:
    sources = {
        "code": TextCorpus.Config(paths=(str(corpora["code"]),), holdout_fraction=0.0),
        "prose": TextCorpus.Config(paths=(str(corpora["prose"]),), holdout_fraction=0.2),
    }
    data = mixture(corpora, sources=sources).build()
    assert all(data.tokenizer.decode(b["tokens"][0]).startswith("prose") for b in data.validation(max_batches=1))
    corpus = sources["prose"].build()
    assert data.bytes_per_token == pytest.approx(corpus.bytes_per_token)


def test_text_input_is_a_mixture_of_one(corpora: Mapping[str, Path]) -> None:
    text = TextInput.Config(paths=(str(corpora["code"]),), seq_length=32, batch_size=4, seed=3)
    sources = {"text": TextCorpus.Config(paths=(str(corpora["code"]),), seed=3)}
    alike = Mixture.Config(sources=sources, seq_length=32, batch_size=4, seed=3)
    one, other = text.build(), alike.build()
    assert one.fingerprint == other.fingerprint
    assert one.train().get_state() == other.train().get_state()
    assert np.array_equal(next(one.train())["tokens"], next(other.train())["tokens"])


def test_a_prepared_corpus_is_a_source(corpora: Mapping[str, Path], tmp_path: Path) -> None:
    """Its batches are those of the same text in memory, also from a packing that was kept."""
    tokenizer = ByteTokenizer()
    encoder = TextEncoder.Config().build(tokenizer=tokenizer)
    prepare_corpus([str(corpora["code"])], tmp_path / "prepared", tokenizer=tokenizer, encoder=encoder)
    code = {
        "in memory": TextCorpus.Config(paths=(str(corpora["code"]),), holdout_fraction=0.0),
        "on disk": PreparedText.Config(folder=str(tmp_path / "prepared"), holdout_fraction=0.0),
    }
    prose = TextCorpus.Config(paths=(str(corpora["prose"]),))
    wanted = mixture(corpora, sources={"code": code["in memory"], "prose": prose}).build().train()
    batches = [next(wanted) for _ in range(7)]
    for _ in range(2):
        sources = {"code": code["on disk"], "prose": prose}
        stream = mixture(corpora, sources=sources, cache=str(tmp_path / "packed")).build().train()
        for batch in batches:
            got = next(stream)
            assert all(np.array_equal(got[name], array) for name, array in batch.items())
    assert len(list((tmp_path / "packed").iterdir())) == 2


def test_the_config_is_text_and_can_be_overridden(corpora: Mapping[str, Path]) -> None:
    config = mixture(corpora)
    assert loads(dumps(config)) == config
    changed = override(config, ["phases[1].begin=9", "skip=((3, 5),)", "packing.mode='first_fit'"])
    assert (changed.phases[1].build().begin, changed.skip, changed.packing.mode) == (9, ((3, 5),), "first_fit")


def test_reports(corpora: Mapping[str, Path]) -> None:
    data = mixture(corpora).build()
    code, prose = str(data.report).splitlines()
    assert code.startswith("code: 40 documents")
    assert prose.startswith("prose: 25 documents")


def test_the_fingerprint_is_of_the_data_alone(corpora: Mapping[str, Path]) -> None:
    before = mixture(corpora).build().fingerprint
    assert mixture(corpora, batch_size=8, phases=(), skip=((1, 2),)).build().fingerprint == before
    (corpora["prose"] / "00.txt").write_text("changed")
    assert mixture(corpora).build().fingerprint != before


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"seq_length": 0}, "seq_length: wanted"),
        ({"batch_size": 0}, "batch_size: wanted"),
        ({"packing": Packing.Config(window=0)}, r"packing\.window: wanted"),
        ({"read_ahead": ReadAhead.Config(num_batches=0)}, r"read_ahead\.num_batches: wanted"),
    ],
)
def test_wrong_settings_are_found_before_reading(settings: dict[str, object], message: str) -> None:
    with pytest.raises(DataError, match=message):
        mixture({"code": Path("nowhere")}, **settings).build()

import gzip
import json
import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from ax_input import (
    BadRecordError,
    ByteTokenizer,
    ChatEncoder,
    DataError,
    MemorySource,
    PreparedCorpus,
    TextEncoder,
    prepare_corpus,
)
from ax_input.protocols import TokenDocuments

TEXTS = [f"{i}: " + "ab ü\n" * (i * 37 % 101) for i in range(200)]


def write_corpus(folder: Path) -> Path:
    """The texts, in order, in files of several kinds."""
    folder.mkdir()
    lines = [json.dumps({"text": text}) + "\n" for text in TEXTS]
    (folder / "a.jsonl").write_text("".join(lines[:90]))
    (folder / "b.jsonl.gz").write_bytes(gzip.compress("".join(lines[90:150]).encode()))
    for i, text in enumerate(TEXTS[150:]):
        (folder / f"c{i:02}.txt").write_text(text)
    return folder


def prepare(corpus: Path, out: Path, **settings: object) -> PreparedCorpus:
    tokenizer = ByteTokenizer()
    encoder = TextEncoder.Config().build(tokenizer=tokenizer)
    return prepare_corpus([corpus], out, tokenizer=tokenizer, encoder=encoder, **settings)  # type: ignore[arg-type]


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(folder.iterdir())}


def test_documents_are_those_of_the_corpus(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus")
    progress: list[tuple[int, int]] = []
    prepared: TokenDocuments = prepare(
        corpus, tmp_path / "out", shard_bytes=5_000, on_progress=lambda done, total: progress.append((done, total))
    )
    assert isinstance(prepared, PreparedCorpus)
    assert len(prepared) == len(TEXTS)
    for i in np.random.default_rng(0).permutation(len(TEXTS)):
        document = prepared[i]
        assert document.keys() == {"tokens"}
        assert document["tokens"].dtype == np.int32
        assert ByteTokenizer().decode(document["tokens"]) == TEXTS[i]
        assert prepared.lengths[i] == prepared.num_bytes[i] == len(TEXTS[i].encode())
    assert prepared.origin(0) == f"{corpus}/a.jsonl:1"
    assert prepared.origin(91) == f"{corpus}/b.jsonl.gz:2"
    assert prepared.origin(199) == f"{corpus}/c49.txt"
    assert len(prepared.manifest["shards"]) > 3
    num_bytes = sum(len(text.encode()) for text in TEXTS)
    assert str(prepared.report) == f"200 documents, {num_bytes:,} bytes, {num_bytes:,} tokens"
    total = sum(file.stat().st_size for file in corpus.iterdir())
    assert progress[-1] == (total, total)
    assert [done for done, _ in progress] == sorted(done for done, _ in progress)
    copied = pickle.loads(pickle.dumps(prepared))
    assert len(pickle.dumps(prepared)) < 1_000
    assert np.array_equal(copied[3]["tokens"], prepared[3]["tokens"])
    with pytest.raises(IndexError):
        prepared[200]
    with pytest.raises(IndexError):
        prepared[-1]


def test_the_fingerprint_is_of_the_documents_in_order(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus")
    first = prepare(corpus, tmp_path / "1", shard_bytes=5_000)
    again = prepare(corpus, tmp_path / "2", shard_bytes=2**30)
    assert len(again.manifest["shards"]) == 1
    assert first.fingerprint == again.fingerprint
    assert np.array_equal(first.digests, again.digests)

    def of(texts: list[str]) -> str:
        tokenizer = ByteTokenizer()
        encoder = TextEncoder.Config().build(tokenizer=tokenizer)
        out = tmp_path / f"memory{len(list(tmp_path.iterdir()))}"
        return prepare_corpus([MemorySource(texts)], out, tokenizer=tokenizer, encoder=encoder).fingerprint

    assert of(TEXTS) == first.fingerprint
    assert len({of(TEXTS), of(TEXTS[::-1]), of(TEXTS[:-1]), of([*TEXTS[:-1], TEXTS[-1] + "."])}) == 4


def test_processes_make_the_same_bytes_after_being_killed_at_any_moment(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus")
    prepare(corpus, tmp_path / "one", shard_bytes=1_500)
    script = tmp_path / "script.py"
    script.write_text(
        "import sys, time\n"
        "from ax_input import ByteTokenizer, TextEncoder, prepare_corpus\n"
        "class Slow:\n"
        "    def __init__(self, encoder):\n"
        "        self.encoder, self.identity, self.fields, self.dtypes = (\n"
        "            encoder, encoder.identity, encoder.fields, encoder.dtypes)\n"
        "    def __call__(self, record):\n"
        "        time.sleep(0.005)\n"
        "        return self.encoder(record)\n"
        "if __name__ == '__main__':\n"
        "    tokenizer = ByteTokenizer()\n"
        "    encoder = Slow(TextEncoder.Config().build(tokenizer=tokenizer))\n"
        "    prepare_corpus([sys.argv[1]], sys.argv[2], tokenizer=tokenizer, encoder=encoder, processes=2, shard_bytes=1_500)\n"
    )
    out = tmp_path / "two"
    command = [sys.executable, str(script), str(corpus), str(out)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    kills = 0
    for enough in (2, 6):
        with subprocess.Popen(command, env=environment) as process:
            while process.poll() is None and len(list(out.glob("part-*.npz"))) < enough:
                time.sleep(0.01)
            process.send_signal(signal.SIGKILL)
        kills += process.returncode == -signal.SIGKILL
        assert not (out / "ax-corpus.json").exists()
        with pytest.raises(DataError, match="finish it, with ax data prepare"):
            PreparedCorpus(out)
    assert kills == 2
    done = {
        file.name: file.stat().st_mtime_ns
        for file in out.glob("shard-*.arrayrecord")
        if (out / f"part-{file.name[6:11]}.npz").exists()
    }
    subprocess.run(command, env=environment, check=True)
    assert contents(out) == contents(tmp_path / "one")
    assert done.items() <= {file.name: file.stat().st_mtime_ns for file in out.iterdir()}.items()


def test_a_complete_corpus_is_returned_as_it_is(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus")
    prepare(corpus, tmp_path / "out")
    before = {file.name: file.stat().st_mtime_ns for file in (tmp_path / "out").iterdir()}
    assert len(prepare(corpus, tmp_path / "out")) == 200
    assert {file.name: file.stat().st_mtime_ns for file in (tmp_path / "out").iterdir()} == before


@pytest.mark.parametrize("finished", [True, False])
def test_a_folder_of_another_corpus_is_refused(tmp_path: Path, finished: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = write_corpus(tmp_path / "corpus")
    out = tmp_path / "out"
    if finished:
        prepare(corpus, out)
    else:
        with monkeypatch.context() as patch:
            patch.setattr(np, "savez", _interrupt)
            with pytest.raises(KeyboardInterrupt):
                prepare(corpus, out)
        assert (out / "ax-plan.json").exists()
    with pytest.raises(DataError, match=r"with other settings: shard_bytes: \d+, now 7"):
        prepare(corpus, out, shard_bytes=7)

    class Other(ByteTokenizer):  # type: ignore[misc]  # final, for users
        eos_id = 0

    encoder = TextEncoder.Config().build(tokenizer=ByteTokenizer())
    with pytest.raises(DataError, match="with other settings: eos_id: 256, now 0"):
        prepare_corpus([corpus], out, tokenizer=Other(), encoder=encoder)
    with pytest.raises(DataError, match=r"with other settings: encoder: .*text.*now .*body"):
        prepare_corpus(
            [corpus],
            out,
            tokenizer=ByteTokenizer(),
            encoder=TextEncoder.Config(text_field="body").build(tokenizer=ByteTokenizer()),
        )
    (corpus / "c00.txt").write_text("now it's another")
    with pytest.raises(
        DataError, match=r"of other files, or they changed since: .*c00\.txt; prepare into another folder"
    ):
        prepare(corpus, out)


def _interrupt(*args: object, **kwargs: object) -> None:
    raise KeyboardInterrupt


def test_a_folder_with_other_things_is_refused(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus")
    with pytest.raises(DataError, match=r"holds something else \(a\.jsonl, b\.jsonl\.gz, c00\.txt\)"):
        prepare(corpus, corpus)


def test_bad_records(tmp_path: Path) -> None:
    folder = tmp_path / "corpus"
    folder.mkdir()
    (folder / "a.jsonl").write_bytes(b'{"text": "one"}\n{"text": 1}\n{"text": "two"}\n{"te\n{"text": ""}\n')
    (folder / "b.parquet").write_bytes(b"nonsense")
    (folder / "c.txt").write_bytes(b"\xff")
    (folder / "d.txt").write_bytes(b"")
    with pytest.raises(BadRecordError, match=r"b\.parquet: corrupt") as caught:
        prepare(folder, tmp_path / "out")
    assert "skip" in caught.value.__notes__[0]
    (folder / "b.parquet").unlink()
    with pytest.raises(BadRecordError, match=r"a\.jsonl:2: wrong type"):
        prepare(folder, tmp_path / "out", shard_bytes=20)
    with pytest.raises(BadRecordError, match=r"wrong type|corrupt|empty text|undecodable") as caught:
        prepare(folder, tmp_path / "out", shard_bytes=20, processes=2)
    assert "skip" in caught.value.__notes__[0]
    prepared = prepare(folder, tmp_path / "out", shard_bytes=20, on_bad_record="skip")
    assert [bytes(prepared[i]["tokens"].astype(np.uint8)) for i in range(len(prepared))] == [b"one", b"two"]
    assert prepared.report.bad_records == {
        "corrupt": 1,
        "empty file": 1,
        "empty text": 1,
        "undecodable": 1,
        "wrong type": 1,
    }
    assert [example.removeprefix(f"{folder}/").split(" ")[0] for example in prepared.report.examples] == [
        "d.txt:",
        "a.jsonl:2:",
        "a.jsonl:4:",
        "a.jsonl:5:",
        "c.txt:1:",
    ]
    with pytest.raises(DataError, match="no documents in 1 sources; 1 bad records"):
        prepare(folder / "c.txt", tmp_path / "none", on_bad_record="skip")


def test_conversations_by_processes(tmp_path: Path) -> None:
    tokenizer = ByteTokenizer()
    encoder = ChatEncoder.Config().build(tokenizer=tokenizer)
    chats = [[{"role": "user", "content": f"{i}?"}, {"role": "assistant", "content": f"{i}!"}] for i in range(30)]
    records = MemorySource([{"messages": 0}, *({"messages": messages} for messages in chats)])
    out = prepare_corpus(
        [records],
        tmp_path / "out",
        tokenizer=tokenizer,
        encoder=encoder,
        processes=2,
        on_bad_record="skip",
        shard_bytes=50_000,
    )
    assert out.report.bad_records == {"wrong type": 1}
    for i in range(30):
        document = out[i]
        assert tokenizer.decode(document["tokens"][document["weights"] > 0]) == f"{i}!<|im_end|>"
        assert out.origin(i) == f"memory:{i + 2}"


def test_other_arrays_and_wide_vocabularies(tmp_path: Path) -> None:
    class Wide:
        identity = "wide"
        fields = ("text",)
        dtypes = {"tokens": np.dtype("<u4"), "weights": np.dtype("<f4")}  # noqa: RUF012

        def __call__(self, record: object) -> tuple[dict[str, np.ndarray], int]:
            tokens = np.array([70_000, 3, 2**31 - 1], np.int32)
            return {"weights": np.array([0.0, 0.5, 1.0]), "tokens": tokens}, 9

    out = prepare_corpus([MemorySource(["a", "b"])], tmp_path / "out", tokenizer=ByteTokenizer(), encoder=Wide())
    document = out[1]
    assert document["tokens"].tolist() == [70_000, 3, 2**31 - 1]
    assert document["weights"].tolist() == [0.0, 0.5, 1.0]
    assert {name: array.dtype.name for name, array in document.items()} == {"tokens": "int32", "weights": "float32"}
    assert out.num_bytes.tolist() == [9, 9]


def test_damage_is_found(tmp_path: Path) -> None:
    prepared = prepare(write_corpus(tmp_path / "corpus"), tmp_path / "out")
    prepared.verify()
    (shard,) = (tmp_path / "out").glob("shard-*")
    whole = shard.read_bytes()
    for index in (0, 77, 199):
        place = int(np.load(tmp_path / "out" / "places.npy")[index])
        data = bytearray(whole)
        data[place] ^= 1
        shard.write_bytes(data)
        with pytest.raises(BadRecordError, match=rf"shard-00000\.arrayrecord:{index + 1}: corrupt"):
            PreparedCorpus(tmp_path / "out").verify()
    shard.write_bytes(whole)
    digests = np.load(tmp_path / "out" / "digests.npy")
    digests[3, 0] ^= 1
    np.save(tmp_path / "out" / "digests.npy", digests)
    with pytest.raises(BadRecordError, match=r":4: corrupt: not what was prepared"):
        PreparedCorpus(tmp_path / "out").verify()
    several = prepare(tmp_path / "corpus", tmp_path / "several", shard_bytes=5_000)
    first = several.manifest["shards"][0]["documents"]
    digests = np.load(tmp_path / "several" / "digests.npy")
    digests[first + 1, 0] ^= 1
    np.save(tmp_path / "several" / "digests.npy", digests)
    with pytest.raises(BadRecordError, match=r"shard-00001\.arrayrecord:2: corrupt"):
        PreparedCorpus(tmp_path / "several").verify()


def test_what_lies_nowhere_is_read_all_the_same(tmp_path: Path) -> None:
    prepared = prepare(write_corpus(tmp_path / "corpus"), tmp_path / "out")
    wanted = [prepared[i]["tokens"] for i in range(len(TEXTS))]
    np.save(tmp_path / "out" / "places.npy", np.full(len(TEXTS), -1))
    again = PreparedCorpus(tmp_path / "out")
    again.verify()
    for i, tokens in enumerate(wanted):
        assert np.array_equal(again[i]["tokens"], tokens)
        assert np.array_equal(again.part(i, 1, 3)["tokens"], tokens[1:3])


def test_the_tokenizer_is_checked(tmp_path: Path) -> None:
    prepared = prepare(write_corpus(tmp_path / "corpus"), tmp_path / "out")
    prepared.check_tokenizer(ByteTokenizer())

    class Shifted(ByteTokenizer):  # type: ignore[misc]  # final, for users
        def encode(self, text: str, /) -> np.ndarray:
            return super().encode(text) ^ 1

    with pytest.raises(DataError, match=r"prepared with another tokenizer \(probe"):
        prepared.check_tokenizer(Shifted())


def test_wrong_arguments(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus")
    for settings in ({"processes": 0}, {"shard_bytes": 0}, {"on_bad_record": "ignore"}):
        with pytest.raises(DataError, match="wanted"):
            prepare(corpus, tmp_path / "out", **settings)
    with pytest.raises(DataError, match="no parts"):
        prepare_corpus(
            [], tmp_path, tokenizer=ByteTokenizer(), encoder=TextEncoder.Config().build(tokenizer=ByteTokenizer())
        )
    with pytest.raises(DataError, match="no prepared corpus"):
        PreparedCorpus(tmp_path / "nowhere")
    (tmp_path / "future").mkdir()
    (tmp_path / "future" / "ax-corpus.json").write_text('{"format": 99}')
    with pytest.raises(DataError, match="a corpus in format 99, this version reads 1"):
        PreparedCorpus(tmp_path / "future")


def test_parts_of_long_documents(tmp_path: Path) -> None:
    texts = ["short", "".join(chr(97 + i % 23) for i in range(50_000)), "x" * 16_384, "end"]
    tokenizer = ByteTokenizer()
    encoder = TextEncoder.Config().build(tokenizer=tokenizer)
    prepared = prepare_corpus([MemorySource(texts)], tmp_path / "out", tokenizer=tokenizer, encoder=encoder)
    for i, text in enumerate(texts):
        whole = prepared[i]["tokens"]
        assert tokenizer.decode(whole) == text
        for begin, end in [(0, 0), (0, 1), (1, 2), (16_383, 16_385), (16_384, 32_768), (7, 40_000), (49_999, 50_000)]:
            begin, end = min(begin, len(text)), min(end, len(text))
            part = prepared.part(i, begin, end)["tokens"]
            assert part.dtype == np.int32
            assert np.array_equal(part, whole[begin:end])

"""Audio: files decoded to samples, by the standard library (WAV) or soundfile (FLAC, Ogg, MP3, …)."""

from __future__ import annotations

import importlib.util
import io
import wave
from collections.abc import Mapping
from typing import final

import ax_config
import numpy as np
from ax_config import field

from ._errors import BadRecordError, DataError, Reason
from ._labelled_files import LabelledFiles

AUDIO_ENDINGS = (".wav", ".flac", ".ogg", ".mp3", ".opus", ".aif", ".aiff")
_RIFF = b"RIFF"


@final
class AudioFolder:
    """Clips in folders that name their classes: ``audio`` ``[N]`` float32 in [-1, 1] and ``targets``, a scalar int32.

    WAV needs nothing; other formats need the extra ``ax-input[audio]``. Clips are resampled, and cut or filled with silence to one
    length. A file that is no audio raises BadRecordError when it is asked for.
    """

    class Config(ax_config.Config["AudioFolder"]):
        """Where the clips are, and what they become."""

        folder: str = field(help="holds a folder for each class")
        sample_rate: int = field(default=16_000, help="samples a second")
        seconds: float = field(default=1.0, help="how long a clip is")
        classes: tuple[str, ...] = field(default=(), help="their names in order; none means the folders, sorted")

    def __init__(self, cfg: Config, /) -> None:
        self._cfg = cfg
        self._num_samples = round(cfg.sample_rate * cfg.seconds)
        if self._num_samples < 1:
            raise DataError(f"wanted at least one sample, got {cfg.seconds} s at {cfg.sample_rate} Hz")
        self._files = LabelledFiles(cfg.folder, endings=AUDIO_ENDINGS, classes=cfg.classes)
        self.classes = self._files.classes
        """What the targets mean."""
        self.fingerprint = f"{self._files.fingerprint}/{cfg.sample_rate}/{self._num_samples}"
        """Changes with the files and the form."""

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, index: int, /) -> Mapping[str, np.ndarray]:
        path, data, label = self._files.read(index)
        try:
            samples, rate = decode_audio(data)
        except ValueError as error:
            raise BadRecordError(str(path), None, Reason.CORRUPT, str(error)) from error
        # What would be cut off needn't be resampled, but for a little at the seam.
        needed = -(-self._num_samples * rate // self._cfg.sample_rate) + rate // 10
        samples = resample(samples[:needed], rate, self._cfg.sample_rate)[: self._num_samples]
        return {"audio": np.pad(samples, (0, self._num_samples - len(samples))), "targets": np.asarray(label, np.int32)}

    def origin(self, index: int, /) -> str:
        """The file."""
        return str(self._files.paths[index])


def decode_audio(data: bytes) -> tuple[np.ndarray, int]:
    """The samples in a file's bytes, ``[N]`` float32 in [-1, 1], channels averaged; and how many a second.

    Raises ValueError when it can't be decoded.
    """
    if data[:4] == _RIFF:
        try:
            return _decode_wav(data)
        except (wave.Error, EOFError) as error:
            if importlib.util.find_spec("soundfile") is None:
                raise ValueError(f"not a WAV of whole numbers, and others need ax-input[audio]: {error}") from error
    if importlib.util.find_spec("soundfile") is None:
        raise DataError("audio that is no WAV needs soundfile: pip install 'ax-input[audio]'")
    # Imported here: an extra, without types.
    import soundfile  # type: ignore[import-untyped]

    try:
        samples, rate = soundfile.read(io.BytesIO(data), dtype="float32", always_2d=True)
    except soundfile.LibsndfileError as error:
        raise ValueError(f"not audio that can be decoded: {error}") from error
    return samples.mean(axis=1, dtype=np.float32), int(rate)


def _decode_wav(data: bytes) -> tuple[np.ndarray, int]:
    with wave.open(io.BytesIO(data)) as file:
        width, channels, rate = file.getsampwidth(), file.getnchannels(), file.getframerate()
        frames = np.frombuffer(file.readframes(file.getnframes()), np.uint8)
    whole = len(frames) // (width * channels) * (width * channels)  # a file that was cut short ends anywhere
    bytes_NW = frames[:whole].reshape(-1, width)
    if width == 1:  # alone unsigned
        values = bytes_NW[:, 0].astype(np.float64) - 128
    else:
        top = np.zeros((len(bytes_NW), 4), np.uint8)
        top[:, 4 - width :] = bytes_NW  # so that the sign is where an int32 has it
        values = top.reshape(-1).view("<i4") / 2.0 ** (8 * (4 - width))
    samples = (values / 2.0 ** (8 * width - 1)).reshape(-1, channels).mean(axis=1)
    return samples.astype(np.float32), rate


def resample(samples: np.ndarray, rate: int, wanted: int) -> np.ndarray:
    """Samples ``[N]`` at ``rate`` as ``[ceil(N · wanted / rate)]`` at ``wanted``, float32: what lies below both halves stays.

    By the Fourier transform, of the clip and its mirror image, so that its ends don't meet.
    """
    if rate == wanted or not len(samples):
        return samples.astype(np.float32)
    mirrored = np.concatenate([samples, samples[::-1]])
    length = round(len(mirrored) * wanted / rate)
    spectrum = np.fft.rfft(mirrored)
    kept = min(len(spectrum), length // 2 + 1)
    resized = np.zeros(length // 2 + 1, np.complex128)
    resized[:kept] = spectrum[:kept]
    found = np.fft.irfft(resized, length) * (length / len(mirrored))
    return found[: -(-len(samples) * wanted // rate)].astype(np.float32)

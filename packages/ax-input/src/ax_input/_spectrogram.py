"""Log-mel spectrograms: how much of which pitch a sound has, over time.

The mel scale is Slaney's: linear up to 1,000 Hz, logarithmic above (Auditory Toolbox, 1998), with triangular filters of equal area, as
librosa has it by default and Whisper uses it.
"""

from __future__ import annotations

import functools
from typing import final

import ax_config
import numpy as np
from ax_config import field

from ._errors import DataError

_LINEAR_HZ = 200.0 / 3.0  # a mel, below the break
_BREAK_HZ = 1_000.0
_BREAK_MEL = _BREAK_HZ / _LINEAR_HZ
_LOG_STEP = np.log(6.4) / 27.0  # a mel, above it: 27 to a factor of 6.4


@final
class LogMel:
    """Samples ``[N]`` to log10 of mel powers, ``[1 + N // hop, num_mels]`` float32. Call it with samples."""

    class Config(ax_config.Config["LogMel"]):
        """How fine, in time and in pitch."""

        sample_rate: int = field(default=16_000, help="of the samples")
        num_mels: int = field(default=80, help="pitches")
        window: int = field(default=400, help="samples that are looked at at a time")
        hop: int = field(default=160, help="samples between two looks")
        low_hz: float = field(default=0.0, help="where the first filter begins")
        high_hz: float | None = field(default=None, help="where the last ends; None means half the sample rate")
        floor: float = field(default=1e-10, help="powers below it count as it")

    def __init__(self, cfg: Config, /) -> None:
        high = cfg.sample_rate / 2 if cfg.high_hz is None else cfg.high_hz
        if not (
            0 <= cfg.low_hz < high <= cfg.sample_rate / 2 and cfg.window >= 2 and cfg.hop >= 1 and cfg.num_mels >= 1
        ):
            raise DataError(
                f"wanted 0 <= low_hz < high_hz <= {cfg.sample_rate / 2}, a window of 2 or more, a hop and num_mels of 1 or more; got "
                f"{cfg.low_hz} and {high} Hz, {cfg.window}, {cfg.hop} and {cfg.num_mels}"
            )
        self._cfg = cfg
        self._filters = mel_filters(
            sample_rate=cfg.sample_rate, window=cfg.window, num_mels=cfg.num_mels, low_hz=cfg.low_hz, high_hz=high
        )

    def __call__(self, samples: np.ndarray, /) -> np.ndarray:
        """The spectrogram of samples; the first look is centred at the first sample, the ends are mirrored."""
        power = power_spectrogram(samples, window=self._cfg.window, hop=self._cfg.hop)
        mels: np.ndarray = np.log10(np.maximum(power @ self._filters, self._cfg.floor))
        return mels.astype(np.float32)


def power_spectrogram(samples: np.ndarray, *, window: int, hop: int) -> np.ndarray:
    """The squared magnitude of the short-time Fourier transform, ``[1 + N // hop, 1 + window // 2]`` float64, by Hann's window.

    Raises DataError for fewer samples than half a window, which can't be mirrored.
    """
    if samples.ndim != 1 or len(samples) <= window // 2:
        raise DataError(f"wanted more than {window // 2} samples, [N], got shape {list(samples.shape)}")
    padded = np.pad(samples.astype(np.float64), window // 2, mode="reflect")
    frames = np.lib.stride_tricks.sliding_window_view(padded, window)[::hop][: 1 + len(samples) // hop]
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(window) / window)  # periodic: a period of `window` samples
    return np.abs(np.fft.rfft(frames * hann)) ** 2


@functools.lru_cache(maxsize=8)
def mel_filters(*, sample_rate: int, window: int, num_mels: int, low_hz: float, high_hz: float) -> np.ndarray:
    """Triangles over the bins of a spectrum, ``[1 + window // 2, num_mels]``, each of area 1 over Hz."""
    bins_F = np.linspace(0, sample_rate / 2, 1 + window // 2)
    mels = np.linspace(_mel(low_hz), _mel(high_hz), num_mels + 2)
    edges = np.where(mels < _BREAK_MEL, _LINEAR_HZ * mels, _BREAK_HZ * np.exp(_LOG_STEP * (mels - _BREAK_MEL)))
    low_M, peak_M, high_M = edges[:-2], edges[1:-1], edges[2:]
    up_FM = (bins_F[:, None] - low_M) / (peak_M - low_M)
    down_FM = (high_M - bins_F[:, None]) / (high_M - peak_M)
    triangles: np.ndarray = np.maximum(0.0, np.minimum(up_FM, down_FM)) * (2.0 / (high_M - low_M))
    return triangles


def _mel(hertz: float) -> float:
    if hertz < _BREAK_HZ:
        return hertz / _LINEAR_HZ
    return float(_BREAK_MEL + np.log(hertz / _BREAK_HZ) / _LOG_STEP)

import io
import wave
from pathlib import Path

import numpy as np
import pytest
import soundfile  # type: ignore[import-untyped]  # ships no types
from ax_input import AudioFolder, BadRecordError, DataError, LogMel, decode_audio, resample
from ax_input._spectrogram import mel_filters, power_spectrogram
from ax_input.testing import check_source

RATE = 8_000
SINE = 0.5 * np.sin(2 * np.pi * 440 * np.arange(RATE) / RATE).astype(np.float32)


def wav(samples: np.ndarray, *, width: int = 2, channels: int = 1, rate: int = RATE) -> bytes:
    """Samples in [-1, 1] as a WAV of ``width`` bytes, the same in every channel."""
    numbers = np.round(samples.astype(np.float64) * (2 ** (8 * width - 1) - 1)).astype("<i8")
    if width == 1:
        numbers = numbers + 128
    frames = numbers[:, None].repeat(channels, axis=1).reshape(-1)
    data = np.ascontiguousarray(frames.view(np.uint8).reshape(-1, 8)[:, :width]).tobytes()
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(width)
        file.setframerate(rate)
        file.writeframes(data)
    return buffer.getvalue()


@pytest.mark.parametrize("width", [1, 2, 3, 4])
@pytest.mark.parametrize("channels", [1, 2])
def test_wav(width: int, channels: int) -> None:
    data = wav(SINE, width=width, channels=channels)
    samples, rate = decode_audio(data)
    assert (samples.dtype.name, rate) == ("float32", RATE)
    np.testing.assert_allclose(samples, SINE, atol=1.01 / 2 ** (8 * width - 1) + 1e-7)
    reference, _ = soundfile.read(io.BytesIO(data), dtype="float32", always_2d=True)
    np.testing.assert_allclose(samples, reference[:, 0], atol=1e-7)


@pytest.mark.parametrize(("form", "subtype"), [("FLAC", "PCM_16"), ("WAV", "FLOAT")])
def test_other_formats(form: str, subtype: str) -> None:
    buffer = io.BytesIO()
    soundfile.write(buffer, np.stack([SINE, -SINE / 2], axis=1), RATE, format=form, subtype=subtype)
    samples, rate = decode_audio(buffer.getvalue())
    assert rate == RATE
    np.testing.assert_allclose(samples, SINE / 4, atol=1e-4)


def test_what_is_no_audio() -> None:
    for data in (b"", b"noise", b"RIFFxxxxWAVE"):
        with pytest.raises(ValueError, match="not audio that can be decoded"):
            decode_audio(data)
    half = wav(SINE)[:5_001]
    np.testing.assert_allclose(decode_audio(half)[0], SINE[: (5_001 - 44) // 2], atol=1e-4)


@pytest.mark.parametrize("wanted", [4_000, 11_025, 16_000, RATE])
def test_resampled_tones_are_tones(wanted: int) -> None:
    found = resample(SINE, RATE, wanted)
    assert (found.dtype.name, len(found)) == ("float32", wanted)
    tone = 0.5 * np.sin(2 * np.pi * 440 * np.arange(wanted) / wanted)
    middle = slice(wanted // 10, -wanted // 10)
    np.testing.assert_allclose(found[middle], tone[middle], atol=0.02)
    too_high = np.sin(2 * np.pi * 3_000 * np.arange(RATE) / RATE)
    if wanted == 4_000:  # what the new rate can't hold is gone, and not folded down
        assert np.abs(resample(too_high, RATE, wanted)[middle]).max() < 0.05
    assert len(resample(SINE[:0], RATE, wanted)) == 0


def test_power_is_that_of_the_windowed_samples() -> None:
    samples = np.random.default_rng(0).normal(size=1_000)
    power = power_spectrogram(samples, window=64, hop=16)
    assert power.shape == (1 + 1_000 // 16, 33)
    # Parseval, of the frame centred at sample 160; one-sided, so all but the first and last bins count twice.
    hann = np.sin(np.pi * np.arange(64) / 64) ** 2
    energy = np.sum((samples[160 - 32 : 160 + 32] * hann) ** 2)
    weights = np.full(33, 2.0)
    weights[[0, -1]] = 1.0
    np.testing.assert_allclose((power[10] * weights).sum() / 64, energy, rtol=1e-12)


def test_filters_are_triangles_of_area_one() -> None:
    filters = mel_filters(sample_rate=16_000, window=16_384, num_mels=40, low_hz=0.0, high_hz=8_000.0)
    np.testing.assert_allclose(filters.sum(axis=0) * (8_000 / 8_192), 1.0, rtol=0.02)
    peaks = filters.argmax(axis=0) * (8_000 / 8_192)
    assert (np.diff(peaks) > 0).all()
    below = peaks[peaks < 900]
    np.testing.assert_allclose(np.diff(below), np.diff(below).mean(), atol=1.0)  # linear up to 1,000 Hz
    above = peaks[peaks > 1_100]
    np.testing.assert_allclose(above[1:] / above[:-1], above[1] / above[0], rtol=2e-3)  # logarithmic from there


def test_a_tone_is_in_its_band() -> None:
    log_mel = LogMel.Config(sample_rate=RATE, num_mels=32).build()
    spectrogram = log_mel(SINE)
    assert (spectrogram.dtype.name, spectrogram.shape) == ("float32", (1 + RATE // 160, 32))
    filters = mel_filters(sample_rate=RATE, window=400, num_mels=32, low_hz=0.0, high_hz=4_000.0)
    assert set(spectrogram[3:-3].argmax(axis=1)) == {int(filters[round(440 / (RATE / 400))].argmax())}
    noise = np.random.default_rng(0).normal(size=RATE)
    np.testing.assert_allclose(log_mel(10 * noise) - log_mel(noise), 2.0, atol=1e-5)  # of powers
    assert log_mel(np.zeros(RATE)).max() == -10
    with pytest.raises(DataError, match=r"more than 200 samples, .*got shape \[100\]"):
        log_mel(SINE[:100])
    with pytest.raises(DataError, match="wanted 0 <= low_hz < high_hz"):
        LogMel.Config(low_hz=9_000.0).build()


def test_folders_name_classes(tmp_path: Path) -> None:
    for name, rate, seconds in [("high/a.wav", RATE, 1.0), ("high/b.wav", 2 * RATE, 0.25), ("low/c.wav", RATE, 3.0)]:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        time = np.arange(round(rate * seconds)) / rate
        (tmp_path / name).write_bytes(wav(0.5 * np.sin(2 * np.pi * 440 * time), rate=rate))
    clips = AudioFolder.Config(folder=str(tmp_path), sample_rate=RATE, seconds=0.5).build()
    check_source(clips)
    assert clips.classes == ("high", "low")
    for i, label in enumerate([0, 0, 1]):
        clip = clips[i]
        assert (clip["audio"].shape, clip["audio"].dtype.name, int(clip["targets"])) == ((RATE // 2,), "float32", label)
        sounding = slice(100, RATE // 4 - 100)
        np.testing.assert_allclose(clip["audio"][sounding], SINE[sounding], atol=0.02)
    assert not clips[1]["audio"][RATE // 4 :].any()
    (tmp_path / "low" / "c.wav").write_bytes(b"broken")
    with pytest.raises(BadRecordError, match=r"c\.wav: corrupt: not audio"):
        clips[2]
    with pytest.raises(DataError, match="at least one sample"):
        AudioFolder.Config(folder=str(tmp_path), seconds=0.0).build()

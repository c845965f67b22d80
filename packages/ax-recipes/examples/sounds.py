"""Audio from files: a small network learns to tell sounds apart that are WAV files in folders ``train/rising`` and the like.

    python sounds.py FOLDER

writes clips of tones that rise, fall, stay or waver there, if they aren't there yet: at pitches, speeds and loudness of their own, in
noise, and at two sample rates. It trains on their log-mel spectrograms for some seconds and prints how many others it tells right. Any
folders of clips will do; FLAC, Ogg and MP3 too, with ``ax-input[audio]``.
"""

from __future__ import annotations

import sys
import wave
from pathlib import Path

import numpy as np
from ax_input import AudioFolder, LogMel, Mapped
from classifier import Classifier, Example, train

CLASSES = ("falling", "rising", "steady", "wavering")
SAMPLE_RATE = 8_000


def write_clips(folder: Path, *, number: int, seed: int) -> None:
    """So many clips of each class, half a second to a second each, as WAV files of 16 bits."""
    rng = np.random.default_rng(seed)
    for name in CLASSES:
        (folder / name).mkdir(parents=True)
        for i in range(number):
            rate = int(rng.choice([SAMPLE_RATE, 2 * SAMPLE_RATE]))
            time = np.arange(0, rng.uniform(0.5, 1.0), 1 / rate)
            octaves = {
                "rising": rng.uniform(0.5, 1.5) * time,
                "falling": -rng.uniform(0.5, 1.5) * time,
                "steady": 0 * time,
                "wavering": 0.3 * np.sin(2 * np.pi * rng.uniform(4, 7) * time),
            }[name]
            hertz = rng.uniform(500, 1_200) * 2.0**octaves
            tone = np.sin(2 * np.pi * np.cumsum(hertz) / rate + rng.uniform(0, 2 * np.pi))
            samples = rng.uniform(0.2, 0.7) * tone + 0.05 * rng.normal(size=len(time))
            with wave.open(str(folder / name / f"{i:03}.wav"), "wb") as file:
                file.setparams((1, 2, rate, 0, "NONE", ""))
                file.writeframes((samples.clip(-1, 1) * 32_767).astype("<i2").tobytes())


def spectrograms(folder: Path) -> Mapped:
    """The clips of a folder as the network takes them: log-mel spectrograms with the mean taken off, ``[51, 32, 1]``."""
    clips = AudioFolder.Config(folder=str(folder), sample_rate=SAMPLE_RATE, seconds=1.0, classes=CLASSES).build()
    log_mel = LogMel.Config(sample_rate=SAMPLE_RATE, num_mels=32, window=400, hop=160, floor=1e-4).build()

    def spectrogram(example: Example) -> Example:
        found = log_mel(example["audio"])
        return {"inputs": (found - found.mean())[:, :, None], "targets": example["targets"]}

    return Mapped(clips, spectrogram, name="log-mel")


if __name__ == "__main__":
    root = Path(sys.argv[1])
    if not (root / "train").exists():
        write_clips(root / "train", number=100, seed=0)
        write_clips(root / "test", number=25, seed=1)
    model = Classifier(channels=(1, 16, 32, 32), num_classes=len(CLASSES))
    result = train(model, examples=spectrograms(root / "train"), held_out=spectrograms(root / "test"), num_steps=60)
    print(f"{result['accuracy']:.1%} of the held-out sounds are told right")

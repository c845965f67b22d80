"""Vision from files: a small network learns to read handwritten digits that are PNG files in folders ``train/0`` to ``train/9``.

    python digits.py FOLDER

writes scikit-learn's 1,797 digits there as images if they aren't there yet (they are from Alpaydin & Kaynak, 1998), trains for some seconds and
prints how many of 360 others it reads right. Other images in such folders will do as well.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from ax_input import ImageFolder, Mapped
from classifier import Classifier, Example, train
from PIL import Image
from sklearn.datasets import load_digits  # type: ignore[import-untyped]  # it ships no types

HELD_OUT = 5  # one in so many


def write_images(folder: Path) -> None:
    """The digits as PNG files of 8 × 8 grey pixels."""
    digits = load_digits()
    for i, (pixels, digit) in enumerate(zip(digits.images, digits.target, strict=True)):
        file = folder / ("test" if i % HELD_OUT == 0 else "train") / str(digit) / f"{i:04}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray((pixels * (255 / 16)).astype(np.uint8)).save(file)


def images(folder: Path) -> Mapped:
    """The images of a folder as the network takes them: around zero."""
    config = ImageFolder.Config(folder=str(folder), height=16, width=16, channels=1)
    return Mapped(config.build(), _centred, name="centred")


def _centred(example: Example) -> Example:
    return {"inputs": example["images"] - np.float32(0.3), "targets": example["targets"]}


if __name__ == "__main__":
    root = Path(sys.argv[1])
    if not (root / "train").exists():
        write_images(root)
    model = Classifier(channels=(1, 16, 32, 32), num_classes=10)
    result = train(model, examples=images(root / "train"), held_out=images(root / "test"), num_steps=120)
    print(f"{result['accuracy']:.1%} of the held-out digits are read right")

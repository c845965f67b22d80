"""Images: files decoded to arrays, by Pillow."""

from __future__ import annotations

import importlib.util
import io
from collections.abc import Mapping
from typing import Literal, final

import ax_config
import numpy as np
from ax_config import field

from ._errors import BadRecordError, DataError, Reason
from ._labelled_files import LabelledFiles

IMAGE_ENDINGS = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff")


@final
class ImageFolder:
    """Images in folders that name their classes: ``images`` ``[H, W, C]`` float32 in [0, 1] and ``targets``, a scalar int32.

    Needs the extra ``ax-input[image]``. A file that is no image raises BadRecordError when it is asked for.
    """

    class Config(ax_config.Config["ImageFolder"]):
        """Where the images are, and how large they become."""

        folder: str = field(help="holds a folder for each class")
        height: int
        width: int
        channels: Literal[1, 3] = field(default=3, help="1 for grey, 3 for red, green and blue")
        classes: tuple[str, ...] = field(default=(), help="their names in order; none means the folders, sorted")

    def __init__(self, cfg: Config, /) -> None:
        self._cfg = cfg
        self._files = LabelledFiles(cfg.folder, endings=IMAGE_ENDINGS, classes=cfg.classes)
        self.classes = self._files.classes
        """What the targets mean."""
        self.fingerprint = f"{self._files.fingerprint}/{cfg.height}x{cfg.width}x{cfg.channels}"
        """Changes with the files and the shape."""

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, index: int, /) -> Mapping[str, np.ndarray]:
        path, data, label = self._files.read(index)
        cfg = self._cfg
        try:
            image = decode_image(data, height=cfg.height, width=cfg.width, channels=cfg.channels)
        except ValueError as error:
            raise BadRecordError(str(path), None, Reason.CORRUPT, str(error)) from error
        return {"images": image, "targets": np.asarray(label, np.int32)}

    def origin(self, index: int, /) -> str:
        """The file."""
        return str(self._files.paths[index])


def decode_image(data: bytes, *, height: int, width: int, channels: Literal[1, 3] = 3) -> np.ndarray:
    """The image in a file's bytes, ``[height, width, channels]`` float32 in [0, 1].

    It is turned as its camera says, scaled until it covers the shape, and what hangs over is cut off on both sides. Transparent
    parts are black. Raises ValueError when it is no image that can be decoded.
    """
    if importlib.util.find_spec("PIL") is None:
        raise DataError("images need Pillow: pip install 'ax-input[image]'")
    # Imported here: an extra.
    from PIL import Image, ImageOps

    try:
        with Image.open(io.BytesIO(data)) as opened:
            upright = ImageOps.exif_transpose(opened)
            if "A" in upright.getbands() or "transparency" in upright.info:
                opaque = Image.new("RGBA", upright.size, "black")
                opaque.alpha_composite(upright.convert("RGBA"))
                upright = opaque
            image = ImageOps.fit(
                upright.convert("L" if channels == 1 else "RGB"), (width, height), Image.Resampling.BICUBIC
            )
    except (OSError, SyntaxError, Image.DecompressionBombError) as error:  # Pillow raises SyntaxError for broken PNGs
        raise ValueError(f"not an image that can be decoded: {error}") from error
    return np.asarray(image, np.float32).reshape(height, width, channels) / np.float32(255)

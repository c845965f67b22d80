import io
from pathlib import Path

import numpy as np
import pytest
from ax_input import BadRecordError, DataError, ImageFolder, decode_image
from ax_input.testing import check_source
from PIL import Image

RNG = np.random.default_rng(0)


def encoded(pixels: np.ndarray, form: str = "PNG", **options: object) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, form, **options)
    return buffer.getvalue()


def test_pixels_come_back() -> None:
    colours = RNG.integers(0, 256, (6, 9, 3), np.uint8)
    decoded = decode_image(encoded(colours), height=6, width=9)
    assert decoded.dtype == np.float32
    np.testing.assert_allclose(decoded, colours / 255, atol=1e-7)
    grey = RNG.integers(0, 256, (6, 9), np.uint8)
    np.testing.assert_allclose(
        decode_image(encoded(grey), height=6, width=9, channels=1)[..., 0], grey / 255, atol=1e-7
    )
    assert decode_image(encoded(grey), height=6, width=9).shape == (6, 9, 3)


def test_it_covers_the_shape_and_cuts_both_sides() -> None:
    # Three stripes of a wide image: the middle one is what is left of it.
    stripes = np.repeat(np.array([0, 100, 250], np.uint8), 30)[None, :].repeat(30, axis=0)
    square = decode_image(encoded(stripes), height=10, width=10, channels=1)
    assert np.abs(square[:, 2:-2] - 100 / 255).max() < 0.02


def test_upright_and_opaque() -> None:
    half = np.zeros((8, 8), np.uint8)
    half[:4] = 200  # light above
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by 90° clockwise
    turned = decode_image(encoded(half, exif=exif), height=8, width=8, channels=1)[..., 0]
    np.testing.assert_allclose(turned, np.rot90(half, -1) / 255, atol=1e-7)
    clear = np.full((4, 4, 4), 255, np.uint8)
    clear[..., 3] = np.array([0, 255, 0, 255])
    assert decode_image(encoded(clear), height=4, width=4)[0, :, 0].tolist() == [0, 1, 0, 1]


@pytest.mark.parametrize("data", [b"", b"no image", encoded(np.zeros((99, 99), np.uint8))[:60]])
def test_what_is_no_image(data: bytes) -> None:
    with pytest.raises(ValueError, match="not an image that can be decoded"):
        decode_image(data, height=4, width=4)


def test_folders_name_classes(tmp_path: Path) -> None:
    for name, grey in [("dark/b.png", 10), ("dark/a.png", 20), ("light/deep/c.PNG", 200)]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(encoded(np.full((5, 5), grey, np.uint8)))
    (tmp_path / "light" / "notes.txt").write_text("no image")
    config = ImageFolder.Config(folder=str(tmp_path), height=5, width=5, channels=1)
    images = config.build()
    check_source(images)
    assert images.classes == ("dark", "light")
    assert [int(image["targets"]) for image in map(images.__getitem__, range(3))] == [0, 0, 1]
    assert [round(float(images[i]["images"].max()) * 255) for i in range(3)] == [20, 10, 200]
    assert images.origin(2) == str(tmp_path / "light/deep/c.PNG")
    assert images.fingerprint != config.clone(width=6).build().fingerprint
    ordered = config.clone(classes=("light", "dark")).build()
    assert [int(ordered[i]["targets"]) for i in range(3)] == [0, 1, 1]
    with pytest.raises(DataError, match="light is none of the classes dark"):
        config.clone(classes=("dark",)).build()
    (tmp_path / "dark" / "a.png").write_bytes(b"broken")
    with pytest.raises(BadRecordError, match=r"a\.png: corrupt: not an image"):
        images[0]
    with pytest.raises(DataError, match="no such folder"):
        config.clone(folder=str(tmp_path / "nowhere")).build()
    with pytest.raises(DataError, match=r"no files that end in \.png"):
        config.clone(folder=str(tmp_path / "light" / "deep")).build()

"""Writing set upright, each picture on its own."""

import pytest
import torch

from tacit.errors import InputError
from tacit.features import deskew


def bars(slant: float, shift: float = 0.0) -> torch.Tensor:
    """A blurred stroke through the middle of 29 x 29 pixels."""
    y, x = torch.arange(29.0)[:, None] - 14, torch.arange(29.0)[None, :] - 14
    return (torch.exp(-((x - shift - slant * y) ** 2) / 4) * torch.exp(-(y**2) / 40))[None, None]


@pytest.mark.parametrize("slant", [-0.6, 0.0, 0.4])
def test_a_slanted_stroke_becomes_upright_and_central(slant: float) -> None:
    torch.testing.assert_close(deskew(bars(slant, shift=2.0)), bars(0.0), atol=0.07, rtol=0)  # bilinear


def test_what_is_upright_and_central_stays() -> None:
    torch.testing.assert_close(deskew(bars(0.0)), bars(0.0), atol=1e-5, rtol=0)


def test_a_picture_is_moved_by_itself_alone() -> None:
    """That is why it is free: no record changes another's features."""
    pictures = torch.cat([bars(0.3), bars(-0.5, 1.0), torch.rand(1, 1, 29, 29)])
    alone = torch.cat([deskew(picture[None]) for picture in pictures])
    torch.testing.assert_close(deskew(pictures), alone, atol=0, rtol=0)


def test_odd_pictures_do_not_break_it() -> None:
    """Empty, of one row, of one pixel; bytes and colours."""
    odd = torch.zeros(3, 2, 8, 6, dtype=torch.uint8)
    odd[1, :, 3], odd[2, 0, 7, 5] = 200, 255
    found = deskew(odd)
    assert found.shape == odd.shape
    assert torch.isfinite(found).all()
    assert found[0].count_nonzero() == 0
    assert found[2, 0].max() <= 255


def test_colours_are_moved_together() -> None:
    both = torch.cat([bars(0.5), 0.5 * bars(0.5)], 1)
    found = deskew(both)
    torch.testing.assert_close(found[:, 1], 0.5 * found[:, 0])


def test_needs_pictures() -> None:
    with pytest.raises(InputError, match="images must be"):
        deskew(torch.zeros(28, 28))

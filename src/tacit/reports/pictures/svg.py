"""The few words of SVG that our pictures need. Every attribute and text is escaped; colours come from the page's style.

No ``style`` attribute is ever written: the page's Content-Security-Policy forbids it.
"""

from html import escape

Attribute = str | float | int


def tag(name: str, *inside: str, **attributes: Attribute) -> str:
    """One element. Underscores stand for hyphens, and ``class_`` for class.

    Example:
        >>> tag("circle", cx=1.0, cy=2.5, class_="point")
        '<circle cx="1" cy="2.5" class="point"/>'
    """
    written = "".join(f' {_name(key)}="{_value(value)}"' for key, value in attributes.items())
    return f"<{name}{written}>{''.join(inside)}</{name}>" if inside else f"<{name}{written}/>"


def words(text: str, **attributes: Attribute) -> str:
    """Text that stays text: it can be searched, copied and read aloud."""
    return tag("text", escape(text), **attributes)


def image(name: str, title: str, description: str, width: float, height: float, *inside: str) -> str:
    """A whole picture with the name and the description that assistive technology reads."""
    heading = tag("title", escape(title), id=f"{name}-title")
    words = tag("desc", escape(description), id=f"{name}-words")
    return tag(
        "svg",
        heading,
        words,
        *inside,
        viewBox=f"0 0 {width:g} {height:g}",
        role="img",
        aria_labelledby=f"{name}-title",
        aria_describedby=f"{name}-words",
    )


def path(points: list[tuple[float, float]]) -> str:
    """A line through points, as path data."""
    return "M" + "L".join(f"{x:.2f},{y:.2f}" for x, y in points)


def _name(key: str) -> str:
    return key.rstrip("_").replace("_", "-")


def _value(value: Attribute) -> str:
    return escape(value, quote=True) if isinstance(value, str) else f"{round(value, 3):g}"

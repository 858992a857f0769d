"""The page in a real browser: light and dark, narrow and wide, on screen and on paper. Needs Debian's `chromium`."""

import re

import pytest

from tacit.reports import make_report, render
from tests.reports.browser import CHROMIUM, Browser
from tests.reports.runs import make_run, write_evaluation, write_facts

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine: apt-get install chromium")

SIZES = [(400, "light"), (400, "dark"), (1280, "light"), (1280, "dark")]
HOSTILE = "<script>document.title='bad'</script>\"><img src=http://127.0.0.1:9/x onerror=alert(1)>" + "W" * 120


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """Everything at once: seeded, hostile names, predictions, private evidence."""
    folder = tmp_path_factory.mktemp("page") / "run"
    prediction, labels = make_run(folder, seeded=True, evidence=True, dataset=HOSTILE, assumptions=(HOSTILE,))
    write_facts(folder, features=[HOSTILE] * 50, schema={"derived_from_private_data": True}, target=HOSTILE,
                settings=[{"name": HOSTILE, "value": HOSTILE, "why": HOSTILE}])  # fmt: skip
    write_evaluation(folder, prediction, labels)
    path = folder / "report.html"
    path.write_text(render(make_report(folder, bayesian=True), "html"))
    return path


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    opened = Browser(tmp_path_factory.mktemp("profile"))
    yield opened
    opened.close()


@pytest.mark.parametrize(("width", "scheme"), SIZES)
def test_the_page_is_quiet_and_fits(browser, page, width, scheme):
    browser.open(page, width=width, scheme=scheme)
    assert browser.requests == [page.as_uri()]
    assert browser.complaints == []
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    assert browser.evaluate(TOO_WIDE) == []
    assert browser.evaluate("[document.scripts.length, document.images.length, document.title.includes('bad')]") == [
        0, 0, True,
    ]  # fmt: skip
    assert browser.evaluate("document.title") != "bad"


@pytest.mark.parametrize("media", ["screen", "print"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_word_and_line_stands_out(browser, page, scheme, media):
    browser.open(page, scheme=scheme, media=media)
    assert browser.evaluate(f"({CONTRAST})().length") == 0, browser.evaluate(f"({CONTRAST})().slice(0, 5)")
    dark = scheme == "dark" and media == "screen"
    assert (
        browser.evaluate("getComputedStyle(document.documentElement).getPropertyValue('--paper')") == "#14181f"
    ) == dark


def test_contrast_is_really_measured(browser, page):
    browser.open(page)
    spoil = "document.documentElement.attributeStyleMap; document.querySelector('.lead').style.color = '#bbb'"
    browser.evaluate(spoil)
    assert "lead" in " ".join(browser.evaluate(f"({CONTRAST})()"))


@pytest.mark.parametrize("width", [400, 1280])
def test_the_words_of_a_drawing_lie_inside_it_and_apart(browser, page, width):
    browser.open(page, width=width)
    assert browser.evaluate(OUTSIDE) == []
    assert browser.evaluate(OVERLAPPING) == []


def test_a_screen_reader_is_told_everything(browser, page):
    browser.open(page)
    nodes = [node for node in browser.call("Accessibility.getFullAXTree")["nodes"] if not node.get("ignored")]

    def named(*roles):
        return [node for node in nodes if node["role"]["value"] in roles]

    images = named("image", "img", "graphics-document")
    assert len(images) == browser.evaluate("document.querySelectorAll('figure > svg').length") >= 8
    for node in images:
        assert node["name"]["value"]
        assert len(node["description"]["value"]) > 40
    for role in ("table", "link", "region", "heading"):
        assert named(role)
        assert all(node["name"]["value"] for node in named(role))
    assert len(named("main")) == len(named("navigation")) == len(named("banner")) == 1


def test_the_keyboard_shows_where_it_is(browser, page):
    browser.open(page)
    for _ in range(4):
        for kind in ("keyDown", "keyUp"):
            browser.call("Input.dispatchKeyEvent", type=kind, key="Tab", code="Tab", windowsVirtualKeyCode=9)
        width, style, left = browser.evaluate(FOCUS)
        assert (style, width >= 2, left >= 0) == ("solid", True, True)


def test_the_policy_stops_what_an_injection_would_try(browser, page):
    browser.open(page)
    browser.evaluate("{const s = document.createElement('script'); s.textContent = 'window.got = 1'; "
                     "document.body.append(s); document.body.insertAdjacentHTML('beforeend', "
                     "'<img src=http://127.0.0.1:9/x><p id=styled style=\"color:red\">x</p>')}")  # fmt: skip
    assert browser.evaluate("window.got === undefined")
    assert browser.evaluate("getComputedStyle(styled).color !== 'rgb(255, 0, 0)'")
    assert any("Content Security Policy" in text for text in browser.complaints)


def test_it_prints(browser, page):
    browser.open(page, scheme="dark")
    paper = browser.pdf()
    assert paper.startswith(b"%PDF")
    assert 4 <= len(re.findall(rb"/Type\s*/Page\b", paper)) <= 14
    browser.open(page, width=700, media="print", scheme="dark")
    assert browser.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert browser.evaluate("getComputedStyle(document.querySelector('nav')).display") == "none"
    assert browser.evaluate("document.documentElement.scrollWidth") <= 700


TOO_WIDE = """
[...document.body.querySelectorAll('*')]
  .filter(e => !e.closest('.scroll, pre, .skip') && e.getBoundingClientRect().right > innerWidth + 1)
  .map(e => e.tagName + '.' + e.getAttribute('class'))
"""

# WCAG 2: the luminance of sRGB colours; 4.5 to 1 for words, 3 to 1 for the lines and shapes of drawings.
CONTRAST = """
() => {
  const parse = text => { const n = text.match(/[\\d.]+/g).map(Number); return {rgb: n.slice(0, 3), a: n[3] ?? 1}; };
  const luminance = rgb => rgb.map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = e => {
    for (; e; e = e.parentElement) {
      const found = parse(getComputedStyle(e).backgroundColor);
      if (found.a === 1) return found.rgb;
    }
    return [255, 255, 255];
  };
  const ratio = (a, b) => { const [x, y] = [luminance(a), luminance(b)].sort((p, q) => q - p);
    return (x + 0.05) / (y + 0.05); };
  const poor = [];
  const check = (e, colour, least) => {
    const found = parse(colour);
    const r = found.a === 1 ? ratio(found.rgb, behind(e)) : 0;
    if (r < least) poor.push(`${e.tagName}.${e.getAttribute('class')} ${colour} ${r.toFixed(2)}`);
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  let words = 0;
  while (walker.nextNode()) {
    const e = walker.currentNode.parentElement;
    if (!walker.currentNode.textContent.trim() || e.closest('title, desc')) continue;
    words += 1;
    check(e, e.closest('svg') ? getComputedStyle(e).fill : getComputedStyle(e).color, 4.5);
  }
  for (const e of document.querySelectorAll('.line, .bars, .points:not(div), .few, .who, .arm, .axis')) {
    const style = getComputedStyle(e);
    check(e, style.stroke !== 'none' ? style.stroke : style.fill, 3);
  }
  return words > 100 ? poor : ['too few words were seen'];
}
"""

OUTSIDE = """
[...document.querySelectorAll('figure > svg')].flatMap(svg => {
  const box = svg.viewBox.baseVal;
  return [...svg.querySelectorAll('text')].filter(t => {
    const b = t.getBBox();
    return b.x < 0 || b.y < 0 || b.x + b.width > box.width || b.y + b.height > box.height;
  }).map(t => svg.parentElement.id + ': ' + t.textContent);
})
"""

OVERLAPPING = """
[...document.querySelectorAll('figure > svg')].flatMap(svg => {
  const boxes = [...svg.querySelectorAll('text')].map(t => [t.textContent, t.getBBox()]);
  return boxes.flatMap(([a, p], i) => boxes.slice(i + 1).filter(([b, q]) =>
    p.x < q.x + q.width && q.x < p.x + p.width && p.y < q.y + q.height && q.y < p.y + p.height
  ).map(([b]) => svg.parentElement.id + ': ' + a + ' / ' + b));
})
"""

FOCUS = """
(() => { const e = document.activeElement, s = getComputedStyle(e);
  return [parseFloat(s.outlineWidth), s.outlineStyle, e.getBoundingClientRect().left]; })()
"""

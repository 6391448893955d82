"""Plain text out of HTML mail, and a message without signature and quoted history."""

from html.parser import HTMLParser
import re


def _words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", text))


_BLOCK = _words(
    "address article aside blockquote center div dl dt dd fieldset figure footer form "
    "h1 h2 h3 h4 h5 h6 header hr main nav ol p pre section table tbody thead tfoot tr "
    "ul li br"
)
_INLINE = _words(
    "a abbr acronym b bdi bdo big cite code data del dfn em font i img ins kbd label "
    "mark q s samp small span strike strong sub sup td th time tt u var wbr body html "
    "caption col colgroup picture source video audio button input select option "
    "textarea meta link base"
)
_DROPPED = frozenset({"script", "style", "head", "title", "template", "noscript"})
_KNOWN = _BLOCK | _INLINE | _DROPPED
# "a<b && c>d" is no tag: a tag ends at once, or an attribute follows.
_LOOKS_HTML = re.compile(
    r"<(?:/?([A-Za-z][A-Za-z0-9]*)(?:\s*/?>|\s+[A-Za-z-]+\s*=)|!--|!DOCTYPE)",
    re.IGNORECASE,
)


class _Text(HTMLParser):
    """Collects the text; a tag HTML does not have is text (`<you@example.com>`)."""

    def __init__(self, *, keep_lines: bool) -> None:
        super().__init__(convert_charrefs=True)
        self.lines: list[str] = [""]
        self.quoted = 0
        self._silent: list[str] = []
        self._link: list[tuple[str, int]] = []
        self._pre = int(keep_lines)

    def _break(self) -> None:
        if self.lines[-1].strip(" >"):
            self.lines.append("")
        self.lines[-1] = "> " * self.quoted

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag not in _KNOWN:
            self.handle_data(self.get_starttag_text() or "")
        elif tag in _DROPPED:
            self._silent.append(tag)
        elif self._silent:
            return
        elif tag == "br":
            self.lines.append("> " * self.quoted)
        elif tag in ("td", "th"):
            if self.lines[-1].strip(" >"):
                self.lines[-1] += " | "
        elif tag == "img":
            self.handle_data(given.get("alt") or "")
        elif tag == "a":
            self._link.append((given.get("href") or "", len("".join(self.lines))))
        elif tag in _BLOCK:
            self._pre += tag == "pre"
            self._break()
            if tag in ("p", "table", "blockquote") and len(self.lines) > 1:
                self.lines.append("> " * self.quoted)
            if tag == "blockquote":
                self.quoted += 1
                self.lines[-1] = "> " * self.quoted
            if tag == "li":
                self.lines[-1] += "- "

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _KNOWN - _DROPPED:
            self.handle_starttag(tag, attrs)
        elif tag not in _KNOWN:
            self.handle_data(self.get_starttag_text() or "")

    def handle_endtag(self, tag: str) -> None:
        if tag not in _KNOWN:
            self.handle_data(f"</{tag}>")
        elif tag in _DROPPED:
            if tag in self._silent:
                del self._silent[self._silent.index(tag) :]
        elif self._silent:
            return
        elif tag == "a" and self._link:
            href, start = self._link.pop()
            shown = "".join(self.lines)[start:].strip()
            # The address is part of what the reply says; the judge has to see it.
            if href.startswith(("http://", "https://")) and href not in shown:
                self.lines[-1] += f" ({href})"
        elif tag in _BLOCK and tag != "br":
            self.quoted -= tag == "blockquote" and self.quoted > 0
            self._pre -= tag == "pre" and self._pre > 0
            self._break()

    def handle_data(self, data: str) -> None:
        if self._silent:
            return
        if self._pre:
            first, *rest = data.split("\n")
            self.lines[-1] += first
            self.lines += ["> " * self.quoted + line for line in rest]
            return
        text = re.sub(r"[ \t\r\n\f]+", " ", data)
        if not self.lines[-1].strip(" >") or self.lines[-1].endswith(" "):
            text = text.lstrip(" ")
        self.lines[-1] += text


def html_to_text(text: str) -> str:
    r"""The text of a piece of HTML; a text without HTML tags stays as it is.

    Line ends count only where the HTML has no tags that end a line (a chat message
    with a bold word in it).

    >>> html_to_text("<p>Open <b>Settings</b> &gt; Billing.</p><p>Done?</p>")
    'Open Settings > Billing.\n\nDone?'
    >>> html_to_text("Settings > Billing, if a < b; mail <me@example.com>")
    'Settings > Billing, if a < b; mail <me@example.com>'
    """
    found = [match[1] for match in _LOOKS_HTML.finditer(text)]
    tags = {tag.lower() for tag in found if tag is not None}
    if not tags & _KNOWN and None not in found:
        return text
    parser = _Text(keep_lines=not tags & _BLOCK)
    parser.feed(text)
    parser.close()
    joined = "\n".join(line.rstrip(" ") for line in parser.lines)
    return re.sub(r"\n{3,}", "\n\n", joined).strip("\n ")


# "On Tue, 3 Nov 2026 at 10:02, Ann <ann@example.com> wrote:", in seven languages; it
# may be wrapped over up to three lines.
_ATTRIBUTION = re.compile(
    r"^[ \t]*(?:On\b.{5,300}?\bwrote|Am\b.{5,300}?\bschrieb.{0,200}?|"
    r"Le\b.{5,300}?\ba écrit|El\b.{5,300}?\bescribió.{0,200}?|"
    r"Il\b.{5,300}?\bha scritto|Op\b.{5,300}?\bschreef.{0,200}?|"
    r"Em\b.{5,300}?\bescreveu)[ \xa0]?:[ \t]*$",
    re.MULTILINE | re.DOTALL,
)
_ORIGINAL = re.compile(
    r"^[ \t>]*-{2,}[ ]*(?:Original Message|Forwarded message|Ursprüngliche Nachricht|"
    r"Message d'origine|Mensaje original|Messaggio originale|Oorspronkelijk bericht|"
    r"Mensagem original)[ ]*-{2,}[ \t]*$",
    re.MULTILINE | re.IGNORECASE,
)
_HEADERS = re.compile(
    r"^(?:_{10,}[ \t]*\n)?[ \t]*\*?(?:From|Von|De|Da|Van)[ ]?:\*?[ ].+\n"
    r"[ \t]*\*?(?:Sent|Date|Gesendet|Datum|Envoyé|Enviado|Inviato|Verzonden|Data|Fecha|"
    r"To|An|À|Para|A|Aan)[ ]?:\*?[ ].+$",
    re.MULTILINE,
)
_SENT_FROM = re.compile(
    r"^[ \t]*(?:Sent from my |Sent from Outlook|Get Outlook for |Von meinem .{0,40}"
    r"gesendet|Gesendet von |Envoyé de mon |Enviado desde mi |Inviato da |Verzonden "
    r"vanaf ).{0,80}$",
    re.MULTILINE | re.IGNORECASE,
)
_POSTSCRIPT = re.compile(r"\s*p\.? ?s\b", re.IGNORECASE)
_DELIMITER = re.compile(r"^-- ?$", re.MULTILINE)
_CLOSING = re.compile(
    r"^[ \t]*(?:(?:with )?(?:kind|best|warm|many)? ?(?:regards|wishes)|best|cheers|"
    r"sincerely|yours (?:sincerely|truly|faithfully)|(?:many )?thanks(?: again| in "
    r"advance)?|thank you|mit (?:freundlichen|besten|vielen) grüßen|"
    r"(?:viele|beste|liebe) grüße|vg|lg|mfg|cordialement|bien à vous|"
    r"saludos(?: cordiales)?|un saludo|"
    r"cordiali saluti|met vriendelijke groet(?:en)?|atenciosamente|abraços)"
    r"[ ]?[,.!]?[ \t]*$",
    re.MULTILINE | re.IGNORECASE,
)


def strip_quotes(text: str) -> str:
    r"""A message without its signature and the mail history below (or above) it.

    Quotes between the writer's own lines stay: they say what is being answered. A
    message that is nothing but quotes stays whole.

    >>> strip_quotes("It fails again.\n\nOn 3 Nov 2026, Ann wrote:\n> Try this.")
    'It fails again.'
    """
    body = text.replace("\r\n", "\n")
    body = _without_history(body)
    body = _without_signature(body)
    stripped = body.strip("\n ")
    return stripped if stripped and stripped != text.strip() else text


def _without_history(body: str) -> str:
    for pattern in (_ORIGINAL, _HEADERS):
        match = pattern.search(body)
        if match and body[: match.start()].strip():
            body = body[: match.start()]
    for match in _ATTRIBUTION.finditer(body):
        above, below = body[: match.start()], body[match.end() :]
        lines = below.strip("\n").split("\n")
        quoted = [line.startswith((">", "|")) or not line.strip() for line in lines]
        if all(quoted) or not any(line.startswith(">") for line in lines):
            if above.strip():  # the usual: answer above, history below
                body = above
            break
        if not above.strip():  # history above, answer below
            rest = next(i for i, quote in enumerate(quoted) if not quote)
            if not any(line.startswith(">") for line in lines[rest:]):
                body = "\n".join(lines[rest:])
            break
    lines = body.rstrip().split("\n")
    while len(lines) > 1 and (lines[-1].startswith(">") or not lines[-1].strip()):
        lines.pop()
    return body if all(x.startswith(">") for x in lines) else "\n".join(lines)


def _without_signature(body: str) -> str:
    for pattern in (_DELIMITER, _SENT_FROM):
        matches = list(pattern.finditer(body))
        if matches:
            match = matches[-1]
            # A signature is short and last; a line of dashes amid a text is neither.
            if body[: match.start()].strip() and body.count("\n", match.end()) <= 12:
                body = body[: match.start()]
    closings = list(_CLOSING.finditer(body))
    if closings:
        match = closings[-1]
        after = [line for line in body[match.end() :].split("\n") if line.strip()]
        # A postscript or a question below the name is not a signature.
        looks_signed = len(after) <= 6 and not any(
            len(line) > 60 or "?" in line or _POSTSCRIPT.match(line) for line in after
        )
        if looks_signed and body[: match.start()].strip():
            body = body[: match.start()]
    return body

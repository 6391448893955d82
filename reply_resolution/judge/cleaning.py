"""What a `Preparation` does to one text: HTML to plain text, mail history out, masks.

Phone numbers are recognised by `phonenumbers` (Google's libphonenumber), card numbers
and IBANs by `python-stdnum`; both come with the extra `mask`. Order numbers, prices and
dates are what a reply is judged by, and stay.
"""

from collections.abc import Callable, Iterator
from html.parser import HTMLParser
import importlib
import re
from typing import Any

from reply_resolution.errors import RubricError


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


# Personal data

# Only signs that are common in addresses: "**me@example.com**" is emphasis.
_EMAIL = re.compile(
    r"(?<![\w.+-])\w[\w.+%'-]{0,63}@(?:[\w-]{1,63}\.)+[^\W\d_][\w-]{0,61}\w"
)
_CARD = re.compile(r"(?<![\w.,-])\d(?:[ -]?\d){11,18}(?![\w-]|[.,]\d)")
_IBAN = re.compile(r"(?<!\w)[A-Z]{2}\d{2}(?:[ -]?[A-Z0-9]){11,30}(?!\w)", re.IGNORECASE)
# First digits and lengths of the card schemes: of the order numbers of 16 digits one in
# ten passes the check digit.
_SCHEMES = re.compile(
    r"4(?:\d{12}|\d{15}|\d{18})|5[1-5]\d{14}|2(?:22[1-9]|2[3-9]\d|[3-6]\d\d|7[01]\d|720)"
    r"\d{12}|3[47]\d{13}|3(?:0[0-5]|[689]\d)\d{11}|35(?:2[89]|[3-8]\d)\d{12}|"
    r"6(?:011|5\d\d|4[4-9]\d)\d{12}|62\d{14,17}|(?:50|5[6-9]|6\d)\d{10,17}"
)
# A word that says a phone number follows, or that something else does.
_PHONE_WORD = re.compile(
    r"(?:phone|tel(?:efon|efono|éfono|éphone)?|mobile|mobil|cell|handy|fax|call|ring|"
    r"text|reach|whatsapp|sms|dial|number is|nummer|rufen|anrufen|llame|appel\w*)"
    r"\W{0,3}(?:\w+\W{1,3}){0,4}$",
    re.IGNORECASE,
)
_PHONE_HINT = re.compile(_PHONE_WORD.pattern.partition(r"\W{0,3}(?:")[0], re.IGNORECASE)
_OTHER_WORD = re.compile(
    r"(?:order|invoice|ticket|case|ref(?:erence)?|booking|tracking|account|bestell\w*|"
    r"rechnung\w*|commande|facture|pedido|factura|sku|serial|version|id)\W{0,3}"
    r"(?:(?:no|nr|number|nummer|num|n°)\W{0,3})?(?:is\W{0,2})?#?$",
    re.IGNORECASE,
)
_DATE = re.compile(
    r"\d{4}([-./])\d{1,2}\1\d{1,2}|\d{1,2}([-./])\d{1,2}\2(?:\d{4}|\d\d)"
)
_ABROAD = re.compile(r"(?<!\d)00[1-9]")
_SHORTEST = 7  # digits of a phone number without its country
#: Tried for a number that stands after a word such as "phone".
_REGIONS = ("US", "GB", "DE", "FR", "ES", "IT", "NL", "IN", "AU", "BR")


def _load(name: str) -> Any:  # noqa: ANN401
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise RubricError(
            f"masking needs the package {name.partition('.')[0]!r}, which is not "
            "installed. Install the extra: pip install 'reply-resolution[mask]'; or "
            "set mask = false in the rubric's preparation."
        ) from error


class Masker:
    """Masks for one row: the same address, the same mask, in every field."""

    def __init__(self, phone_region: str | None = None) -> None:
        """Load the validators.

        Args:
            phone_region: Country whose national phone numbers count, such as "US".

        Raises:
            RubricError: The extra `mask` is not installed.
        """
        self._phones = _load("phonenumbers")
        self._iban = _load("stdnum.iban")
        self._luhn = _load("stdnum.luhn")
        self._region = phone_region
        self._masks: dict[tuple[str, str], str] = {}

    def mask(self, text: str) -> str:
        """The text with its personal data replaced."""
        if "@" in text:
            text = _EMAIL.sub(lambda m: self._name("email", m[0].lower()), text)
        if not any(map(str.isdigit, text)):
            return text
        text = self._replace(text, self._ibans)
        text = self._replace(text, self._cards)
        return self._replace(text, self._phone_numbers)

    def _name(self, kind: str, value: str) -> str:
        known = self._masks.get((kind, value))
        if known is None:
            number = 1 + sum(k == kind for k, _ in self._masks)
            known = self._masks[kind, value] = f"[{kind} {number}]"
        return known

    def _replace(
        self, text: str, find: Callable[[str], Iterator[tuple[int, int, str, str]]]
    ) -> str:
        parts, at = [], 0
        for start, end, kind, value in find(text):
            if start >= at:
                parts += [text[at:start], self._name(kind, value)]
                at = end
        return "".join([*parts, text[at:]])

    def _ibans(self, text: str) -> Iterator[tuple[int, int, str, str]]:
        for match in _IBAN.finditer(text):
            # Words may follow without a sign between ("... 00 thanks"): the longest
            # beginning that is valid.
            for end in range(match.end(), match.start() + 14, -1):
                piece = text[match.start() : end]
                if piece[-1] in " -" or text[end : end + 1].isalnum():
                    continue
                if self._iban.is_valid(piece):
                    yield match.start(), end, "iban", self._iban.compact(piece).upper()
                    break

    def _cards(self, text: str) -> Iterator[tuple[int, int, str, str]]:
        for match in _CARD.finditer(text):
            digits = re.sub(r"\D", "", match[0])
            if _SCHEMES.fullmatch(digits) and self._luhn.is_valid(digits):
                yield match.start(), match.end(), "card", digits

    def _phone_numbers(self, text: str) -> Iterator[tuple[int, int, str, str]]:
        lib = self._phones
        regions: list[str | None] = [self._region]
        if _PHONE_HINT.search(text):
            regions += [region for region in _REGIONS if region != self._region]
        elif _ABROAD.search(text):
            regions.append("DE")  # as in most countries, 00 is dialled for abroad
        found: dict[int, tuple[int, str]] = {}
        for region in regions:
            for match in lib.PhoneNumberMatcher(text, region):
                if match.start in found or _DATE.search(match.raw_string):
                    continue
                before = text[max(0, match.start - 40) : match.start]
                sure = match.raw_string.lstrip("( ").startswith("+")
                if not sure:
                    short = sum(map(str.isdigit, match.raw_string)) < _SHORTEST
                    if short or _OTHER_WORD.search(before):
                        continue
                    sure = _ABROAD.match(match.raw_string) is not None or (
                        region is not None and region == self._region
                    )
                if sure or _PHONE_WORD.search(before):
                    number = match.number
                    found[match.start] = (
                        match.end,
                        self._same_phone(number.country_code, number.national_number),
                    )
        for start in sorted(found):
            end, value = found[start]
            yield start, end, "phone", value

    def _same_phone(self, country: int, national: int) -> str:
        """One name for a number written with and without its country."""
        for kind, known in self._masks:
            if kind == "phone" and known.endswith(str(national)):
                return known
        return f"+{country}{national}"

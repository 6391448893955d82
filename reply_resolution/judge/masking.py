"""Masks for personal data, recognised by validators that others keep well.

Phone numbers by `phonenumbers` (Google's libphonenumber), card numbers and IBANs by
`python-stdnum`; both come with the extra `mask`. Order numbers, prices and dates are
what a reply is judged by, and stay.
"""

from collections.abc import Callable, Iterator
import importlib
import re
from typing import Any

from reply_resolution.errors import RubricError

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

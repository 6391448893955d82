"""What is stripped, masked and cut before a row is sent."""

import importlib
import json

import pytest

from reply_resolution.errors import RubricError
from reply_resolution.judge import cleaning
from reply_resolution.judge.cleaning import html_to_text, strip_quotes
from reply_resolution.judge.prepare import Preparation
from reply_resolution.judge.rubric import Rubric


def sent(row, **options):
    """(the fields as the judge reads them, the note)."""
    rubric = Rubric.default().replace(preparation=Preparation(**options))
    message = rubric.user_message(row)
    return json.loads(message.text), message.note


ROW = {
    "request": "<p>Mail ann@example.com</p>-- <br>Ann<br>+49 30 901820",
    "reply": "Write to ann@example.com.",
}


# Options and versions


def test_off_by_default_nothing_is_touched():
    """Without options the row is sent as given, and nothing is said."""
    assert not Preparation()
    assert sent(ROW) == (ROW, "")


def test_options_are_part_of_the_version_only_where_they_are_on():
    """Each option makes another rubric; an option that is off leaves no trace."""
    plain = Rubric.default()
    on = [
        {"strip_html": True},
        {"strip_quotes": True},
        {"mask": True},
        {"mask": True, "phone_region": "DE"},
        {"max_chars": 5000},
    ]
    made = {plain.replace(preparation=Preparation(**options)).hash for options in on}
    assert len(made | {plain.hash}) == 6
    assert plain.replace(preparation=Preparation(strip_html=False)).hash == plain.hash


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"max_chars": 499}, "500 or more"),
        ({"max_chars": True}, "500 or more"),
        ({"max_chars": "5000"}, "500 or more"),
        ({"strip_html": 1}, "strip_html 1 is not true or false"),
        ({"mask": True, "phone_region": "Germany"}, "two capital letters"),
        ({"phone_region": "DE"}, "does nothing without mask"),
    ],
)
def test_malformed_options_are_refused(options, says):
    """An option of the wrong kind is named with what it may be."""
    with pytest.raises(RubricError, match=says):
        Preparation(**options)


def test_a_missing_extra_is_named_with_its_install_line(monkeypatch):
    """Masking without its packages says what to install, before anything is sent."""

    def absent(name):
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", absent)
    with pytest.raises(RubricError, match=r"pip install 'reply-resolution\[mask\]'"):
        sent(ROW, mask=True)


def test_steps_work_together_and_on_every_turn():
    """HTML, then quotes, then masks; in requests, replies, context and turns."""
    row = {
        **ROW,
        "conversation": [{"role": "user", "content": "<b>ann@example.com</b>"}],
    }
    fields, _ = sent(row, strip_html=True, strip_quotes=True, mask=True)
    assert fields == {
        "request": "Mail [email 1]",
        "conversation": [{"role": "user", "content": "[email 1]"}],
        "reply": "Write to [email 1].",
    }


# Masks


def mask(text, region=None):
    """The text with its masks, alone in its row."""
    return cleaning.Masker(region).mask(text)


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("to Ann.Lee+shop@mail.example.co.uk.", "to [email 1]."),
        ("**me@example.com** <me@example.com>", "**[email 1]** <[email 1]>"),
        ("ME@Example.com or me@example.com", "[email 1] or [email 1]"),
        ("write andré@exämple.fr", "write [email 1]"),
        ("call +1 415 555 2671 now", "call [phone 1] now"),
        ("+49 (0)30 901820, 0049 30 901820", "[phone 1], [phone 1]"),
        ("my phone is 030 901820", "my phone is [phone 1]"),
        ("call me on (415) 555-2671", "call me on [phone 1]"),
        ("tel 06 12 34 56 78", "tel [phone 1]"),
        ("card 4111 1111 1111 1111 exp 12/27", "card [card 1] exp 12/27"),
        ("4111-1111-1111-1111 4111111111111111", "[card 1] [card 1]"),
        ("amex 3782 822463 10005", "amex [card 1]"),
        ("DE89 3704 0044 0532 0130 00 thanks", "[iban 1] thanks"),
        ("gb82west12345698765432.", "[iban 1]."),
        ("GB82 WEST 1234 5698 7654 32 and a lot more", "[iban 1] and a lot more"),
    ],
)
def test_personal_data_is_masked(text, masked):
    """Addresses, numbers, cards and accounts as people write them."""
    assert mask(text) == masked


@pytest.mark.parametrize(
    "text",
    [
        "Order HB-2026-004512, ticket #20261130-0042, invoice 2024-113-4555",
        "order 4155552671 and order number 415-555-2671",
        "Order #1234567890123456 and 4111 1111 1111 1112",
        "1.234,56 EUR, $1,299.00, 120 EUR, 19.99, 3-5 days, 50%",
        "2026-11-30, 30/11/2026, 30.11.2026 at 10:30, 2026-03-14T10:22:33",
        "iOS 16.4.1, 192.168.100.200, port 8080, room 08723",
        "tracking 1Z999AA10123456784, code 987654, version 2.10.3.4",
        "DE89 3704 0044 0532 0130 01 fails its check digits",
        "@handle, a@b, user@localhost, price @ 5.00",
        "Call before 2026-11-30 10:30 or text us by 31.12.2026",
    ],
)
def test_order_numbers_prices_and_dates_stay(text):
    """What a reply is judged by is left alone."""
    assert mask(text) == text


def test_national_numbers_of_the_named_country_are_masked():
    """With a region its numbers need no word before them; order numbers still stay."""
    text = "650-253-0000, order 650-253-0001, 2026-11-30"
    assert mask(text) == text
    assert mask(text, "US") == "[phone 1], order 650-253-0001, 2026-11-30"


def test_masks_are_consistent_within_a_row_and_new_in_the_next():
    """The same address is the same mask in every field, so a reply can be judged."""
    row = {
        "request": "I am b@example.com, not a@example.com. Tel. +49 30 901820",
        "context": "Account b@example.com",
        "reply": "We wrote to a@example.com and called 0049 30 901820.",
    }
    fields, note = sent(row, mask=True)
    assert fields == {
        "request": "I am [email 1], not [email 2]. Tel. [phone 1]",
        "context": "Account [email 1]",
        "reply": "We wrote to [email 2] and called [phone 1].",
    }
    assert note == ""
    assert sent({**row, "request": "a@example.com"}, mask=True)[0]["request"] == (
        "[email 1]"
    )


# HTML


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("<p>One<br>two</p><p>three</p>", "One\ntwo\n\nthree"),
        ("<ul><li>a</li><li>b &amp; c</li></ul>", "- a\n- b & c"),
        (
            '<a href="https://x.example/p">here</a> <a href="mailto:a@b.example">m</a>',
            "here (https://x.example/p) m",
        ),
        (
            '<a href="https://x.example">https://x.example</a>',
            "https://x.example",
        ),
        (
            "<style>p{}</style><script>x</script><div>Hi<img alt=' logo'></div>",
            "Hi logo",
        ),
        ("<table><tr><td>1</td><td>2</td></tr><tr><td>3</td></tr></table>", "1 | 2\n3"),
        ("<pre>a\n  b</pre>", "a\n  b"),
        ("<p>Mail <me@example.com> &lt;b&gt;</p>", "Mail <me@example.com> <b>"),
        ("Yes<blockquote>Did it<br>work?</blockquote>", "Yes\n\n> Did it\n> work?"),
        ("<p>never closed <b>text", "never closed text"),
        ("<!-- x --><p>é 漢</p>", "é 漢"),
    ],
)
def test_html_becomes_plain_text(html, text):
    """Structure becomes line breaks; what a reader sees stays, links included."""
    assert html_to_text(html) == text


@pytest.mark.parametrize(
    "text",
    [
        "Settings > Billing, a < b, x <3 y",
        "Ann <ann@example.com> &amp; you",
        "if (a<b && c>d) return;",
        "  two\n\n\n\nblank lines  ",
        "",
    ],
)
def test_text_that_is_no_html_stays_as_it_is(text):
    """Arrows, comparisons and addresses in angle brackets are not markup."""
    assert html_to_text(text) == text


# Mail


@pytest.mark.parametrize(
    ("mail", "kept"),
    [
        (
            "New.\n\nOn Tue, 3 Nov 2026 at 10:02, Ann <a@b.example> wrote:\n> Old",
            "New.",
        ),
        ("New.\n\nOn 3 Nov 2026, Ann\n<a@b.example> wrote:\n\n> a\n>\n> b", "New."),
        ("Neu.\n\nAm 03.11.2026 um 10:02 schrieb Ann:\n> Alt", "Neu."),
        ("Neuf.\r\n\r\nLe 3 nov. 2026 à 10:02, Ann a écrit :\r\n> Vieux", "Neuf."),
        ("Nuevo.\n\nEl mar, 3 nov 2026, Ann escribió:\n> Viejo", "Nuevo."),
        ("New.\n-----Original Message-----\nFrom: A\nOld", "New."),
        (
            "New.\n________________________________\nFrom: A <a@b.example>\n"
            "Sent: Tuesday\nTo: B\nSubject: Re\n\nOld",
            "New.",
        ),
        ("Neu.\n\nVon: A\nGesendet: Dienstag\nAn: B\nBetreff: x\n\nAlt", "Neu."),
        ("New.\n> Old\n> older", "New."),
        (
            "On Monday Ann wrote:\n> Does it open?\n\nNo, it does not.",
            "No, it does not.",
        ),
        ("Still broken.\n-- \nAnn Lee\nStudio 5", "Still broken."),
        ("Still broken.\n\nSent from my iPhone", "Still broken."),
        ("Still broken.\n\nBest regards,\nAnn Lee\nStudio Five", "Still broken."),
        ("Geht nicht.\n\nMit freundlichen Grüßen\nAnn", "Geht nicht."),
        ("Broken.\n\nThanks!\nAnn\n\nOn 3 Nov 2026, B wrote:\n> Old", "Broken."),
    ],
)
def test_history_and_signature_go(mail, kept):
    """What the writer wrote now stays; what mail programs hang on goes."""
    assert strip_quotes(mail) == kept


@pytest.mark.parametrize(
    "mail",
    [
        "> Which plan do you have?\nStudio.\n> Since when?\nMarch.",
        "On Monday we talked and you wrote: restart it. It did not help.",
        "Steps:\n--\nfirst\n--\nsecond " + "\nmore" * 20,
        "Best regards is what my e-mail footer should say. How do I set it?",
        "Thanks,\nbut where do I find the setting, and who may change it?",
        "Regards\nAnn\nPS: my order is 1234, is it on its way?",
        "> only a quote\n> and nothing else",
        "Best regards,\nAnn",
        "From: and To: are mixed up in my notices.",
        "  keeps its spaces  ",
    ],
)
def test_what_is_no_history_stays(mail):
    """Quotes answered line by line, questions after a greeting, nothing but quotes."""
    assert strip_quotes(mail) == mail


# The limit


def turns(*lengths):
    """A conversation with turns of these lengths."""
    return [{"role": "user", "content": str(i) * n} for i, n in enumerate(lengths)]


def test_the_oldest_turns_go_first_and_it_is_said():
    """A long thread loses its beginning, whole turns at a time, and says so."""
    row = {
        "request": "q" * 100,
        "reply": "r" * 100,
        "conversation": turns(300, 200, 50),
    }
    fields, note = sent(row, max_chars=500)
    assert [t["content"][0] for t in fields["conversation"]] == ["1", "2"]
    assert fields["request"] == "q" * 100
    assert note == "cut: 1 oldest turn"
    assert sent(row, max_chars=750) == (row, "")


def test_context_is_cut_before_request_and_reply():
    """After the turns the end of the context goes; question and answer stay whole."""
    row = {"request": "q" * 200, "reply": "r" * 200, "context": "start " + "c" * 900}
    fields, note = sent(row, max_chars=800)
    assert fields["request"] == "q" * 200
    assert fields["reply"] == "r" * 200
    assert fields["context"].startswith("start c")
    assert "characters left out ...]" in fields["context"]
    assert sum(map(len, fields.values())) <= 800
    assert note.endswith("characters of context")


def test_a_giant_reply_cannot_push_out_the_question():
    """A reply of a million characters keeps both its ends, the rest its share."""
    row = {
        "request": "q" * 900,
        "context": "c" * 9000,
        "conversation": turns(800, 800, 800),
        "reply": "begin" + "r" * 1_000_000 + "end",
    }
    fields, note = sent(row, max_chars=5000)
    assert fields["request"] == "q" * 900
    assert 900 < len(fields["context"]) <= 1000
    assert len(fields["conversation"]) == 1
    assert fields["reply"].startswith("begin")
    assert fields["reply"].endswith("end")
    total = sum(len(x) for x in fields.values() if isinstance(x, str)) + 800
    assert 4900 < total <= 5000
    mark = fields["reply"][fields["reply"].index(" [...") :].rstrip("rend")
    missing = 1_000_008 - (len(fields["reply"]) - len(mark))
    assert f" {missing} " in mark
    assert note.startswith("cut: 2 oldest turns, ")
    assert note.endswith(f", {missing} characters of reply")


def test_a_conversation_given_as_text_loses_its_beginning():
    """A thread in one text is cut at its start, where the oldest is."""
    row = {"request": "q", "reply": "r", "conversation": "old " * 300 + "newest"}
    fields, note = sent(row, max_chars=600)
    assert fields["conversation"].endswith("newest")
    assert "characters of conversation" in note
    assert sum(map(len, fields.values())) <= 600


def test_a_row_within_the_limit_is_not_touched():
    """At the limit exactly nothing is cut and nothing is said."""
    row = {"request": "q" * 250, "reply": "r" * 250}
    assert sent(row, max_chars=500) == (row, "")

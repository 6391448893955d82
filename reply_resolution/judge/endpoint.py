"""Who is asked: address, model and key, from arguments and the environment."""

from dataclasses import dataclass
import os
from urllib.parse import urlsplit

from reply_resolution.errors import JudgeError
from reply_resolution.judge.identity import clean_endpoint

DEFAULT_BASE_URL = "https://api.openai.com/v1"
#: `base_url` of verdicts that were obtained elsewhere: only ever replayed.
RECORDED_BASE_URL = "recorded:"
RECORDED_MODEL = "recorded-judge"
# Sent to servers on this machine that want no key; some clients insist on one.
NO_KEY = "no-key-needed"
_LOCAL = {"localhost", "127.0.0.1", "::1", "0.0.0.0", "host.docker.internal"}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where requests go, resolved from arguments and the environment.

    Attributes:
        base_url: The API's root, such as `https://api.openai.com/v1`; no credentials.
        model: The model asked for.
        api_key: The key; None if there is none and the server is not local.
        api_version: For Azure's older API, else None.
    """

    base_url: str
    model: str
    api_key: str | None
    api_version: str | None = None

    def __repr__(self) -> str:
        return f"Endpoint(base_url={self.base_url!r}, model={self.model!r})"

    @property
    def origin(self) -> str:
        """Scheme and host of the address: what Azure's older API builds on."""
        parts = urlsplit(self.base_url)
        return f"{parts.scheme}://{parts.netloc}"

    @property
    def local(self) -> bool:
        """Whether the server is on this machine."""
        return urlsplit(self.base_url).hostname in _LOCAL

    @property
    def recorded(self) -> bool:
        """Whether this stands for verdicts recorded elsewhere: nothing is called."""
        return self.base_url.startswith(RECORDED_BASE_URL)

    @property
    def callable(self) -> bool:
        """Whether a call could be made at all."""
        return not self.recorded and bool(self.api_key)


def resolve_endpoint(
    model: str | None, base_url: str | None, api_key: str | None
) -> Endpoint:
    """Who judges: arguments first, then the environment's OPENAI_* settings.

    With no model, no base URL and no key anywhere, the recorded judge stands in:
    it replays what the cache holds and calls nobody.

    Raises:
        JudgeError: A key or base URL without a model, or a URL that is none.
    """
    env = os.environ.get
    model = model or env("OPENAI_MODEL") or None
    given_url = base_url or env("OPENAI_BASE_URL") or None
    key = api_key or env("OPENAI_API_KEY") or None
    if given_url is None and (
        model == RECORDED_MODEL or (model is None and key is None)
    ):
        given_url, model = RECORDED_BASE_URL, model or RECORDED_MODEL
    url = (given_url or DEFAULT_BASE_URL).strip().rstrip("/")
    if url.startswith(RECORDED_BASE_URL):
        return Endpoint(url, model or RECORDED_MODEL, None)
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise JudgeError(
            f"base URL {clean_endpoint(url)!r} is not one. Give the root of an "
            "OpenAI-compatible API, such as http://localhost:8080/v1."
        )
    if parts.username or parts.password:
        raise JudgeError(
            "the base URL carries a user name or password, which would end up in logs. "
            "Give the plain URL, and the key as api_key or OPENAI_API_KEY."
        )
    if model is None:
        raise JudgeError(
            f"no model was named for {url}. Give model= (--model), such as the name "
            "the server lists under /models."
        )
    version = None
    if parts.hostname.endswith(".azure.com") and "/openai/v1" not in parts.path:
        version = env("OPENAI_API_VERSION") or None
    if parts.hostname.endswith(".azure.com"):
        key = api_key or env("AZURE_OPENAI_API_KEY") or key
    endpoint = Endpoint(url, model, key, version)
    if key is None and endpoint.local:
        endpoint = Endpoint(url, model, NO_KEY, version)
    return endpoint

"""An HTTP connection for every call in flight, found without a search.

The client's own connection pool looks at all its connections twice for every request
(is this one idle, expired, still open?): at 64 calls in flight that is a third of the
CPU time of a run. Here every lane is a pool of one connection, and a free lane is the
top of a stack. Everything else (TLS, HTTP, redirects, authentication) stays the
library's.
"""

import importlib
from typing import Any
from urllib.request import getproxies


def http_library() -> Any:  # noqa: ANN401
    """The HTTP library the installed openai is built on: httpx2, formerly httpx."""
    import openai

    name = openai.DefaultAsyncHttpxClient.__mro__[1].__module__.split(".")[0]
    return importlib.import_module(name)


def lane_client(timeout: float) -> Any:  # noqa: ANN401
    """An HTTP client for `AsyncOpenAI`, with lanes.

    Args:
        timeout: Seconds for connecting, and for any single read or write.

    Returns:
        The client; None where the environment names a proxy, which only the library's
        own transport knows how to use.
    """
    if any(name != "no" for name in getproxies()):
        return None
    import openai

    library = http_library()
    return openai.DefaultAsyncHttpxClient(
        transport=_lanes_class(library)(library), timeout=timeout
    )


def _lanes_class(library: Any) -> Any:  # noqa: ANN401
    """The transport, as a subclass of whichever library is in use."""

    class Stream(library.AsyncByteStream):  # type: ignore[misc]
        """An answer's body; its lane is free again when it is closed."""

        def __init__(self, inner: Any, lane: Any, free: list[Any]) -> None:  # noqa: ANN401
            self._inner, self._lane, self._free = inner, lane, free

        async def __aiter__(self) -> Any:  # noqa: ANN401
            async for part in self._inner:
                yield part

        async def aclose(self) -> None:
            lane, self._lane = self._lane, None
            try:
                await self._inner.aclose()
            finally:
                if lane is not None:
                    self._free.append(lane)

    class Lanes(library.AsyncBaseTransport):  # type: ignore[misc]
        """One connection for each call in flight."""

        def __init__(self, library: Any) -> None:  # noqa: ANN401
            self._library = library
            self._ssl = library.create_ssl_context()
            self._all: list[Any] = []
            self._free: list[Any] = []

        def _lane(self) -> Any:  # noqa: ANN401
            if self._free:
                return self._free.pop()
            limits = self._library.Limits(
                max_connections=1, max_keepalive_connections=1
            )
            lane = self._library.AsyncHTTPTransport(verify=self._ssl, limits=limits)
            self._all.append(lane)
            return lane

        async def handle_async_request(self, request: Any) -> Any:  # noqa: ANN401
            lane = self._lane()
            try:
                response = await lane.handle_async_request(request)
            except BaseException:
                self._free.append(lane)
                raise
            response.stream = Stream(response.stream, lane, self._free)
            return response

        async def aclose(self) -> None:
            for lane in self._all:
                await lane.aclose()

    return Lanes

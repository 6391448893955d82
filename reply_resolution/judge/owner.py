"""Who holds a claim or a booking, and whether that process still lives."""

from functools import cache
import os
from pathlib import Path
import secrets
import socket

#: Owners that are no process, and so do not end with one: what they hold ends when it
#: is collected (see `scale.batch`).
STANDING = "batch/"


@cache
def _machine() -> str:
    """This machine since its last start (a container is a machine)."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()[:8]
    except OSError:  # not Linux: the host's name has to do
        boot = "-"
    return f"{socket.gethostname().replace('/', '_')}/{boot}"


def _started(pid: int) -> str:
    """When a process started; "" where the system does not say.

    A process number is used again after a while; number and start time are not. A
    zombie, dead but not yet waited for, has never started.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    # The command's name, in parentheses, may hold spaces; field 22 is the start time.
    fields = stat.rpartition(")")[2].split()
    return "zombie" if fields[0] in ("Z", "X") else fields[19]


def new_owner() -> str:
    """A name for one run in this process: machine, process, start time, token."""
    pid = os.getpid()
    return f"{_machine()}/{pid}/{_started(pid) or '-'}/{secrets.token_hex(4)}"


def is_gone(owner: str) -> bool:
    """Whether the owner is known to be dead.

    False for a living process and for one on another machine, which cannot be seen
    from here (its claims end by their lease; its bookings stay counted).
    """
    machine, _, rest = owner.rpartition("/")[0].rpartition("/")[0].rpartition("/")
    if machine.rpartition("/")[0] != _machine().rpartition("/")[0]:
        return False
    if machine != _machine():
        return True  # the same machine, started anew since
    try:
        pid, started = int(rest), owner.split("/")[-2]
    except ValueError:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:  # it lives, under another user
        pass
    return started != "-" and _started(pid) not in ("", started)

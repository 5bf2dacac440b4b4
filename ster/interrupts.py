"""The order to end a run, remembered where no library can swallow it.

Python drops exceptions in some places, such as ``__del__``, so the exception that a
signal raises may get lost. Code that goes on all the same therefore asks here before it
says or finishes anything. This module may be imported by all; only the command line
gives the order.
"""

from __future__ import annotations

import signal


class Stopped(BaseException):
    """The run was told to end.

    Args:
        number: The signal.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.exit_code = 128 + number
        self.word = "Interrupted" if number == signal.SIGINT else "Terminated"


_orders: list[int] = []


def order_stop(number: int) -> None:
    """Tell the run to end, by this signal."""
    _orders.append(number)


def raise_if_stopped() -> None:
    """Raise ``Stopped`` where the run was told to end."""
    if _orders:
        raise Stopped(_orders[0])

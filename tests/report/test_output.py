import io

import pytest

from chunkdsl.report.output import wants_colour


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    "stream, environment, wanted",
    [
        (Terminal(), {}, True),
        (Terminal(), {"NO_COLOR": "1"}, False),
        (Terminal(), {"NO_COLOR": ""}, True),
        (Terminal(), {"TERM": "dumb"}, False),
        (io.StringIO(), {"TERM": "xterm"}, False),
    ],
)
def test_colour_is_for_terminals_that_want_it(stream, environment, wanted):
    assert wants_colour(stream, environment) is wanted

"""Every CD3 and CD4 rule has its two examples as plans: the first breaks that rule and no other, the second none."""

import pytest
from example_plans import EXAMPLES

from chunkdsl.check import plans, routes
from chunkdsl.check.prove import prove
from chunkdsl.check.prove.refutation import KINDS
from chunkdsl.check.registry import RULES


def test_every_rule_has_a_plan_and_a_kind():
    of_specs = (*routes.FAMILIES, "CD35", "CD36")  # the last two of kernels and of products by the library
    rules = {code for code in RULES if code.startswith(plans.FAMILIES) and not code.startswith(of_specs)}
    assert rules == set(EXAMPLES) == set(KINDS)


@pytest.mark.parametrize("code", EXAMPLES)
def test_examples(code):
    assert [r.code for r in prove(EXAMPLES[code](False))] == [code]
    assert prove(EXAMPLES[code](True)) == []

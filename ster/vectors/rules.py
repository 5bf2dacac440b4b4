"""By what ``optimize`` chooses, and which arguments belong to it. Loads no arrays."""

from __future__ import annotations

from ster.errors import UsageError, check_word

RULES = ("effect", "accuracy")


def check_rule(
    by: str | None,
    holdout: object = None,
    strength: object = None,
    seed: object = None,
    *,
    write_anyway: bool = False,
) -> str:
    """Return the rule, and refuse what belongs to the other one.

    Args:
        by: ``effect`` or ``accuracy``; None is accuracy where there is a holdout.
        holdout: Of the rule by accuracy; None is not given.
        strength: Of the rule by effect; None is not given.
        seed: Of the rule by effect; None is not given.
        write_anyway: Of the rule by effect.

    Raises:
        UsageError: There is no such rule, or an argument belongs to the other.
    """
    if by is None:
        by = "effect" if holdout is None else "accuracy"
    check_word("rule", by, RULES, field="by")
    of_effect = {
        "strength": strength is not None,
        "seed": seed is not None,
        "write_anyway": write_anyway,
    }
    given = of_effect if by == "accuracy" else {"holdout": holdout is not None}
    for name, is_given in given.items():
        if is_given:
            other = "effect" if by == "accuracy" else "accuracy"
            raise UsageError(
                f"{name} belongs to choosing by {other}, not by {by}",
                field=name,
                expected=other,
            )
    return by

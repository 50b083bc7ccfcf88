"""Types and values, compared, copied and made fit to be keys: what value semantics need (§10)."""

from __future__ import annotations

from mrstream.saw.tables.kinds import Type


class Missing:
    """What stands in a tuple for a field that the record did not have."""

    def __repr__(self) -> str:
        return "MISSING"


MISSING = Missing()


def same(a: Type, b: Type) -> bool:
    """Whether types are the same but for the names of fields."""
    if a.name != b.name or len(a.parts) != len(b.parts):
        return False
    return all(map(same, a.parts, b.parts))


def copier(kind: Type) -> object:
    """Return the function that copies values of a type, all the way down."""
    parts = [copier(part) if part.is_mutable else None for part in kind.parts]
    match kind.name:
        case "array":
            (inner,) = parts
            return list if inner is None else lambda items: [inner(item) for item in items]  # type: ignore[operator]
        case "map":
            value = parts[1]
            if value is None:
                return dict
            return lambda items: {key: value(item) for key, item in items.items()}  # type: ignore[operator]
    return lambda items: tuple(
        item if copy is None or item is MISSING else copy(item)  # type: ignore[operator]
        for copy, item in zip(parts, items, strict=True)
    )


def freezer(kind: Type) -> object:
    """Return the function that makes values of a type fit to be keys of a dict."""
    if not kind.is_mutable:
        return lambda value: value
    parts = [freezer(part) for part in kind.parts]
    match kind.name:
        case "array":
            return lambda items: tuple(parts[0](item) for item in items)  # type: ignore[operator]
        case "map":
            return lambda items: tuple(
                sorted((key, parts[1](item)) for key, item in items.items())  # type: ignore[operator]
            )
    return lambda items: tuple(
        freeze(item)  # type: ignore[operator]
        for freeze, item in zip(parts, items, strict=True)
    )

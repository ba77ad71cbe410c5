"""YAML as a tree whose every value knows its place. Nothing is constructed but text and numbers."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml

from cluster_exp.domain.errors import InputError
from cluster_exp.inputs.text import CellError, Span, nearest, parse_integer, parse_number, shown

_MAX_DEPTH = 16
_MAX_TEXT = 200


class Value:
    """A value in the file; a scalar unless it is a `Mapping` or a `Sequence`."""

    def __init__(self, path: Path, node: yaml.Node) -> None:
        self._path = path
        self._node = node

    @property
    def where(self) -> str:
        """`file:line:column`, from 1."""
        return _place(self._path, self._node.start_mark)

    def error(self, message: str) -> InputError:
        """An error at this value."""
        return InputError(message, where=self.where)

    def scalar(self, key: str) -> str:
        """The text of a scalar. Raises InputError for anything else, and for text that is not printable."""
        text = self._node.value if isinstance(self._node, yaml.ScalarNode) else None
        if text is None:
            raise self.error(f"{key}: a single value is needed")
        if len(text) > _MAX_TEXT or not text.isprintable():
            raise self.error(f"{key}: {shown(text)}; allowed: at most {_MAX_TEXT} printable characters")
        return str(text)

    @property
    def is_null(self) -> bool:
        """Whether nothing is stated: an empty value, `~` or `null`."""
        return bool(self._node.tag == "tag:yaml.org,2002:null")


class Sequence(Value):
    """A list."""

    def __iter__(self) -> Iterator[Value]:
        return (_value(self._path, node) for node in self._node.value)


class Mapping(Value):
    """Named values. A key that stands for nothing (`key:`) counts as not given."""

    def __init__(self, path: Path, node: yaml.MappingNode) -> None:
        """Takes the keys. Raises InputError when one is not a text, or stands twice."""
        super().__init__(path, node)
        self._keys: dict[str, Value] = {}
        self._values: dict[str, Value] = {}
        for key_node, value_node in node.value:
            key = Value(path, key_node)
            name = key.scalar("a key")
            if name in self._keys:
                raise key.error(f"key {shown(name)} stands twice, first at {self._keys[name].where}")
            self._keys[name] = key
            self._values[name] = _value(path, value_node)

    def __contains__(self, key: str) -> bool:
        return key in self._values and not self._values[key].is_null

    def __getitem__(self, key: str) -> Value:
        return self._values[key]

    def items(self) -> Iterable[tuple[str, Value]]:
        """The keys and what stands under them."""
        return self._values.items()

    def at(self, key: str) -> Value:
        """The value under a key, or the mapping itself where there is none: the place of an error."""
        return self._values.get(key, self)

    def check_keys(self, known: Iterable[str], required: Iterable[str]) -> None:
        """Raises InputError at the first key that is not known, or when a required one is missing."""
        known = tuple(known)
        for name, key in self._keys.items():
            if name not in known:
                raise key.error(f"unknown key {shown(name)}; {nearest(name, known)}")
        for name in required:
            if name not in self:
                raise self.at(name).error(f"key {name} is missing")

    def text(self, key: str, default: str) -> str:
        """The text under a key. Raises InputError."""
        return self._values[key].scalar(key) if key in self else default

    def integer(self, key: str, span: Span, default: int) -> int:
        """The whole number under a key. Raises InputError."""
        if key not in self:
            return default
        value = self._values[key]
        try:
            return parse_integer(value.scalar(key), span)
        except CellError as error:
            raise value.error(f"{key}: {error}") from None

    def number(self, key: str, span: Span, default: float) -> float:
        """The finite number under a key. Raises InputError."""
        if key not in self:
            return default
        value = self._values[key]
        try:
            return parse_number(value.scalar(key), span)
        except CellError as error:
            raise value.error(f"{key}: {error}") from None


class _Refused(yaml.MarkedYAMLError):
    """Something that YAML allows and these files may not have."""


class _Loader(yaml.SafeLoader):
    """Composes nodes without aliases and without deep nesting, so that the work is linear in the text."""

    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        mark: Any = event.start_mark
        if isinstance(event, yaml.AliasEvent):
            raise _Refused(problem="aliases are not allowed", problem_mark=mark)
        if self.depth == _MAX_DEPTH:
            message = f"nested deeper than {_MAX_DEPTH} levels"
            raise _Refused(problem=message, problem_mark=mark)
        self.depth += 1
        node: yaml.Node | None = super().compose_node(parent, index)
        self.depth -= 1
        return node


def compose(path: Path, text: str, needed: str) -> Value:
    """The tree of a YAML text of one document; `needed` is what the error of an empty one asks for.

    Raises:
        InputError: the text is not YAML, has aliases, is nested deeply, or is empty.
    """
    try:
        loader = _Loader(text)
    except yaml.reader.ReaderError as error:
        before = text[: error.position]
        where = f"{path}:{before.count(chr(10)) + 1}:{len(before) - before.rfind(chr(10))}"
        raise InputError(f"character U+{ord(text[error.position]):04X} is not allowed", where=where) from None
    try:
        node = loader.get_single_node()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark or loader.get_mark()
        reason = " ".join(str(error.problem or error.context).split())
        raise InputError(f"is not usable YAML: {reason}", where=_place(path, mark)) from None
    except (ValueError, OverflowError):
        # The scanner lets these through for escapes and versions that no character or number stands for.
        raise InputError("is not usable YAML: a number is too large", where=_place(path, loader.get_mark())) from None
    finally:
        loader.dispose()
    if node is None:
        raise InputError(f"is empty; {needed} is needed", where=f"{path}:1:1")
    return _value(path, node)


def _value(path: Path, node: yaml.Node) -> Value:
    if isinstance(node, yaml.MappingNode):
        return Mapping(path, node)
    return Sequence(path, node) if isinstance(node, yaml.SequenceNode) else Value(path, node)


def _place(path: Path, mark: yaml.Mark) -> str:
    return f"{path}:{mark.line + 1}:{mark.column + 1}"

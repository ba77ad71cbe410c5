"""CSV tables read by column name."""

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from cluster_exp.domain.errors import InputError
from cluster_exp.inputs.text import CellError, Span, nearest, parse_integer, parse_number, read_text, shown

_MAX_NAME = 200
_MAX_BYTES = 512 * 1024 * 1024


class Row:
    """One row of a table; its fields are asked for by column name."""

    __slots__ = ("_cells", "_table", "line")

    def __init__(self, table: "Table", line: int, cells: Sequence[str]) -> None:
        self._table = table
        self.line = line  # line of the file, from 1
        self._cells = cells

    def text(self, column: str) -> str:
        """The field without surrounding blanks; empty where the table has no such column."""
        field = self._table.fields.get(column)
        return "" if field is None else self._cells[field].strip()

    def name(self, column: str) -> str:
        """The field as a printable text of at most 200 characters; may be empty. Raises InputError."""
        text = self.text(column)
        if text and (len(text) > _MAX_NAME or not text.isprintable()):
            raise self.error(column, f"{column}: {shown(text)}; allowed: at most {_MAX_NAME} printable characters")
        return text

    def integer(self, column: str, span: Span) -> int:
        """The field as a whole number in the span. Raises InputError."""
        try:
            return parse_integer(self.text(column), span)
        except CellError as error:
            raise self.error(column, f"{column}: {error}") from None

    def number(self, column: str, span: Span) -> float:
        """The field as a finite number in the span. Raises InputError."""
        try:
            return parse_number(self.text(column), span)
        except CellError as error:
            raise self.error(column, f"{column}: {error}") from None

    def error(self, column: str, message: str) -> InputError:
        """An error at the given column of this row."""
        return InputError(message, where=f"{self._table.path}:{self.line}:{self._table.fields[column] + 1}")


class Table:
    """A CSV file with a header. Places in it are file:line:field, both from 1.

    Blank lines, a byte order mark, either kind of line end and a missing last one are fine.

    Attributes:
        path: the file.
        header: the names in its first line, as written.
        header_line: its line.
        fields: for each name its field's index, from 0; the first, where a name stands twice.
    """

    def __init__(self, path: Path) -> None:
        """Reads file and header. Raises InputError when either is unusable."""
        self.path = path
        self._rows = self._records(read_text(path, _MAX_BYTES))
        first = next(self._rows, None)
        if first is None:
            raise InputError("is empty; a header line is needed", where=f"{path}:1:1")
        self.header_line, header = first
        self.header = tuple(name.strip() for name in header)
        self.fields: dict[str, int] = {}
        for field, name in enumerate(self.header):
            self.fields.setdefault(name, field)

    def check_columns(self, required: Iterable[str], known: Iterable[str]) -> tuple[str, ...]:
        """Names of columns that are not known.

        Raises InputError when a required column is missing (the place is the end of the header) or a known
        one stands twice.
        """
        for name in required:
            if name not in self.fields:
                spelt = nearest(name, [given for given in self.header if given])
                message = f"column {name} is missing; {spelt.replace('known:', 'given:')}"
                raise self.header_error(len(self.header), message)
        names = frozenset(known)
        for field, name in enumerate(self.header):
            if name in names and self.fields[name] != field:
                raise self.header_error(field, f"column {name} stands twice, first in field {self.fields[name] + 1}")
        return tuple(name for name in self.header if name not in names)

    def header_error(self, field: int, message: str) -> InputError:
        """An error at a field of the header, counted from 0."""
        return InputError(message, where=f"{self.path}:{self.header_line}:{field + 1}")

    def __iter__(self) -> Iterator[Row]:
        """The rows below the header, once. Raises InputError at a row with too few or too many fields."""
        width = len(self.header)
        for line, cells in self._rows:
            if len(cells) != width:
                where = f"{self.path}:{line}:{min(len(cells), width) + 1}"
                raise InputError(f"{len(cells)} fields where the header has {width}", where=where)
            yield Row(self, line, cells)

    def _records(self, text: str) -> Iterator[tuple[int, list[str]]]:
        reader = csv.reader(io.StringIO(text, newline=""), strict=True)
        line = 1
        try:
            for cells in reader:
                if len(cells) > 1 or (cells and cells[0].strip()):
                    yield line, cells
                line = reader.line_num + 1
        except csv.Error as error:
            raise InputError(f"is not CSV: {error}", where=f"{self.path}:{line}:1") from None

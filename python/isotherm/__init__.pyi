from concurrent.futures import Executor
from os import PathLike
from typing import Any, Callable, Iterable, Literal, Mapping, Optional, Protocol, Sequence, Union, overload

import pandas
import pyarrow

__version__: str

_Path = Union[str, "PathLike[str]"]
_Size = Union[int, str]
# A path, a generator's name, or a table: a DataFrame, an Arrow table, a dict of columns.
_Trace = Union[_Path, "Trace", Mapping[str, Any], Any]
_Progress = Callable[[int, int], object]
_Actions = Union[None, "Action", Iterable["Action"]]
_Place = Union[None, int, tuple[Literal["slot"], int]]

class Error(ValueError):
    """What was asked cannot be done. The text names the field, file or place, and the fix."""

    summary: Summary

class UnknownOption(Error, TypeError):
    """An option of that name does not exist; the text has the nearest one."""

class Access:
    """One extent-sized touch of a request."""

    now_ns: int
    extent: int
    home: Optional[int]
    copy: Optional[int]
    tier: Optional[int]
    write: bool
    data_class: int
    request_bytes: int
    request_offset: int
    first: bool

class Action:
    """What a policy wants."""

    @staticmethod
    def move(extent: int, to: int) -> Action: ...
    @staticmethod
    def fetch(extent: int, to: int) -> Action: ...
    @staticmethod
    def fetch_part(extent: int, to: int, start: int, length: int) -> Action: ...
    @staticmethod
    def allocate(extent: int, to: int) -> Action: ...
    @staticmethod
    def clean(extent: int) -> Action: ...
    @staticmethod
    def evict(extent: int) -> Action: ...
    @property
    def kind(self) -> Literal["move", "fetch", "fetch_part", "allocate", "clean", "evict"]: ...
    @property
    def extent(self) -> int: ...
    @property
    def to(self) -> Optional[int]: ...
    @property
    def part(self) -> Optional[tuple[int, int]]: ...

class View:
    """The volume, valid during the call that it is given to."""

    @property
    def now_ns(self) -> int: ...
    @property
    def extents(self) -> int: ...
    @property
    def extent_bytes(self) -> int: ...
    @property
    def tiers(self) -> int: ...
    @property
    def moves(self) -> int: ...
    def slots(self, tier: int) -> range: ...
    def free(self, tier: int) -> int: ...
    def freeing(self, tier: int) -> int: ...
    def home(self, extent: int) -> Optional[int]: ...
    def copy(self, extent: int) -> Optional[int]: ...
    def tier(self, extent: int) -> Optional[int]: ...
    def tier_of(self, slot: int) -> int: ...
    def owner(self, slot: int) -> Optional[int]: ...
    def is_dirty(self, extent: int) -> bool: ...
    def is_held(self, extent: int) -> bool: ...
    def in_flight(self, extent: int) -> int: ...
    def last_ns(self, extent: int) -> int: ...
    def set_last_ns(self, extent: int, time_ns: int) -> None: ...
    def stat(self, extent: int) -> int: ...
    def set_stat(self, extent: int, value: int) -> None: ...

class Policy(Protocol):
    """What a policy must have; docs/python.md lists what it may have besides. Only in these stubs, not at run time."""

    def on_access(self, view: View, access: Access) -> _Actions: ...

class Trace:
    """A trace that can be read any number of times through Arrow's C stream."""

    def __init__(
        self,
        path: str,
        *,
        format: Optional[str] = None,
        columns: Optional[str] = None,
        time_unit: Optional[str] = None,
        limit: Optional[int] = None,
        skip_bad: int = 0,
        block_bytes: Optional[int] = None,
    ) -> None: ...
    @property
    def format(self) -> str: ...
    @property
    def path(self) -> str: ...
    @property
    def error(self) -> Optional[str]: ...
    @property
    def devices(self) -> list[str]: ...
    @property
    def timed(self) -> bool: ...
    def stats(self) -> str: ...
    def info(self) -> str: ...
    def __arrow_c_stream__(self, requested_schema: object = None) -> object: ...

class Run(dict[str, Any]):
    """The figures of one run."""

    def page(self, file: Optional[_Path] = None) -> str: ...
    def to_pandas(self) -> pandas.DataFrame: ...

class Curve(list[Run]):
    """A run for each size of the fast tier."""

    def points(self) -> list[tuple[int, float]]: ...
    def table(self) -> pyarrow.Table: ...
    def to_pandas(self) -> pandas.DataFrame: ...

class Comparison(dict[str, Any]):
    """Policies side by side, with one device alone and with what no policy can beat."""

    def table(self) -> pyarrow.Table: ...
    def to_pandas(self) -> pandas.DataFrame: ...
    def page(self, file: Optional[_Path] = None) -> str: ...

class Summary(list[dict[str, Any]]):
    """Results of a sweep, in the order of the grid."""

    cells: int
    kept: int
    run: int
    failed: list[str]
    def table(self) -> pyarrow.Table: ...
    def to_pandas(self) -> pandas.DataFrame: ...

@overload
def sim(
    trace: Union[_Trace, Sequence[_Trace]],
    policy: Union[str, Policy],
    *,
    fast_size: Optional[_Size] = None,
    fast: Optional[str] = None,
    slow: Optional[str] = None,
    tiers: Optional[Sequence[Union[str, tuple[Optional[str], _Size]]]] = None,
    extent: _Size = "4K",
    time: Literal["closed", "trace"] = "closed",
    depth: Optional[int] = None,
    accelerate: Optional[float] = None,
    warm_up: int = 0,
    new_volume: bool = False,
    rest: float = 0.0,
    limit: Optional[int] = None,
    seed: int = 0,
    hit_only: bool = False,
    sample: Optional[float] = None,
    flash: Optional[Literal["preconditioned", "fresh", "ideal", "rated"]] = None,
    over_provisioning: Optional[float] = None,
    span: Optional[_Size] = None,
    host_power: float = 0.0,
    standby: Sequence[float] = (),
    settings: Optional[Mapping[str, float]] = None,
    discards: bool = True,
    time_bins: int = 0,
    address_bins: int = 0,
    format: Optional[str] = None,
    columns: Optional[str] = None,
    time_unit: Optional[str] = None,
    skip_bad: int = 0,
    block_bytes: Optional[int] = None,
    progress: Optional[_Progress] = None,
) -> Run: ...
@overload
def sim(
    trace: Union[_Trace, Sequence[_Trace]],
    policy: str,
    *,
    fast_size: Sequence[_Size],
    fast: Optional[str] = None,
    slow: Optional[str] = None,
    tiers: Optional[Sequence[Union[str, tuple[Optional[str], _Size]]]] = None,
    extent: _Size = "4K",
    time: Literal["closed", "trace"] = "closed",
    depth: Optional[int] = None,
    accelerate: Optional[float] = None,
    warm_up: int = 0,
    new_volume: bool = False,
    rest: float = 0.0,
    limit: Optional[int] = None,
    seed: int = 0,
    hit_only: bool = False,
    sample: Optional[float] = None,
    flash: Optional[Literal["preconditioned", "fresh", "ideal", "rated"]] = None,
    over_provisioning: Optional[float] = None,
    span: Optional[_Size] = None,
    host_power: float = 0.0,
    standby: Sequence[float] = (),
    settings: Optional[Mapping[str, float]] = None,
    discards: bool = True,
    time_bins: int = 0,
    address_bins: int = 0,
    format: Optional[str] = None,
    columns: Optional[str] = None,
    time_unit: Optional[str] = None,
    skip_bad: int = 0,
    block_bytes: Optional[int] = None,
    progress: Optional[_Progress] = None,
) -> Curve: ...
def compare(
    trace: _Trace,
    policies: Union[str, Sequence[str]],
    *,
    fast_size: Optional[_Size] = None,
    fast: Optional[str] = None,
    slow: Optional[str] = None,
    tiers: Optional[Sequence[Union[str, tuple[Optional[str], _Size]]]] = None,
    extent: _Size = "4K",
    time: Literal["closed", "trace"] = "closed",
    depth: Optional[int] = None,
    accelerate: Optional[float] = None,
    warm_up: int = 0,
    new_volume: bool = False,
    rest: float = 0.0,
    limit: Optional[int] = None,
    hit_only: bool = False,
    flash: Optional[Literal["preconditioned", "fresh", "ideal", "rated"]] = None,
    over_provisioning: Optional[float] = None,
    span: Optional[_Size] = None,
    host_power: float = 0.0,
    standby: Sequence[float] = (),
    settings: Optional[Mapping[str, float]] = None,
    discards: bool = True,
    format: Optional[str] = None,
    columns: Optional[str] = None,
    time_unit: Optional[str] = None,
    skip_bad: int = 0,
    block_bytes: Optional[int] = None,
) -> Comparison: ...
def sweep(
    grid: Union[_Path, dict[str, Any], None] = None,
    *,
    out: Optional[_Path] = None,
    executor: Union[Executor, Any, None] = None,
    threads: Optional[int] = None,
    progress: Optional[_Progress] = None,
    errors: Literal["raise", "keep"] = "raise",
    **axes: Any,
) -> Summary: ...
def open_trace(
    file: _Path,
    *,
    format: Optional[str] = None,
    columns: Optional[str] = None,
    time_unit: Optional[str] = None,
    limit: Optional[int] = None,
    skip_bad: int = 0,
    block_bytes: Optional[int] = None,
) -> Trace: ...
def read_trace(
    file: _Path,
    *,
    format: Optional[str] = None,
    columns: Optional[str] = None,
    time_unit: Optional[str] = None,
    limit: Optional[int] = None,
    skip_bad: int = 0,
    block_bytes: Optional[int] = None,
) -> pyarrow.Table: ...
def trace_info(
    file: _Path,
    *,
    format: Optional[str] = None,
    columns: Optional[str] = None,
    time_unit: Optional[str] = None,
    limit: Optional[int] = None,
    skip_bad: int = 0,
    block_bytes: Optional[int] = None,
) -> dict[str, Any]: ...
def formats() -> list[dict[str, Any]]: ...
def policies() -> list[dict[str, Any]]: ...
def devices() -> list[dict[str, Any]]: ...
def generators() -> list[dict[str, Any]]: ...

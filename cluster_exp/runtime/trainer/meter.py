"""Times of stages and iterations, added up while a trainer runs. It reads no clock. Standard library only."""

from cluster_exp.domain.measure import StageWindow
from cluster_exp.domain.resources import NUM_RESOURCES

WARM_UP_ITERATIONS = 1  # of each launch: caches, allocators and autotuners fill
LEAST_ITERATIONS = 2  # of a window
FIRST_WINDOW_S = 0.1  # wall time of the first window; each one lasts twice the one before
LONGEST_WINDOW_S = 10.0
_FIRST_SAMPLES = 16  # the first iterations, and then one of so many, wait for the device when nobody else does
_NS = 1e9


class Meter:
    """Adds up until it is asked. Times in nanoseconds of one clock that never goes back.

    A device that works on its own (CUDA) has to be waited for to know how long a stage took. With turns that is done
    anyway. Alone it would cost speed, so only some iterations do (`sampling`); the stages of the others are not
    counted, their length is.
    """

    def __init__(self) -> None:
        self.sampling = True  # whether the stages of this iteration count, and the device is waited for
        self._turns = False
        self._begun = 0  # iterations of this launch
        self._began_ns = 0
        self._waited_ns = 0
        self._stage_ns = [0] * NUM_RESOURCES  # of the iteration under way
        self._window_s = FIRST_WINDOW_S
        self._iterations = self._iterations_ns = self._sampled = 0
        self._stages_ns = [0] * NUM_RESOURCES

    def begin(self, now_ns: int, turns: bool, waits: bool) -> None:
        """An iteration begins; `waits`: whether to time its stages means to wait for a device."""
        if turns is not self._turns:
            self._turns = turns
            self._clear()
        self.sampling = turns or not waits or self._begun < _FIRST_SAMPLES or not self._begun % _FIRST_SAMPLES
        self._begun += 1
        self._began_ns, self._waited_ns = now_ns, 0
        self._stage_ns = [0] * NUM_RESOURCES

    def waited(self, wait_ns: int) -> None:
        """The iteration stood still for somebody else's turn."""
        self._waited_ns += wait_ns

    def stage(self, resource: int, length_ns: int) -> None:
        """A stage is over."""
        self._stage_ns[resource] += length_ns

    def end(self, now_ns: int, count: int) -> None:
        """The iteration is over and counts as `count` of them."""
        if self._begun <= WARM_UP_ITERATIONS:
            return
        self._iterations += count
        self._iterations_ns += now_ns - self._began_ns - self._waited_ns
        if self.sampling:
            self._sampled += count
            self._stages_ns = [a + b for a, b in zip(self._stages_ns, self._stage_ns, strict=True)]

    @property
    def due(self) -> bool:
        """Whether the window is long enough to be reported."""
        full = self._iterations_ns >= self._window_s * _NS
        return full and self._iterations >= LEAST_ITERATIONS and self._sampled > 0

    def take(self, gpu_memory_mib: float | None) -> StageWindow | None:
        """The window so far, and a new one begins; None where nothing was timed."""
        if not self._sampled:
            return None
        storage_s, cpu_s, gpu_s, network_s = (stage_ns / _NS for stage_ns in self._stages_ns)
        window = StageWindow(
            self._iterations,
            self._iterations_ns / _NS,
            self._sampled,
            (storage_s, cpu_s, gpu_s, network_s),
            self._turns,
            gpu_memory_mib,
        )
        self._window_s = min(LONGEST_WINDOW_S, 2 * self._window_s)
        self._clear()
        return window

    def _clear(self) -> None:
        self._iterations = self._iterations_ns = self._sampled = 0
        self._stages_ns = [0] * NUM_RESOURCES

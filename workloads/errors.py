"""The one error that is the user's to mend."""


class WorkloadError(ValueError):
    """An option, a file or a checkpoint is unusable; one line says where, what was given and what is allowed."""

    def __init__(self, message: str, *, where: str = "") -> None:
        super().__init__(f"{where}: {message}" if where else message)

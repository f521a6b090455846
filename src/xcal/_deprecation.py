"""Names that moved: the old one works for one release, and says where the new one is.

In the module or package that had the name, with the new place written in full::

    from xcal._deprecation import deprecated_names

    __getattr__ = deprecated_names(__name__, {"Rows": "xcal.data.SurvivalData"}, removed_in="0.2.0")

A module that has a `__getattr__` of its own ends it with a call of the function that `deprecated_names` returns. A
module file that was renamed stays for one release with nothing in it but a docstring and these two lines. The old names
belong in no ``__all__``. A test finds every call, and fails from the release `removed_in` on until the call is deleted.
"""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any
from warnings import warn


def deprecated_names(module: str, moved: Mapping[str, str], *, removed_in: str) -> Callable[[str], Any]:
    """Return the `__getattr__` of a module whose old names still work, with a warning.

    Parameters
    ----------
    module : str
        The module that had the names: its ``__name__``.
    moved : mapping
        From the old name to the new place of the same object, such as ``"xcal.data.SurvivalData"``.
    removed_in : str
        The release without the old names: the one after the release in which they first warn.

    Returns
    -------
    callable
        Takes a name and returns the object at its new place, after a `FutureWarning` at the caller's line. Another name
        raises `AttributeError`, as a module without the name does.
    """

    def __getattr__(name: str) -> Any:
        if name not in moved:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        new = moved[name]
        warn_renamed(f"{module}.{name}", new, removed_in=removed_in, stacklevel=2)
        home, _, attribute = new.rpartition(".")
        return getattr(import_module(home), attribute)

    return __getattr__


def warn_renamed(old: str, new: str, *, removed_in: str, stacklevel: int) -> None:
    """Warn that a name was changed: for arguments and words that `deprecated_names` cannot see.

    Parameters
    ----------
    old, new : str
        The two names as the user writes them.
    removed_in : str
        The release without the old name.
    stacklevel : int
        2 for the line that calls the function from which this one is called, 3 for the line above that, and so on.
    """
    _warn(f"{old} is now {new}; the old name goes in {removed_in}", stacklevel)


def warn_new_default(argument: str, old: str, new: str, *, removed_in: str, stacklevel: int) -> None:
    """Warn, where an argument is not given, that its default is another than before.

    Parameters
    ----------
    argument, old, new : str
        The argument, and its former and present default.
    removed_in : str
        The release without the warning.
    stacklevel : int
        As in `warn_renamed`.
    """
    message = f"{argument}: the default is now {new}, it was {old}; write {argument}={new} or {argument}={old}"
    _warn(f"{message} (this warning goes in {removed_in})", stacklevel)


def _warn(message: str, stacklevel: int) -> None:
    # FutureWarning is shown everywhere. Python hides DeprecationWarning outside of scripts and notebooks.
    warn(message, FutureWarning, stacklevel=stacklevel + 2)

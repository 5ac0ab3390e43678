"""Names of kernels, as different profilers tell them."""

from __future__ import annotations

import ctypes
import re
from functools import lru_cache

_ANONYMOUS = re.compile(r"\(anonymous namespace\)::|<unnamed>::")
_MANGLED = re.compile(r"_Z(?P<is_nested>N[rVK]*(?:St)?)?L?(?=\d)")
_SIZE = re.compile(r"[1-9]\d{0,3}")
_LIBRARIES = ("libstdc++.so.6", "libc++abi.dylib")  # that know how compilers spell names


@lru_cache(maxsize=4096)
def short_name(kernel: str) -> str:
    """The function's own name: what all profilers agree on, whatever they do with templates."""
    name = demangled(kernel) if kernel.startswith("_Z") else kernel
    start = _MANGLED.match(name)
    if start is not None:  # too long for a trace, which has cut it off
        return _last_identifier(name[start.end() :], bool(start["is_nested"])) or kernel
    name = _without_templates(_ANONYMOUS.sub("", name)).partition("(")[0].strip()
    return re.split(r"::|\s", name)[-1] or kernel


def demangled(name: str) -> str:
    """`void f<int>(int)` of `_Z1fIiEvT_`; the name itself where that cannot be told."""
    library = _library()
    if library is None:
        return name
    status = ctypes.c_int()
    found = library.__cxa_demangle(name.encode(), None, None, ctypes.byref(status))
    if not found:
        return name
    try:
        return ctypes.string_at(found).decode(errors="replace")
    finally:
        library.free(ctypes.c_void_p(found))


@lru_cache(maxsize=1)
def _library() -> ctypes.CDLL | None:
    for name in _LIBRARIES:
        try:
            library = ctypes.CDLL(name)
        except OSError:
            continue
        library.__cxa_demangle.restype = ctypes.c_void_p
        return library
    return None


def _without_templates(name: str) -> str:
    """`a::b::type f` of `a<int>::b<g<1>>::type f<2>`; what is not closed reaches to the end."""
    kept, depth = [], 0
    for place, sign in enumerate(name):
        if sign == "<":
            depth += 1
        elif sign == ">" and depth and name[place - 1] != "-":
            depth -= 1
        elif not depth:
            kept.append(sign)
    return "".join(kept)


def _last_identifier(mangled: str, is_nested: bool) -> str:
    """`Kernel` of `7cutlass6KernelI…`: identifiers with their lengths, until something else.

    Without a nesting the first is the name, and what follows are its arguments.
    """
    name = ""
    while (size := _SIZE.match(mangled)) is not None:
        end = size.end() + int(size[0])
        name, mangled = mangled[size.end() : end], mangled[end:]
        if not is_nested:
            break
    return name

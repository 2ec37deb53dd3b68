# SPDX-License-Identifier: Apache-2.0
"""Munge credentials through the system's libmunge: who sent these bytes, and once only.

>>> decode(encode(b"hello", None), None).uid  # doctest: +SKIP
0
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from fairwatt.core.errors import AuthError

__all__ = ["Credential", "decode", "encode"]

LIBRARY = "libmunge.so.2"
_OPT_ADDR4 = 5  # MUNGE_OPT_ADDR4, a struct in_addr
_OPT_SOCKET = 8  # munge_opt_t MUNGE_OPT_SOCKET, stable since libmunge 2.0


@dataclass(frozen=True)
class Credential:
    """What a good credential proves: these bytes were encoded by this uid and gid.

    `origin` is the IPv4 address of the host whose munged made it, as that munged says; "" unknown.
    """

    payload: bytes
    uid: int
    gid: int
    origin: str = ""


def encode(payload: bytes, socket: str | None) -> str:
    """Return a new credential of this process's user for `payload`.

    A credential can be decoded once: encode again for every try.

    Args:
        payload: bytes to carry; signed and encrypted by munge.
        socket: munged's socket; None or "": munge's own default.

    Raises:
        AuthError: libmunge is missing or munged refuses; the message has munge's text.
    """
    lib = _library()
    cred = ctypes.c_void_p()
    with _context(lib, socket) as ctx:
        status = lib.munge_encode(ctypes.byref(cred), ctx, payload, len(payload))
        if status != 0:
            raise _refusal(lib, ctx, status, socket)
        try:
            return ctypes.string_at(cred).decode("ascii")
        finally:
            _free(cred)


def decode(cred: str, socket: str | None) -> Credential:
    """Return what a credential carries; expired, rewound and replayed ones are refused.

    Raises:
        AuthError: the credential is not good; or, with status 503, libmunge is missing or
            munged is away.
    """
    lib = _library()
    buffer, length = ctypes.c_void_p(), ctypes.c_int()
    uid, gid = ctypes.c_uint32(), ctypes.c_uint32()
    with _context(lib, socket) as ctx:
        status = lib.munge_decode(
            _ascii(cred),
            ctx,
            ctypes.byref(buffer),
            ctypes.byref(length),
            ctypes.byref(uid),
            ctypes.byref(gid),
        )
        try:
            # A replayed or expired credential still fills the buffer: status alone decides.
            if status != 0:
                raise _refusal(lib, ctx, status, socket)
            payload = ctypes.string_at(buffer, length.value) if buffer.value else b""
            origin = _origin(lib, ctx)
        finally:
            _free(buffer)
    return Credential(payload, uid.value, gid.value, origin)


def _origin(lib: ctypes.CDLL, ctx: ctypes.c_void_p) -> str:
    """The address that the decoded credential carries; munged writes none as 0.0.0.0."""
    address = (ctypes.c_ubyte * 4)()
    status = lib.munge_ctx_get(ctx, ctypes.c_int(_OPT_ADDR4), ctypes.byref(address))
    return ".".join(map(str, address)) if status == 0 and any(address) else ""


def _ascii(cred: str) -> bytes:
    try:
        return cred.encode("ascii")
    except UnicodeEncodeError as error:
        raise AuthError(
            "not a munge credential", place="munge", value=cred[:40], remedy="send MUNGE:…:"
        ) from error


@functools.cache
def _library() -> ctypes.CDLL:
    try:
        lib = ctypes.CDLL(LIBRARY)
    except OSError as error:
        missing = AuthError(
            f"{LIBRARY} cannot be loaded: {error}",
            place="munge",
            remedy="install munge (Debian: libmunge2, EL: munge-libs)",
        )
        missing.status = 503
        raise missing from error
    lib.munge_ctx_create.restype = ctypes.c_void_p
    lib.munge_ctx_destroy.argtypes = [ctypes.c_void_p]
    lib.munge_ctx_destroy.restype = None
    lib.munge_ctx_strerror.argtypes = [ctypes.c_void_p]
    lib.munge_ctx_strerror.restype = ctypes.c_char_p
    lib.munge_strerror.argtypes = [ctypes.c_int]
    lib.munge_strerror.restype = ctypes.c_char_p
    void = ctypes.c_void_p
    lib.munge_encode.argtypes = [void, void, ctypes.c_char_p, ctypes.c_int]
    lib.munge_decode.argtypes = [ctypes.c_char_p, void, void, void, void, void]
    return lib


@functools.cache
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None)
    libc.free.argtypes = [ctypes.c_void_p]
    libc.free.restype = None
    return libc


def _free(pointer: ctypes.c_void_p) -> None:
    _libc().free(pointer)


@contextmanager
def _context(lib: ctypes.CDLL, socket: str | None) -> Iterator[ctypes.c_void_p]:
    """A munge context; its own one per call, because a context is not thread-safe."""
    ctx = ctypes.c_void_p(lib.munge_ctx_create())
    if not ctx:
        raise AuthError("no memory for a munge context", place="munge")
    try:
        if socket:
            name = ctypes.c_char_p(socket.encode())
            status = lib.munge_ctx_set(ctx, ctypes.c_int(_OPT_SOCKET), name)
            if status != 0:
                raise _refusal(lib, ctx, status, socket)
        yield ctx
    finally:
        lib.munge_ctx_destroy(ctx)


def _refusal(lib: ctypes.CDLL, ctx: ctypes.c_void_p, status: int, socket: str | None) -> AuthError:
    text = lib.munge_ctx_strerror(ctx) or lib.munge_strerror(status) or b"unknown error"
    error = AuthError(
        f"munge: {text.decode('utf-8', 'replace')}",
        place=socket or "default munge socket",
        remedy=_REMEDIES.get(status),
    )
    if status in _OUR_SIDE:
        error.status = 503
    return error


_OUR_SIDE = (5, 6, 7)  # no memory, no socket, no answer: nothing is wrong with the credential

# munge_err_t values that an admin can act on.
_REMEDIES = {
    6: "start munged on this host, or set site.munge_socket",
    15: "set both hosts' clocks (the credential is too old)",
    16: "set both hosts' clocks (the credential is from the future)",
    17: "encode a new credential for every try",
    14: "use the same munge key on both hosts",
}

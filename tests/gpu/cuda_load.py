# SPDX-License-Identifier: Apache-2.0
"""Keeps a GPU busy for some seconds through the driver's own library, without CUDA's toolkit.

`python cuda_load.py SECONDS` says "running" when the first
kernel has ended. CUDA_VISIBLE_DEVICES chooses the GPU. Status 1 and a reason if it cannot.
"""

from __future__ import annotations

import ctypes
import sys
import time

__all__ = ["PTX", "CudaError", "Load", "main"]

PTX = b"""\
.version 6.0
.target sm_50
.address_size 64

.visible .entry burn(.param .u64 out, .param .u32 rounds)
{
    .reg .pred %again;
    .reg .f32 %x, %k, %a<8>;
    .reg .b32 %left, %thread, %block, %width, %me;
    .reg .b64 %base, %offset, %place;

    ld.param.u64 %base, [out];
    ld.param.u32 %left, [rounds];
    cvta.to.global.u64 %base, %base;
    mov.u32 %thread, %tid.x;
    mov.u32 %block, %ctaid.x;
    mov.u32 %width, %ntid.x;
    mad.lo.u32 %me, %block, %width, %thread;
    cvt.rn.f32.u32 %x, %me;
    mov.f32 %k, 0f3F7FFFFF;
    mov.f32 %a0, %x;
    mov.f32 %a1, %x;
    mov.f32 %a2, %x;
    mov.f32 %a3, %x;
    mov.f32 %a4, %x;
    mov.f32 %a5, %x;
    mov.f32 %a6, %x;
    mov.f32 %a7, %x;
more:
    fma.rn.f32 %a0, %a0, %k, %x;
    fma.rn.f32 %a1, %a1, %k, %x;
    fma.rn.f32 %a2, %a2, %k, %x;
    fma.rn.f32 %a3, %a3, %k, %x;
    fma.rn.f32 %a4, %a4, %k, %x;
    fma.rn.f32 %a5, %a5, %k, %x;
    fma.rn.f32 %a6, %a6, %k, %x;
    fma.rn.f32 %a7, %a7, %k, %x;
    sub.u32 %left, %left, 1;
    setp.ne.u32 %again, %left, 0;
    @%again bra more;

    add.f32 %a0, %a0, %a1;
    add.f32 %a2, %a2, %a3;
    add.f32 %a4, %a4, %a5;
    add.f32 %a6, %a6, %a7;
    add.f32 %a0, %a0, %a2;
    add.f32 %a4, %a4, %a6;
    add.f32 %a0, %a0, %a4;
    mul.wide.u32 %offset, %me, 4;
    add.u64 %place, %base, %offset;
    st.global.f32 [%place], %a0;
    ret;
}
"""
BLOCKS, THREADS = 2048, 256
ROUNDS = 20_000
"""A kernel of some milliseconds: short enough for a desktop's watchdog."""


class CudaError(Exception):
    """A call into the driver failed; the message names it and the code."""


class Load:
    """The kernel, ready to run on the first visible GPU."""

    def __init__(self) -> None:
        try:
            self._cuda = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise CudaError(str(error)) from error
        device, context, module = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p()
        self._function, self._out = ctypes.c_void_p(), ctypes.c_uint64()
        self._do("cuInit", 0)
        self._do("cuDeviceGet", ctypes.byref(device), 0)
        # The primary context: its calls are the same in all drivers.
        self._do("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self._do("cuCtxSetCurrent", context)
        self._do("cuModuleLoadData", ctypes.byref(module), PTX)
        self._do("cuModuleGetFunction", ctypes.byref(self._function), module, b"burn")
        self._do("cuMemAlloc_v2", ctypes.byref(self._out), ctypes.c_size_t(4 * BLOCKS * THREADS))

    def run(self, rounds: int = ROUNDS) -> None:
        """Run the kernel once and wait for its end."""
        values = (self._out, ctypes.c_uint32(rounds))
        pointers = (ctypes.c_void_p * 2)(*(ctypes.addressof(value) for value in values))
        grid = (BLOCKS, 1, 1, THREADS, 1, 1)
        self._do("cuLaunchKernel", self._function, *grid, 0, None, pointers, None)
        self._do("cuCtxSynchronize")

    def _do(self, name: str, *arguments: object) -> None:
        code = getattr(self._cuda, name)(*arguments)
        if code != 0:
            raise CudaError(f"{name} failed with {code}")


def main(argv: list[str]) -> int:
    """Keep the GPU busy for so many seconds."""
    try:
        load = Load()
        load.run()
        print("running", flush=True)
        until = time.monotonic() + float(argv[0])
        while time.monotonic() < until:
            load.run()
    except CudaError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

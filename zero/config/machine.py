"""Sections of the parameters about machines: what the bits of a result depend on, and who plays the shards."""

from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from zero.config.section import PositiveInt, Section


class ProfileParams(Section):
    """The part of the execution profile that is chosen; the rest is read from the machine. Results depend on it."""

    device: Literal["cpu", "cuda"] = "cpu"
    """Device that runs the network. `auto` (see `zero.config.auto`): CUDA if this machine has it, else the CPU."""
    backend: Literal["torch", "openvino"] = "torch"
    """Library that runs the network in play: PyTorch (with captured graphs on CUDA), or OpenVINO on a CPU. `auto`:
    OpenVINO on a CPU, PyTorch on CUDA."""
    precision: Literal["fp32", "bf16"] = "fp32"
    """Arithmetic of the network in play. `auto`: bf16 if this machine computes it faster than fp32."""
    training_precision: Literal["fp32", "bf16"] = "fp32"
    """Arithmetic of the convolutions in training; weights and sums are in fp32. `auto`: as for `precision`."""
    isa: Literal["native", "avx2"] = "native"
    """`avx2` limits the CPU's instruction set, so that machines with and without AVX-512 give the same bits."""
    selfplay_threads: PositiveInt = 1
    """Threads of the network in a process that plays a shard."""
    search_threads: PositiveInt = 1
    """Threads of the search in a process that plays a shard; each has its own part of the games. 1 on a CPU."""
    half_batches: bool = False
    """Double buffering for a GPU. True: half of the games are searched while the network evaluates the other half."""
    training_threads: PositiveInt = 1
    """Threads of the process that trains."""
    training_processes: PositiveInt = 1
    """Processes that train, each on its share of the batch; on CUDA one per GPU."""

    @model_validator(mode="after")
    def _backend_has_device(self) -> Self:
        if self.backend == "openvino" and self.device != "cpu":
            raise ValueError(f"backend 'openvino' runs on device 'cpu', got {self.device!r}; set backend to 'torch'")
        return self


def _current_name(kind: object) -> object:
    return "dask" if kind == "pool" else kind


ExecutorKind = Annotated[Literal["local", "dask"], BeforeValidator(_current_name)]
"""Kinds of executors. Parameters files that are older than the Dask cluster have `pool`, which is read as `dask`."""


class ExecutorParams(Section):
    """Who plays the shards. Changes no result, and no stage depends on it."""

    kind: ExecutorKind = "local"
    """`local`: processes of this machine; `dask`: workers of a Dask cluster, which play the shards and train."""
    address: str = ""
    """Address of the Dask scheduler, such as `tls://host:8786`. Empty: Dask's own setting, `DASK_SCHEDULER_ADDRESS`."""
    num_processes: Annotated[int, Field(ge=0)] = 0
    """Processes of the local executor; 0: one per core, or one per GPU."""

"""The command about a GPU: what it says without one, and its sections on the fake device."""

from pathlib import Path
from xml.etree import ElementTree

import pytest
from torch.utils.flop_counter import FlopCounterMode

from benchmarks import gpu, gpu_device
from benchmarks.gpu import (
    FAKE,
    JSON_FILE,
    MARKDOWN_FILE,
    SECTIONS,
    Bench,
    BenchSection,
    Figure,
    Report,
    main,
    measure_row,
    report_text,
)
from benchmarks.gpu_device import NEEDED_MIB, Device, TorchFacts, checked_device, read_driver
from benchmarks.gpu_work import network_flops
from benchmarks.harness import spread_of
from benchmarks.results import describe_machine, rows_named
from tests.benchmarks.commands import cells, exit_status
from tests.network.networks import as_images, random_planes
from tests.parameters import preset, with_sections
from zero.errors import ParamsError
from zero.network.weights import new_network
from zero.storage.files import read_manifest, write_manifest

DRIVER = """<nvidia_smi_log><driver_version>570.1</driver_version><cuda_version>12.8</cuda_version>
<gpu><uuid>GPU-a</uuid><clocks><sm_clock>345 MHz</sm_clock></clocks></gpu>
<gpu><uuid>GPU-b</uuid><clocks><sm_clock>210 MHz</sm_clock></clocks></gpu></nvidia_smi_log>"""
GOOD = TorchFacts("2.13.0", "12.8", True, name="NVIDIA H200", uuid="b", total_mib=143_000, free_mib=140_000)


def command(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    return exit_status(monkeypatch, main, "gpu", *words)


def write_nvidia_smi(folder: Path, script: str) -> None:
    (folder / "nvidia-smi").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "nvidia-smi").chmod(0o755)


@pytest.mark.parametrize(
    ("torch", "message"),
    [
        (
            TorchFacts("2.13.0+cpu", "", False),
            r"torch 2\.13\.0\+cpu is built without CUDA; install the pinned CUDA build: ",
        ),
        (
            TorchFacts("2.13.0", "13.0", False, "The NVIDIA driver is too old"),
            r"driver 570\.1 supports CUDA 12\.8, but torch 2\.13\.0 needs CUDA 13\.0; install a newer driver",
        ),
        (TorchFacts("2.13.0", "12.8", False, "No GPUs"), r"CUDA_VISIBLE_DEVICES 7: No GPUs; compare with nvidia-smi"),
        (
            GOOD._replace(free_mib=NEEDED_MIB - 1),
            r"NVIDIA H200 has 8191 of 143000 MiB free, but the measurements need 8192; end other programs on it",
        ),
    ],
)
def test_what_is_missing_is_reported_with_the_remedy(monkeypatch, torch, message):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    with pytest.raises(ParamsError, match=message):
        checked_device(ElementTree.fromstring(DRIVER), torch)


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (None, 'no nvidia-smi on the PATH; install it, or to try the command without a GPU: make gpu ARGS="--fake"'),
        (
            "echo 'Failed to initialize NVML'; exit 9",
            "does not answer: Failed to initialize NVML; load or reinstall it",
        ),
        ("echo nonsense", "does not answer: syntax error"),
    ],
)
def test_a_missing_driver_is_one_line(monkeypatch, capsys, tmp_path, script, message):
    monkeypatch.setenv("PATH", str(tmp_path))
    if script:
        write_nvidia_smi(tmp_path, script)
    assert command(monkeypatch) == 1
    error = capsys.readouterr().err
    assert message in error and error.startswith("gpu: ") and error.count("\n") == 1


def test_a_device_has_the_clocks_of_the_gpu_that_torch_uses(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    write_nvidia_smi(tmp_path, f"echo '{DRIVER}'")
    device = checked_device(read_driver(), GOOD)
    assert device.facts["SM clock at the start"] == "210 MHz" and device.facts["power limit"] == "unknown"
    assert (device.is_slice, device.peak_tflops) == (False, 989.0)
    part = checked_device(read_driver(), GOOD._replace(name="NVIDIA H200 MIG 1g.18gb"))
    assert (part.is_slice, part.peak_tflops) == (True, None)


def test_a_cpu_build_of_torch_is_found(monkeypatch, tmp_path):
    if gpu_device.read_torch().cuda:
        pytest.skip("torch is built with CUDA")
    monkeypatch.setenv("PATH", str(tmp_path))
    write_nvidia_smi(tmp_path, f"echo '{DRIVER}'")
    with pytest.raises(ParamsError, match=r"is built without CUDA"):
        gpu_device.find_device()


def test_operations_are_counted_as_torch_counts_them():
    params = preset("smoke")
    network = new_network(params.network, params.game, 0)
    with FlopCounterMode(display=False) as counter:
        network(as_images(random_planes(1)))
    assert network_flops(params) == counter.get_total_flops()


def test_each_row_that_needs_a_gpu_is_a_section():
    assert [row.name for row in rows_named("") if "GPU" in row.needs] == [name for name in SECTIONS if "gpu-" in name]


def test_a_report_shows_each_figure_with_its_bound():
    device = Device(name="NVIDIA H200 MIG 1g.18gb", facts={"driver": "570.1"})
    figure = Figure(name="inference", value=50.0, unit="evaluations/s", bound=200.0, bound_name="gpu-matmul")
    sections = (BenchSection(name="a", figures=(figure,)), BenchSection(name="b", problem="broken"))
    text = report_text(Report(device=device, machine=describe_machine(), sections=sections))
    assert "A MIG slice" in text
    for row in (
        ["driver", "570.1"],
        ["b", "0 s", "broken"],
        ["a", "inference", "50.0 evaluations/s", "200", "gpu-matmul", "25.0%"],
    ):
        assert row in cells(text)


def test_a_repeated_call_runs_what_is_missing_or_failed(monkeypatch, capsys, tmp_path):
    words = ["--fake", "--folder", str(tmp_path), "--sections", "gpu-matmul,memory"]
    assert command(monkeypatch, *words, "--minutes", "0") == 1
    assert "gpu-matmul: not begun, because it may take 40 s; repeat the command" in capsys.readouterr().err
    broken = BenchSection(name="memory", problem="broken")
    finished = BenchSection(name="gpu-matmul", figures=(Figure(name="", value=7.0, unit=""),))
    report = Report(device=FAKE, machine=describe_machine(), sections=(finished, broken))
    write_manifest(tmp_path, report, JSON_FILE)
    assert command(monkeypatch, *words) == 0
    assert "memory: finished" in capsys.readouterr().err
    found = read_manifest(tmp_path, Report, JSON_FILE)
    assert found.sections[0] == finished and found.sections[1].figures
    write_manifest(tmp_path, report.model_copy(update={"device": Device(name="NVIDIA H100")}), JSON_FILE)
    assert command(monkeypatch, *words) == 1
    assert "has the report of NVIDIA H100, not of fake device (the CPU); give --folder" in capsys.readouterr().err
    report = report.model_copy(update={"machine": report.machine | {"commit": "another"}})
    write_manifest(tmp_path, report, JSON_FILE)
    assert command(monkeypatch, *words, "--minutes", "0") == 1, "sections of another commit do not count"
    assert command(monkeypatch, "--fake", "--sections", "speed") == 1
    assert "gpu: unknown section 'speed'; --sections must be some of tests," in capsys.readouterr().err


@pytest.mark.parametrize("name", [name for name in SECTIONS if name.startswith("gpu-")])
def test_a_row_is_measured_with_its_bound(monkeypatch, tmp_path, name):
    measured = []

    def measure(row, profile, seconds, repeats):
        measured.append(row)
        rival = spread_of([3.0]) if row.against else None
        return row.model_copy(update={"figure": spread_of([2.0]), "rival_figure": rival})

    monkeypatch.setattr(gpu, "measure", measure)
    device, params = Device(name="NVIDIA H200"), preset("go9-gpu")
    earlier = (BenchSection(name="gpu-matmul", figures=(Figure(name="", value=700.0, unit=""),)),)
    report = Report(device=device, machine={}, sections=() if name == "gpu-matmul" else earlier)
    params = with_sections(params, profile={"device": "cpu"})  # no lock
    section = measure_row(Bench(tmp_path, False, report, params, 0.0), name)
    (row,) = measured
    assert not row.needs and row.ours and row.ours == rows_named(name)[0].ours
    rows = [(row.work, 2.0), *([(row.rival, 3.0)] if row.against else [])]
    assert [(figure.name, figure.value) for figure in section.figures] == rows
    flops = network_flops(params) * (3 if name == "gpu-training" else 1)
    assert {figure.bound for figure in section.figures} == {989.0 if name == "gpu-matmul" else 700e12 / flops}


def test_the_sections_run_on_the_fake_device(monkeypatch, tmp_path):
    """Without `memory`, which the test above runs, `generation`, and the rows that `gpu-training` stands for."""
    sections = ["tests", "gpu-matmul", "gpu-training", "determinism", "profile"]
    for name in ("PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT"):  # a section runs pytest
        monkeypatch.delenv(name, raising=False)
    assert command(monkeypatch, "--fake", "--folder", str(tmp_path), "--sections", ",".join(sections)) == 0
    report = read_manifest(tmp_path, Report, JSON_FILE)
    assert [section.name for section in report.sections] == sections
    figures = {(section.name, figure.name): figure for section in report.sections for figure in section.figures}
    tests = figures["tests", "passed"]
    assert tests.bound and tests.bound >= 20, "the tests with the mark `gpu`; without a GPU they are skipped"
    assert report.figure("determinism") == 1.0
    for figure in next(section for section in report.sections if section.name == "gpu-training").figures:
        assert figure.value > 0 and figure.bound and figure.bound > 0
    text = (tmp_path / MARKDOWN_FILE).read_text()
    assert text.startswith("# fake device (the CPU)\n") and "aten::" in text

"""The choice of the device by name."""

from __future__ import annotations

import pytest
import torch

from retargetbench.device import resolve_device
from retargetbench.errors import UsageError


@pytest.mark.parametrize("available", [False, True])
def test_auto_is_cuda_where_there_is_one(monkeypatch, available):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: available)
    assert resolve_device("auto").type == ("cuda" if available else "cpu")
    assert resolve_device("cpu").type == "cpu"


def test_a_named_device_is_one_that_tensors_can_be_put_on(device):
    assert resolve_device(device.type).type == device.type
    assert torch.zeros(1, device=resolve_device(device.type)).device.type == device.type


def test_cuda_that_is_not_there_is_refused_with_the_way_out(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UsageError, match="torch sees none; use --device cpu or auto"):
        resolve_device("cuda")


@pytest.mark.parametrize("name", ["", "gpu", "CPU", "cuda:1", "mps"])
def test_other_names_are_refused_and_the_accepted_ones_listed(name):
    with pytest.raises(UsageError, match=f"device '{name}' is not one of: auto, cpu, cuda"):
        resolve_device(name)

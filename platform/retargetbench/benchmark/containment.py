"""What keeps plugins from harming each other: attempts to end the process are failures, global state is restored.

A plugin that dies in native code takes its process along; ``--workers 2`` and more put it into a process of its own.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

import torch

from retargetbench.discovery import one_line
from retargetbench.errors import PluginError

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def contained() -> Iterator[None]:
    """Run code of a plugin: afterwards working folder and torch's default type, device and gradient mode are as before.

    Raises:
        PluginError: the code raised what is no `Exception`, such as ``SystemExit``; an interruption passes.
    """
    folder = os.getcwd()
    number_type, with_gradients = torch.get_default_dtype(), torch.is_grad_enabled()
    device = torch.get_default_device()
    try:
        yield
    except (Exception, KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:
        raise PluginError(f"tried to end the process: {one_line(error)}") from error
    finally:
        os.chdir(folder)
        torch.set_default_dtype(number_type)
        torch.set_grad_enabled(with_gradients)
        if torch.get_default_device() != device:
            torch.set_default_device(device)

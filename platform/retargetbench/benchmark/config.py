"""What a run is asked to do: one frozen configuration that the command line, suites and the run folder share."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from retargetbench.errors import UnknownNameError, UsageError

ExecutorName = Literal["local", "submitit"]
"""Where the work is done: processes of this machine, or jobs of a cluster."""

Options = Mapping[str, Mapping[str, object]]
"""Label of a method → its options by name."""


@dataclass(frozen=True)
class RunConfig:
    """A benchmark run.

    Raises:
        UsageError: a value is out of its range.
    """

    dataset: str = field(default="studio", metadata={"help": "name of a dataset, or its folder"})
    methods: tuple[str, ...] = field(
        default=("copy",), metadata={"help": "methods, or label=method for one method with other options"}
    )
    options: Options = field(default_factory=dict, metadata={"help": "options of the methods by label"})
    split: str = field(
        default="UC+UM", metadata={"help": "split atoms separated by commas (UC+UM, UC+SM, SC+UM, SC+SM), or all"}
    )
    split_name: str = field(default="default", metadata={"help": "which frozen split of the dataset, by name"})
    full: bool = field(default=False, metadata={"help": "all rows of the atoms instead of the quick default set"})
    metrics: tuple[str, ...] = field(
        default=("default",), metadata={"help": "names of metrics and columns, or the words default or all"}
    )
    device: str = field(default="auto", metadata={"help": "auto, cpu or cuda"})
    seed: int = field(default=0, metadata={"help": "seed of the methods and of the bootstrap"})
    workers: int = field(default=1, metadata={"help": "processes, or cluster jobs, that work at the same time"})
    executor: ExecutorName = field(
        default="local", metadata={"help": "local (processes) or submitit (SLURM where there is one)"}
    )
    cluster: Mapping[str, str] = field(
        default_factory=dict, metadata={"help": "parameters of submitit, such as slurm_partition"}
    )

    def __post_init__(self) -> None:
        if self.workers < 1:
            raise UsageError(f"workers must be at least 1, got {self.workers}")
        if not 0 <= self.seed < 2**32:
            raise UsageError(f"seed must be from 0 to {2**32 - 1}, got {self.seed}")
        if self.executor not in get_args(ExecutorName):
            raise UnknownNameError("executor", self.executor, get_args(ExecutorName))
        if not self.methods:
            raise UsageError("no method is named; see bench list methods")
        if not self.metrics:
            raise UsageError("no metric is named; see bench list metrics")
        if self.cluster and self.executor != "submitit":
            raise UsageError(f"cluster parameters ({', '.join(self.cluster)}) need the executor submitit")


HELP: Mapping[str, str] = {f.name: f.metadata["help"] for f in dataclasses.fields(RunConfig)}
"""Field of `RunConfig` → what it means, one line."""


def parse_names(text: str) -> tuple[str, ...]:
    """Read names separated by commas; blanks do not matter.

    Example:
        >>> parse_names("copy, san")
        ('copy', 'san')
    """
    return tuple(part.strip() for part in text.split(",") if part.strip())


def parse_option_texts(texts: list[str]) -> dict[str, dict[str, str]]:
    """Read ``--set label.option=value`` arguments.

    Raises:
        UsageError: a text does not look like that.

    Example:
        >>> parse_option_texts(["copy.root=none"])
        {'copy': {'root': 'none'}}
    """
    options: dict[str, dict[str, str]] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        label, dot, option = name.strip().partition(".")
        if not (equals and dot and label and option):
            raise UsageError(f"--set {text!r} must look like method.option=value, such as copy.root=none")
        options.setdefault(label, {})[option.strip()] = value.strip()
    return options

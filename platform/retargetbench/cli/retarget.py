"""``bench retarget``: one clip on one character, into a file."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import Annotated

import typer

from retargetbench.benchmark.config import parse_option_texts
from retargetbench.cli.outputs import check_output
from retargetbench.errors import UsageError
from retargetbench.plugins import catalogue

_SUFFIXES = (".bvh", ".glb")


def register(app: typer.Typer) -> None:
    """Add the command to ``bench``."""
    app.command("retarget")(retarget_command)


def retarget_command(
    *,
    method: Annotated[str, typer.Option(metavar="NAME", help="Method, see bench list methods.")],
    source: Annotated[
        str, typer.Option(metavar="CLIP", help="clip.bvh with --source-character, or DATASET:CHARACTER/MOTION.")
    ],
    target: Annotated[str, typer.Option(metavar="CHARACTER", help="Shape file X.npz, or DATASET:CHARACTER.")],
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Written file: .glb with the skinned mesh, .bvh without; replaced."
        ),
    ],
    source_character: Annotated[
        str | None,
        typer.Option(metavar="CHARACTER", help="Character that clip.bvh moves: X.npz or DATASET:CHARACTER."),
    ] = None,
    options: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="METHOD.OPTION=VALUE", help="Option of the method; repeat for more."),
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    unit: Annotated[float, typer.Option(min=1e-6, max=1e3, help="Metres per unit of BVH and shape files.")] = 0.01,
    straighten: Annotated[
        bool, typer.Option("--straighten", help="Make the rests of characters from files exact T-poses.")
    ] = False,
) -> None:
    """Put one clip on one character and save it as GLB or BVH.

    GLB holds the skinned mesh too; BVH is skeleton and motion alone.
    """
    # What can be answered without torch is answered before it is imported.
    catalogue().method(method)
    method_options = _options_of(method, options or [])
    check_output(output, _SUFFIXES, source, target, source_character)

    from retargetbench.datasets.check import PLAUSIBLE_HEIGHT
    from retargetbench.device import resolve_device
    from retargetbench.formats.export import save_motion
    from retargetbench.plugins import create_method
    from retargetbench.retargeting import load_character, load_clip, retarget_clip, root_path_scale

    retargeter = create_method(method, device=resolve_device(device), options=method_options)
    loaded = load_clip(source, source_character, straighten=straighten, unit=unit)
    character = load_character(target, straighten=straighten, unit=unit)
    motion = retarget_clip(retargeter, loaded.clip, character)
    save_motion(output, character, motion)
    warnings = [f"{source}: {warning}" for warning in loaded.warnings]
    warnings += [
        f"{each.name} is {each.height:.3g} m tall; is --unit {unit:g} right for its file?"
        for each in (loaded.clip.character, character)
        if not PLAUSIBLE_HEIGHT[0] <= each.height <= PLAUSIBLE_HEIGHT[1]
    ]
    for warning in warnings:
        typer.echo(f"warning: {warning}", err=True)
    scale = root_path_scale(loaded.clip, character, motion)
    count = len(warnings)
    parts = [
        f"{motion.frame_count} frames, {motion.frame_count / motion.fps:.2f} s at {motion.fps:g} fps",
        f"root scale {scale:.3f}" if scale is not None else "root stays in place",
        *([f"{count} warning{'s' if count > 1 else ''}"] if count else []),
    ]
    typer.echo(
        f"wrote {output}: {loaded.clip.character.name}/{loaded.clip.name} on {character.name}, {', '.join(parts)}"
    )


def _options_of(method: str, texts: list[str]) -> dict[str, str]:
    """Read ``--set``; only options of the method that is used make sense."""
    options = parse_option_texts(texts)
    for other in options:
        if other != method:
            raise UsageError(f"--set {other}.… does not fit --method {method}; write --set {method}.OPTION=VALUE")
    return options.get(method, {})

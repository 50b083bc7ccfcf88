"""What a flow begins with: where it runs, its files, a new id; for command and library."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence

from mrstream.cluster.config import state as clusters
from mrstream.cluster.errors import UserError
from mrstream.mapreduce.dataflow.files import Files, RoutedFiles
from mrstream.mapreduce.dfs_layout import FLOWS
from mrstream.mapreduce.flow.book import FlowBook, FlowState, new_id
from mrstream.mapreduce.flow.brain.plan import BadFlow, narrowed
from mrstream.mapreduce.flow.file import read_flow


def state_of_file(
    path: str, variables: Mapping[str, str], cluster: str | None, chosen: Sequence[str] = ()
) -> FlowState:
    """Return a new flow of a file: of the steps that were chosen and what they need, or of all."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read: {error}") from None
    flow_id = new_id()
    name = os.path.splitext(os.path.basename(path))[0]
    try:
        plan = read_flow(text, flow_id, work_of(flow_id, cluster), variables, name)
    except BadFlow as error:
        raise BadFlow(f"{path}: {error}") from None
    return FlowState(
        narrowed(plan, chosen) if chosen else plan,
        os.path.abspath(path),
        dict(variables),
        tuple(chosen),
        cluster,
        working_directory=os.getcwd(),
    )


def work_of(flow_id: str, cluster: str | None) -> str:
    """Return where a flow's intermediate outputs lie: in the dfs, or in the state directory."""
    return FlowBook(flow_id).work if is_local(cluster) else f"{FLOWS}/{flow_id}"


def is_local(cluster: str | None) -> bool:
    """Whether there is no cluster to run on."""
    return clusters.chosen(cluster) is None


def files_of(state: FlowState) -> Files:
    where = state.working_directory or os.getcwd()
    if is_local(state.cluster):
        return RoutedFiles("file:///", where)
    from mrstream.cluster.config import config  # brings a YAML parser with it
    from mrstream.mapreduce.dataflow import dfs_files

    cluster = config.current_cluster(state.cluster)
    assert cluster is not None, "chosen() has found its file"
    dfs_files.serve(cluster)
    return RoutedFiles(f"dfs://{cluster.config.name}/", where)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)

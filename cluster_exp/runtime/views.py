"""The cluster as a user sees it."""

from collections.abc import Iterable

from cluster_exp.domain.cluster import ClusterSpec
from cluster_exp.protocol.messages import JobView, NodeView
from cluster_exp.protocol.roster import Roster


def node_views(cluster: ClusterSpec, roster: Roster, holders: Iterable[JobView], now_s: float) -> list[NodeView]:
    """The nodes with the jobs that hold GPUs there; `now_s` in wall seconds of the clock that the roster was told."""
    jobs: dict[int, list[str]] = {}
    for view in holders:
        for share in view.shares:
            jobs.setdefault(share.node, []).append(view.job_id)
    views = []
    for node, spec in enumerate(cluster.nodes):
        member = roster.members.get(node)
        address = member.registration.worker_address if member else ""
        age_s = now_s - member.heard_s if member else None
        here = tuple(jobs.get(node, ()))
        views.append(NodeView(spec.name, node, member is not None, spec.num_gpu, spec.gpu_type, address, age_s, here))
    return views

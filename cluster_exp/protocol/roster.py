"""Which workers are there: registration, numbered batches, leases. No I/O: times are arguments."""

from dataclasses import dataclass

from cluster_exp.domain.cluster import ClusterSpec, NodeSpec
from cluster_exp.protocol.messages import PROTOCOL_VERSION, Registration, ReportBatch
from cluster_exp.protocol.refusal import RefusalKind, Refused


@dataclass(slots=True)
class Member:
    """A worker that is there."""

    node: int  # node id
    registration: Registration
    heard_s: float  # wall time of its last word
    taken: int = 0  # highest batch that was taken
    heard: bool = False  # it sent a batch to this very master
    resumed: bool = False  # batches after `taken` may have been taken by the master that was there before


class Roster:
    """The workers of a cluster. All times are wall seconds of the caller's clock."""

    def __init__(self, cluster: ClusterSpec, lease_s: float) -> None:
        self._cluster = cluster
        self._lease_s = lease_s
        self._ids = {node.name: i for i, node in enumerate(cluster.nodes)}
        self._members: dict[int, Member] = {}

    @property
    def members(self) -> dict[int, Member]:
        """Workers that are there, by node id."""
        return self._members

    @property
    def missing(self) -> list[str]:
        """Names of the nodes whose worker is not there."""
        return [node.name for i, node in enumerate(self._cluster.nodes) if i not in self._members]

    def spec(self, node: int) -> NodeSpec:
        """A node's description."""
        return self._cluster.nodes[node]

    def register(self, offer: Registration, now_s: float) -> tuple[int, bool]:
        """The offered node's id, and whether it is new: the same worker may ask twice.

        Raises:
            Refused: another protocol version, a stranger or unexpected GPUs; BUSY: the node has another worker.
        """
        if offer.protocol_version != PROTOCOL_VERSION:
            raise _precondition(
                f"node {offer.node} speaks protocol version {offer.protocol_version}, "
                f"this master speaks {PROTOCOL_VERSION}"
            )
        node = self._ids.get(offer.node)
        if node is None:
            known_names = ", ".join(self._ids)[:1000]
            raise _precondition(f"node {offer.node} is not in the cluster; it has {known_names}")
        known = self._members.get(node)
        if known is not None:
            if known.registration.instance != offer.instance:
                silent_s = now_s - known.heard_s
                raise Refused(
                    RefusalKind.BUSY,
                    f"node {offer.node} has a worker already, at {known.registration.worker_address}, heard "
                    f"{silent_s:.1f} s ago; another may come when it is silent for {self._lease_s:g} s",
                )
            known.heard_s = now_s
            return node, False
        self._check_gpus(offer, self._cluster.nodes[node])
        self._members[node] = Member(node, offer, now_s)
        return node, True

    def take(self, batch: ReportBatch, now_s: float) -> tuple[int, bool]:
        """The node id of a batch, and whether the batch is new; a repeated one is not.

        Raises:
            Refused: its worker is not registered, or a batch before it is missing.
        """
        node = self._ids.get(batch.node)
        member = None if node is None else self._members.get(node)
        if node is None or member is None or member.registration.instance != batch.instance:
            raise _precondition(f"node {batch.node} is not registered by this worker")
        member.heard_s = now_s
        if batch.sequence <= member.taken:
            return node, False
        if batch.sequence != member.taken + 1 and not member.resumed:
            raise _precondition(
                f"node {batch.node} sent batch {batch.sequence}, number {member.taken + 1} is the next"
            )
        member.taken = batch.sequence
        member.resumed = False
        return node, True

    def resume(self, offer: Registration, now_s: float) -> int:
        """Takes back a worker that had registered with the master that was there before; returns its node's id.

        Raises:
            Refused: the node is a stranger.
        """
        node = self._ids.get(offer.node)
        if node is None:
            raise _precondition(f"node {offer.node} is not in the cluster")
        self._members[node] = Member(node, offer, now_s, resumed=True)
        return node

    def lapsed(self, now_s: float) -> list[int]:
        """Nodes whose worker has been silent for longer than its lease."""
        return [node for node, member in self._members.items() if now_s - member.heard_s > self._lease_s]

    def drop(self, node: int) -> None:
        """Forgets a node's worker; another one may register."""
        self._members.pop(node, None)

    def _check_gpus(self, offer: Registration, spec: NodeSpec) -> None:
        if offer.num_gpu != spec.num_gpu:
            raise _precondition(
                f"node {offer.node} offers {offer.num_gpu} GPUs, the cluster's description has {spec.num_gpu}"
            )
        if spec.gpu_type and offer.gpu_type and offer.gpu_type != spec.gpu_type:
            raise _precondition(
                f"node {offer.node} offers GPUs of type {offer.gpu_type}, "
                f"the cluster's description has {spec.gpu_type}"
            )


def _precondition(reason: str) -> Refused:
    return Refused(RefusalKind.PRECONDITION, reason)

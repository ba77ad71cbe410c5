"""Protobuf messages to records and back: the only place that knows both.

Every `*_from` function checks each field that arrives and raises `FieldError` naming the first that is bad.
"""

from cluster_exp.runtime.codec.master import (
    batch_from,
    batch_to,
    job_view_from,
    job_view_to,
    node_view_to,
    registration_from,
    registration_to,
    submission_from,
    submission_to,
    welcome_from,
    welcome_to,
)
from cluster_exp.runtime.codec.records import (
    job_from,
    job_to,
    profile_to,
)
from cluster_exp.runtime.codec.worker import (
    endpoint_from,
    endpoint_to,
    launch_from,
    launch_to,
    order_from,
    orders_to,
    preempt_from,
    preempt_to,
    statuses_from,
    statuses_to,
    turns_from,
    turns_to,
)

__all__ = [
    "batch_from",
    "batch_to",
    "endpoint_from",
    "endpoint_to",
    "job_from",
    "job_to",
    "job_view_from",
    "job_view_to",
    "launch_from",
    "launch_to",
    "node_view_to",
    "order_from",
    "orders_to",
    "preempt_from",
    "preempt_to",
    "profile_to",
    "registration_from",
    "registration_to",
    "statuses_from",
    "statuses_to",
    "submission_from",
    "submission_to",
    "turns_from",
    "turns_to",
    "welcome_from",
    "welcome_to",
]

"""The four resources that a training iteration uses in turn."""

from enum import IntEnum


class Resource(IntEnum):
    """A resource of a training stage, in the order in which an iteration visits them."""

    STORAGE = 0
    CPU = 1
    GPU = 2
    NETWORK = 3


NUM_RESOURCES = len(Resource)
RESOURCE_NAMES = tuple(resource.name.lower() for resource in Resource)
MAX_GROUP_SIZE = NUM_RESOURCES

"""Access rules (ACLs), users with passwords, and transactions: what the cluster knows about its clients."""

from __future__ import annotations

from starlette.responses import Response

from minikafka.base.errors import BrokerError, ConfigError, ErrorCode
from minikafka.base.ids import TopicPartition
from minikafka.base.secrets import redact_text
from minikafka.clients.admin.acls import AclBinding
from minikafka.clients.admin.transactions import ProducerState
from minikafka.clients.admin.users import BrokerUsers
from minikafka.console.settings import PAGE_TIMEOUT_MS
from minikafka.console.texts import field_problem
from minikafka.console.views.topics import paged
from minikafka.console.visit import Visit

HANGING_PARTITIONS_MAX = 5_000
_MINUTES = 15


def access_rules(visit: Visit) -> Response:
    """Show the ACLs, found by any of their words, and the users with their mechanisms."""
    text = visit.param("q").lower()
    has_authorizer = True
    bindings: list[AclBinding] = []
    try:
        bindings = visit.access.admin.describe_acls(timeout_ms=PAGE_TIMEOUT_MS)
    except BrokerError as error:
        if error.code is ErrorCode.SECURITY_DISABLED:
            has_authorizer = False
        else:
            visit.note_errors("access rules are not known", [error])
    found = [binding for binding in bindings if text in _words(binding)]
    shown, pages = paged(found, visit.number("page", 1))
    users = visit.attempt("users are not known", BrokerUsers(visit.access.cluster).credentials)
    return visit.page(
        "access.html",
        has_authorizer=has_authorizer,
        bindings=shown,
        pages=pages,
        q=visit.param("q"),
        users=users,
        parameters={"q": visit.param("q")},
    )


def _words(binding: AclBinding) -> str:
    resource, acl = binding.resource, binding.acl
    words = (
        resource.type.label,
        resource.name,
        acl.principal,
        acl.host,
        acl.operation.label,
        acl.permission.label,
    )
    return " ".join(words).lower()


def transactions(visit: Visit) -> Response:
    """Show the transactional ids, found by a part of the id and by state."""
    listed = visit.access.transactions.list_transactions(timeout_ms=PAGE_TIMEOUT_MS)
    text, state = visit.param("q"), visit.param("state")
    rows = [
        row
        for row in listed
        if text.lower() in row.transactional_id.lower() and (not state or row.state == state)
    ]
    shown, pages = paged(rows, visit.number("page", 1))
    return visit.page(
        "transactions.html",
        rows=shown,
        pages=pages,
        states=sorted({row.state for row in listed}),
        state=state,
        q=text,
        parameters={"q": text, "state": state},
    )


def transaction(visit: Visit) -> Response:
    """Show the transaction of one transactional id."""
    wanted = visit.any_text("id")
    # A look-up of the coordinator would make the topic of transactions.
    listed = visit.access.transactions.list_transactions(timeout_ms=PAGE_TIMEOUT_MS)
    if all(row.transactional_id != wanted for row in listed):
        text = f"there is no transactional id {wanted!r}"
        raise BrokerError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, text)
    found = visit.access.transactions.describe(wanted, timeout_ms=PAGE_TIMEOUT_MS)
    return visit.page("transaction.html", found=found)


def hanging_transactions(visit: Visit) -> Response:
    """Show transactions that no coordinator will end, of a topic or of all."""
    topic = visit.param("topic")
    rows: list[ProducerState] | None = None
    minutes_problem = topic_problem = ""
    if visit.param("find"):
        minutes = 0
        partitions: list[TopicPartition] = []
        try:
            minutes = visit.number("minutes", _MINUTES, 0, 100_000)
        except ConfigError as error:
            minutes_problem = field_problem(error, {"minutes": "Minutes"})
        try:
            partitions = _led_partitions(visit, topic)
        except ConfigError as error:
            topic_problem = field_problem(error, {"topic": "Topic"})
        except BrokerError as error:
            topic_problem = redact_text(error.detail or error.code.name)
        if not minutes_problem and not topic_problem:
            rows = visit.access.transactions.find_hanging(
                partitions, max_timeout_ms=minutes * 60_000, timeout_ms=4 * PAGE_TIMEOUT_MS
            )
    return visit.page(
        "transactions_hanging.html",
        400 if minutes_problem or topic_problem else 200,
        rows=rows,
        topic=topic,
        minutes=visit.param("minutes") or _MINUTES,
        minutes_problem=minutes_problem,
        topic_problem=topic_problem,
    )


def _led_partitions(visit: Visit, topic: str) -> list[TopicPartition]:
    """Return the partitions with a leader, of a topic or of all. Raises BrokerError or ConfigError."""
    topics = [visit.topic(topic)] if topic else list(visit.metadata.topics.values())
    found = [part.topic_partition for known in topics for part in known.partitions if part.leader_id >= 0]
    if len(found) > HANGING_PARTITIONS_MAX:
        allowed = f"required: the cluster has {len(found):,} partitions, more than can be searched at once"
        raise ConfigError("topic", None, allowed)
    return found

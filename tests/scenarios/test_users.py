"""SCRAM credentials of users: brokers know those in ZooKeeper, from the start and in a new session too."""

from __future__ import annotations

from minikafka.base.secrets import Password
from minikafka.clients.admin.users import NewPassword, add_user, change_password, delete_user
from minikafka.clients.admin.zookeeper.users import ZooKeeperUsers
from minikafka.registry import paths
from minikafka.registry.store import Store
from minikafka.security.sasl.scram import ScramCredential, ScramMechanism
from tests.scenarios.script_simulation import ScriptSimulation

SHA_512 = ScramMechanism.SCRAM_SHA_512


def known(simulation: ScriptSimulation, user: str = "alice") -> ScramCredential | None:
    """Return the credential that the broker knows."""
    return simulation.machine.broker.scram_credentials.credential(SHA_512, user)


def fits(credential: ScramCredential | None, password: str) -> bool:
    assert credential is not None
    salt, iterations = credential.salt, credential.iterations
    return credential == ScramCredential.create(SHA_512, Password(password), salt, iterations)


def pass_time(simulation: ScriptSimulation) -> None:
    simulation.network.wait(lambda: False, simulation.clock.monotonic_ms() + 1_000)


def test_a_broker_knows_users_from_its_start_and_every_change() -> None:
    with ScriptSimulation() as simulation:
        store: Store = simulation.zookeeper.connect()
        random_bytes = iter(bytes([n]) * 17 for n in range(100)).__next__
        add_user(ZooKeeperUsers(store), "alice", NewPassword(Password("tiger")), lambda _: random_bytes())
        simulation.machine.start()
        assert fits(known(simulation), "tiger")
        add_user(ZooKeeperUsers(store), "b/b", NewPassword(Password("bear")), lambda _: random_bytes())
        change_password(
            ZooKeeperUsers(store), "alice", NewPassword(Password("lion"), 8192), lambda _: random_bytes()
        )
        pass_time(simulation)
        assert fits(known(simulation), "lion")
        assert fits(known(simulation, "b/b"), "bear")
        delete_user(ZooKeeperUsers(store), "alice")
        pass_time(simulation)
        assert known(simulation) is None
        assert "tiger" not in str(simulation.log.take())


def test_users_changed_without_notification_are_known_in_the_next_session() -> None:
    with ScriptSimulation() as simulation:
        store = simulation.zookeeper.connect()
        add_user(ZooKeeperUsers(store), "alice", NewPassword(Password("tiger")), bytes)
        simulation.machine.start()
        store.delete(paths.config_path(paths.USERS, "alice"))
        pass_time(simulation)
        assert fits(known(simulation), "tiger")
        simulation.zookeeper.expire(simulation.machine.store)
        pass_time(simulation)
        assert known(simulation) is None

"""Frameworks: a job that asks for a GPU and prints what it got, and the hub of the courses."""

import pulumi
import pulumi_kubernetes as kubernetes

from bedplate.components import config as stackconfig
from bedplate.components import refs as stackrefs
from bedplate.components.cluster import artifact
from bedplate.components.frameworks.hub import Hub
from bedplate.components.frameworks.remote import RemoteGpus, remote_args
from bedplate.components.frameworks.smoke import JOB, Smoke
from bedplate.components.frameworks.storage import Storage, storage_args
from bedplate.lock.taints import tolerations

NAMESPACE = "bedplate-smoke"

config = stackconfig.read()
lock = stackconfig.lock_of(config.site)
cluster = stackrefs.cluster()
provider = kubernetes.Provider("cluster", kubeconfig=cluster.kubeconfig)
smoke = Smoke(
    "smoke",
    {
        "namespace": NAMESPACE,
        "image": artifact.image(config.site, lock, "smoke"),
        "resource": "nvidia.com/gpu",
        "kubeconfig": cluster.kubeconfig,
        "tolerations": tolerations(lock, lock.pools),
    },
    pulumi.ResourceOptions(providers=[provider]),
)
if (remote := remote_args(lock)) is not None:
    RemoteGpus("remote", remote, pulumi.ResourceOptions(providers=[provider]))

if lock.courses:
    data = storage_args(config.site, lock)
    homes = Storage("storage", data, pulumi.ResourceOptions(providers=[provider]))
    secrets = pulumi.Config("bedplate")
    hub = Hub(
        "hub",
        {
            "site": config.site,
            "lock": lock,
            "oauth_secret": secrets.get_secret("oauthClientSecret"),
            "key": secrets.get_secret("hubKey"),
        },
        pulumi.ResourceOptions(providers=[provider], depends_on=[homes]),
    )
    pulumi.export("hub", hub.address)
    pulumi.export("hub_codes", hub.codes)
    pulumi.export("hub_registry", hub.registry)
    pulumi.export("hub_passwords", hub.passwords)

pulumi.export("logs", smoke.log)
pulumi.export("read_logs", f"kubectl --namespace {NAMESPACE} logs job/{JOB}")

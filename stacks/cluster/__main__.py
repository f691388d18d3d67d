"""Cluster: control planes, network, workers and their GPUs, as the site's lock says."""

import pulumi

from bedplate.components import config as stackconfig
from bedplate.components import refs as stackrefs
from bedplate.components.cluster import artifact
from bedplate.components.cluster.cluster import Cluster
from bedplate.components.cluster.wished import cluster_args
from bedplate.provider import sdk

config = stackconfig.read()
lock = stackconfig.lock_of(config.site)

hosts = sdk.Provider(
    "hosts",
    site=config.site_from_project,
    private_key=config.private_key,
    known_hosts=config.known_hosts,
    force=config.force,
)
cluster = Cluster(
    config.site.name,
    cluster_args(
        lock, artifact.manifest(config.site, lock, "flannel-manifest"), config.gpu_seconds
    ),
    pulumi.ResourceOptions(providers=[hosts]),
)
stackrefs.export_cluster(
    {"kubeconfig": cluster.kubeconfig, "endpoint": cluster.endpoint, "nodes": cluster.nodes}
)

"""RDMA devices, and the files that RDMA and NCCL are told by."""

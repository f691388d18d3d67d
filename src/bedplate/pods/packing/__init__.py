"""An extender of kube-scheduler that counts shares of GPUs and packs them.

Standard library only: its image needs Python and this folder.
"""

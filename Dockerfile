# SPDX-License-Identifier: Apache-2.0

# One image per program: docker build --target konnectivity-agent .
#
# `make images` builds the static binaries into bin/ first, and nothing else goes in: no base image to pull, no network,
# no shell. There are no CA certificates either: inside a cluster every program is given the CA that it is to trust.

# The CLI. For work on clusters that a kubeconfig reaches: render, verify.
FROM scratch AS fairlead
COPY bin/fairlead /fairlead
USER 65532:65532
ENTRYPOINT ["/fairlead"]

# The path is that of the kube-scheduler image, whose place it takes in the documents' example of a second scheduler.
FROM scratch AS fairlead-scheduler
COPY bin/fairlead-scheduler /usr/local/bin/kube-scheduler
USER 65532:65532
ENTRYPOINT ["/usr/local/bin/kube-scheduler"]

# The path is that of the proxy-server image. It has to run as root, or as the user of kube-apiserver: the serving key
# and the kubeconfig are 0600 and root's, and so is the directory of the socket that the two share.
FROM scratch AS konnectivity-server
COPY bin/konnectivity-server /proxy-server
USER 0:0
ENTRYPOINT ["/proxy-server"]

# The path is that of the proxy-agent image.
FROM scratch AS konnectivity-agent
COPY bin/konnectivity-agent /proxy-agent
USER 65532:65532
ENTRYPOINT ["/proxy-agent"]

# The extension API server that shows the tunnel's state.
FROM scratch AS fairlead-apiserver
COPY bin/fairlead-apiserver /fairlead-apiserver
USER 65532:65532
ENTRYPOINT ["/fairlead-apiserver"]

# It needs no root: kube-apiserver verifies the certificate that it makes.
FROM scratch AS fairlead-operator
COPY bin/fairlead-operator /fairlead-operator
USER 65532:65532
ENTRYPOINT ["/fairlead-operator"]

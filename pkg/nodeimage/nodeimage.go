// SPDX-License-Identifier: Apache-2.0

// Package nodeimage names the images that `make node-image` builds for kind, for those who use them; e2e/offline/nodeimage is
// what builds them.
//
// The node image works like a released kindest/node: `kind create cluster --image` with it needs nothing else. It brings
// a CNI of its own under /kind/manifests/default-cni.yaml (ptp, portmap and routes between nodes), so
// networking.disableDefaultCNI stays false, and no image is ever pulled. [PodImage] and the project's own images are in it too.
package nodeimage

import "github.com/fairlead-dev/fairlead/pkg/components"

// Name is the node image for the Kubernetes version that this repository pins.
func Name() string { return "fairlead-dev/kind-node:" + components.KubernetesVersion() }

// PodImage is what pods of tests and checks run: it has sh, cat, head, tar, ls, sleep and wget, and as its entrypoint a
// server in the manner of agnhost's netexec: HTTP on port 8080 with /echo?msg=, /hostname, /clientip, /healthz.
const PodImage = "fairlead-dev/podtest:v1"

// LoadBalancer is the image that kind runs in front of several control planes
// (sigs.k8s.io/kind/pkg/cluster/internal/loadbalancer/const.go). `make node-image` makes one of that name where there is none.
const LoadBalancer = "docker.io/envoyproxy/envoy:v1.36.2"

// ImageList is a file in the node image that lists this project's images in it, name and digest on each line: who has
// the very same need not load them.
const ImageList = "/kind/fairlead-image-list"

// KindModule is where kind's own node files come from.
const KindModule = "sigs.k8s.io/kind"

// SPDX-License-Identifier: Apache-2.0

// Command nodeimage builds an image for the nodes of kind clusters with no container registry, from Debian's packages and
// Go modules; `make node-image` runs it. The image's name is that of package nodeimage.
//
// It is built in three stages, and each is kept in Docker under a tag that is a hash of what goes into it, so that a
// stage is built again only when its inputs or those of a stage below have changed:
//
//   - debian (debian.go, kindfiles.go): debootstrap, and over it kind's own node files from its Go module.
//   - kubernetes (kubernetes.go): the node's programs and, in containerd's store, the images of the control plane, all
//     built from pinned modules: pkg/components holds Kubernetes and etcd, programs/ holds containerd, CoreDNS and the
//     CNI plugins, cmd/ holds what stands in for images that no module has.
//   - project (project.go): this project's images on top. A change of code costs this stage only, seconds.
//
// The binaries and the image archives are reproducible byte for byte, and so are all image IDs inside the node. Two
// things are not reproducible: Debian's packages are the current ones (/kind/debian-packages lists them), and
// containerd's database and Docker's metadata contain times.
package main

// SPDX-License-Identifier: Apache-2.0

// Package imagetar makes container images out of files, with no Docker, no registry and no base image: this project's
// programs are static binaries, and an image of one is little more than its bytes.
//
// [Project] gives the images of this repository's programs as the Dockerfile describes them, under the names that the
// default bundle has; [New] makes any other. An [Image] writes itself as an archive ([Image.WriteTo]) that is both an
// OCI layout and what `docker save` writes, so `docker load`, `ctr images import`, podman and skopeo read it. The same
// files give the same bytes, on any machine and at any time; [Image.ID] and [Image.Digest] are known beforehand, which
// is how a caller finds out whether a node has the image already:
//
//	images, err := imagetar.Project("bin")
//	...
//	_, err = images[0].WriteTo(w) // w: standard input of "ctr --namespace k8s.io images import --digests -"
//
// # Why this is not a library
//
// github.com/google/go-containerregistry v0.22 makes configurations and manifests. It does not make a layer out of files with settled
// owners, modes and times, and it writes an archive of docker save or a directory with an OCI layout, but no archive that is both and
// none with several architectures. It would replace about 120 of the 610 lines here, and add 24 packages of two modules to the program.
package imagetar

// SPDX-License-Identifier: Apache-2.0

// Package daemon starts and stops a private Docker daemon. Its socket, images, containers, containerd and pid files are
// all in one directory, so it does not disturb any other daemon and leaves nothing elsewhere except its bridges.
//
// [Start] is the way in. It prefers a daemon that answers already, installs Docker on Debian where it is missing and the
// user is root, and copes with sandboxes that lack CAP_SYS_RESOURCE (see package runtime).
package daemon

// Package daemon starts and stops a Docker daemon of its own: socket, images, containers, containerd and process ids all
// live in one directory, so that it disturbs no other daemon and leaves nothing elsewhere but its bridges.
//
// [Start] is the way in. It prefers a daemon that answers already, installs Docker on Debian where it is missing and the
// user is root, and copes with sandboxes that lack CAP_SYS_RESOURCE (see package runtime).
package daemon

// SPDX-License-Identifier: Apache-2.0

// Package apiclient is a small client for the few calls to kube-apiserver that the
// tunnel makes: TokenReview, Lease and Node. Start at [Load] and [NewClient].
//
// # Why this is not a library
//
// client-go's typed clients would more than double the memory of an idle program. Its
// clientcmd and rest.HTTPClientFor alone cost 8 MB for a server and an agent (31.1
// instead of 23.3 MB), but read certificates and CAs that a kubeconfig contains only
// once, and files only every five minutes. This package reads them for each connection,
// so that a renewal needs no restart: see docs/adr/0006-own-kubeconfig.md.
package apiclient

// SPDX-License-Identifier: Apache-2.0

// Package gateway renders the shared way into the cluster network: "fairlead socks5" with
// TLS, tokens and access reviews, as a Deployment or as a static Pod next to a Konnectivity
// server.
//
// Start with [Component], which describes the program, and [Objects], which adds what it
// needs in the cluster. Certificates are requested here and issued elsewhere:
// pkg/install makes the Secret of the Deployment, "fairlead render" the files of the static
// Pod.
//
// The program is the fairlead CLI: a way in for one person and one for a team are the same
// code with other flags, so what is tested on a laptop is what runs in the cluster.
package gateway

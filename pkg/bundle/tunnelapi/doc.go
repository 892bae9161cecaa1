// SPDX-License-Identifier: Apache-2.0

// Package tunnelapi renders the extension API server that shows the tunnel's agents, servers
// and connections: fairlead-apiserver, as a Deployment.
//
// Start with [Component], which describes the program, and [Objects], which adds what it
// needs in the cluster. Certificates are requested here and issued elsewhere: pkg/install
// makes the Secret, and the APIService with the CA that verifies it.
//
// The APIService is last and depends on everything else: while one is registered whose server
// does not answer, kube-apiserver deletes no namespace. pkg/install creates it when the server
// is ready, and deletes it first.
package tunnelapi

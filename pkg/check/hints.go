// SPDX-License-Identifier: Apache-2.0

package check

import "strings"

// callHint knows the usual causes behind the errors of calls that should have gone through the tunnel.
func callHint(err error) string {
	text := err.Error()
	for _, known := range callHints {
		if strings.Contains(text, known.part) {
			return known.hint
		}
	}
	return ""
}

var callHints = []struct{ part, hint string }{
	{"No agent available", "no Konnectivity agent is connected: check that agents run, and that the server accepts their tokens (TokenReview in its log)"},
	{"no backend", "no Konnectivity agent is connected: check that agents run, and that the server accepts their tokens (TokenReview in its log)"},
	{"konnectivity-server.socket", "the API server cannot reach konnectivity-server's socket: check that the server runs on the API server's machine, with the same --uds-name"},
	{"failed to create tunnel", "the API server cannot reach konnectivity-server: check that it runs, with the same socket path as in the egress selector file"},
	{"address not allowed", "the API server proxies only to global unicast addresses: the Node's InternalIP must not be loopback"},
	{"no such host", "the name in the Node's or Service's address does not resolve: set --kubelet-preferred-address-types=InternalIP on kube-apiserver"},
	{"x509:", "the API server does not trust the certificate of the destination: check --kubelet-certificate-authority, and the names in the kubelet's certificate"},
	{"Unauthorized", "the kubelet does not accept the API server's client certificate: check --kubelet-client-certificate"},
	{"no route to host", "the agents cannot reach that address: set --webhook-address to an address of this machine that they can reach"},
	{"i/o timeout", "the agents cannot reach that address: check firewalls, or set --webhook-address to an address of this machine that they can reach"},
	{"deadline exceeded", "the call got no answer: check in the agent's log that it runs and can reach the address"},
	{"no endpoints available", "the API server did not see the endpoint in time; with --enable-aggregator-routing it uses endpoints instead of the ClusterIP"},
}

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
	{"No agent available", "no Konnectivity agent is connected: are agents running, and is their token accepted (server's log: TokenReview)?"},
	{"no backend", "no Konnectivity agent is connected: are agents running, and is their token accepted (server's log: TokenReview)?"},
	{"konnectivity-server.socket", "the API server cannot reach konnectivity-server's socket: does the server run, on the API server's machine, with the same --uds-name?"},
	{"failed to create tunnel", "the API server cannot reach konnectivity-server: does it run, with the same socket path as in the egress selector file?"},
	{"address not allowed", "the API server proxies only to global unicast addresses: the Node's InternalIP must not be loopback"},
	{"no such host", "the name in the Node's or Service's address does not resolve: set --kubelet-preferred-address-types=InternalIP on kube-apiserver"},
	{"x509:", "the API server does not trust the certificate at the other end: --kubelet-certificate-authority, and the names in the kubelet's certificate"},
	{"Unauthorized", "the kubelet does not accept the API server's client certificate: --kubelet-client-certificate"},
	{"no route to host", "the agents cannot reach that address: --webhook-address names one of this machine that they can reach"},
	{"i/o timeout", "the agents cannot reach that address: firewall? --webhook-address names one of this machine that they can reach"},
	{"deadline exceeded", "the call was taken and nothing came back: is the agent alive, and can it reach the address? (its log)"},
	{"no endpoints available", "the API server did not see the endpoint in time; --enable-aggregator-routing makes it use endpoints rather than the ClusterIP"},
}

// SPDX-License-Identifier: Apache-2.0

package app

import (
	"crypto/tls"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/tlsreload"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
)

// unauthenticated reports whether agents may connect from other machines without a token
// or a certificate. Upstream's server runs like that without a warning. Refusing to start
// would break users who replace only the program.
func (o *Options) unauthenticated() bool {
	host := strings.Trim(o.AgentBindAddress, "[]")
	return !o.usesTokens() && o.ClusterCaCert == "" && host != "localhost" && !net.ParseIP(host).IsLoopback()
}

// frontTLS is for clients over TCP.
func (o *Options) frontTLS(m *server.Metrics) (*tls.Config, error) {
	var protocols []string
	if o.Mode == "grpc" {
		protocols = []string{"h2"} // without it clients of gRPC end the connection
	}
	cfg, err := o.tls(m, "clients", tlsreload.Files{Cert: o.ServerCert, Key: o.ServerKey, CA: o.ServerCaCert}, protocols...)
	if err != nil {
		return nil, err
	}
	allowNames(cfg, o.AllowedClientNames)
	return cfg, nil
}

// allowNames has the clients of a listener show a certificate with one of the common
// names. Without names each certificate of the CA is good.
func allowNames(cfg *tls.Config, names []string) {
	get := cfg.GetConfigForClient
	if len(names) == 0 {
		return
	}
	cfg.GetConfigForClient = func(h *tls.ClientHelloInfo) (*tls.Config, error) {
		c, err := get(h)
		if err != nil {
			return nil, err
		}
		c = c.Clone()
		c.VerifyConnection = func(state tls.ConnectionState) error {
			if len(state.PeerCertificates) == 0 {
				return fmt.Errorf("client has no certificate: it needs one with a common name of --server-allowed-client-names")
			}
			if name := state.PeerCertificates[0].Subject.CommonName; !slices.Contains(names, name) {
				return fmt.Errorf("client's certificate has the common name %q, which is not in --server-allowed-client-names", name)
			}
			return nil
		}
		return c, nil
	}
}

// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead-dev/fairlead/pkg/bundle/pki"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/cli/clusterflags"
	"github.com/fairlead-dev/fairlead/pkg/cli/serving"
	"github.com/fairlead-dev/fairlead/pkg/gateway/kubeconfig"
)

// validity of the certificate of --tls, which lives as long as the process.
const validity = 10 * 365 * 24 * time.Hour

// validateContexts checks the flags of kubeconfigs and of the command.
func (o *Options) validateContexts(cmd *cobra.Command, args []string) error {
	switch dash := cmd.ArgsLenAtDash(); {
	case len(args) > 0 && dash != 0:
		return fmt.Errorf("%q is not expected here: write a command and its arguments behind \" -- \"", args[0])
	case dash == 0 && len(args) == 0:
		return errors.New("no command follows \"--\": name one, or leave \"--\" out")
	}
	if o.Command = args; len(args) > 0 {
		o.defaultForCommand(cmd.Flags().Changed)
	}
	return o.validateKubeconfig(cmd)
}

func (o *Options) validateKubeconfig(cmd *cobra.Command) error {
	contexts := o.WriteKubeconfig != "" || len(o.Command) > 0
	switch {
	case cmd.Flags().Changed("write-kubeconfig") && o.WriteKubeconfig == "":
		return errors.New("--write-kubeconfig is empty: name the file")
	case contexts && o.UnixSocket != "":
		return errors.New("--unix-socket: a kubeconfig cannot name a Unix socket: leave it out, or leave out --write-kubeconfig and the command")
	case o.TLS && !contexts:
		return errors.New("--tls: only a kubeconfig holds the certificate and the token: add --write-kubeconfig or a command")
	case contexts && !o.TLS && o.TokenFile != "":
		return errors.New("--token-file: clients of a kubeconfig send no token over HTTP: add --tls")
	}
	return nil
}

// defaultForCommand sets what is different with a command, unless the user has set it.
func (o *Options) defaultForCommand(changed func(flag string) bool) {
	if !changed("tls") {
		o.TLS = true
	}
	if !changed("access-log") {
		o.AccessLog = false // it would come between the lines of the command
	}
	if !changed("port") {
		o.Port = 0
	}
}

// secure makes the certificate, and the token unless there is one, of --tls. ca is what
// clients verify it with.
func (o *Options) secure(l net.Listener) (config *tls.Config, ca []byte, err error) {
	if !o.TLS {
		return nil, nil, nil
	}
	settings, now := pki.Config{Algorithm: v1alpha1.KeyECDSAP256, Validity: validity, CAValidity: validity}, time.Now()
	authority, err := pki.NewCA(settings, "fairlead-proxy-ca", now)
	if err != nil {
		return nil, nil, err
	}
	request := pki.Request{CommonName: "fairlead-proxy", DNSNames: []string{"localhost"}, IPs: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}, Usages: pki.ServerAuth}
	if a, ok := l.Addr().(*net.TCPAddr); ok && !a.IP.IsUnspecified() {
		request.IPs = append(request.IPs, a.IP)
	}
	pair, err := authority.Issue(settings, request, now)
	if err != nil {
		return nil, nil, err
	}
	if o.token == "" {
		o.token = rand.Text()
	}
	certificate := tls.Certificate{Certificate: [][]byte{pair.Cert.Raw}, PrivateKey: pair.Key}
	return &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{certificate}, NextProtos: []string{"h2", "http/1.1"}}, authority.CertPEM(), nil
}

// entry is the context that leads to the proxy.
func (o *Options) entry(cluster clusterflags.Cluster, addr net.Addr, ca []byte) kubeconfig.Entry {
	name := o.ContextName
	if name == "" {
		name = "proxy"
		if cluster.Context != "" {
			name += "-" + cluster.Context
		}
	}
	scheme, token := "http", ""
	if o.TLS {
		scheme, token = "https", o.token
	}
	prefix := ""
	if o.APIPrefix != "/" && o.APIPrefix != "/api" && o.APIPrefix != "/api/" {
		prefix = o.APIPrefix
	}
	return kubeconfig.ForServer(name, scheme+"://"+serving.LocalAddress(addr)+prefix, cluster.Namespace, ca, token)
}

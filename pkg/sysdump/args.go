// SPDX-License-Identifier: Apache-2.0

package sysdump

import (
	"regexp"
	"slices"
	"strings"

	"github.com/fairlead-dev/fairlead/pkg/internal/redact"
)

// Flags are those whose values the archive has. Of all others it has the names: programs of others take credentials in flags of any name.
var Flags = []string{
	// konnectivity-server and konnectivity-agent, Fairlead's and upstream's
	"admin-bind-address", "admin-port", "admin-server-port", "agent-bind-address", "agent-cert", "agent-claims", "agent-id", "agent-identifiers", "agent-key", "agent-namespace",
	"agent-port", "agent-service-account", "agent-wait", "allow-destinations", "alpn-proto", "apiserver-host", "apiserver-port", "authentication-audience", "backend-dial-timeout",
	"ca-cert", "cipher-suites", "cluster-ca-cert", "cluster-cert", "cluster-key", "conn-buffer", "count-server-leases", "default-route-agents", "delete-existing-uds-file",
	"deny-destinations", "dial-timeout", "enable-contention-profiling", "enable-lease-controller", "enable-profiling", "frontend-keepalive-time", "graceful-shutdown-timeout",
	"health-bind-address", "health-port", "health-server-host", "health-server-port", "keepalive-time", "kube-api-content-type", "kubeconfig", "kubeconfig-burst", "kubeconfig-qps",
	"lease-label", "lease-namespace", "link", "link-budget", "link-max-window", "link-window", "links", "links-per-agent", "max-agents", "max-connections", "max-connections-per-agent",
	"max-links-per-owner", "max-pending-dials", "mode", "non-node-cidrs", "peer-buffer", "probe-interval", "proxy-server-host", "proxy-server-port", "proxy-strategies",
	"server-allowed-client-names", "server-bind-address", "server-ca-cert", "server-cert", "server-count", "server-count-source", "server-id", "server-key", "server-port",
	"service-account-token-path", "slow-receivers", "state-audience", "state-bind-address", "state-connect", "state-port", "state-service-account", "state-socket", "sync-forever",
	"sync-interval", "sync-interval-cap", "tls-min-version", "token-cache", "token-review-interval", "total-buffer", "tracing-config-file", "uds-name", "warn-on-channel-limit",
	"xfr-channel-size",
	// schedulers, the operator and the tunnel's extension API server
	"authentication-kubeconfig", "authorization-kubeconfig", "bind-address", "config", "feature-gates", "kube-api-burst", "kube-api-qps", "leader-elect", "leader-elect-lease-duration",
	"leader-elect-renew-deadline", "leader-elect-resource-lock", "leader-elect-resource-name", "leader-elect-resource-namespace", "leader-elect-retry-period", "secure-port",
	"tls-cert-file", "tls-private-key-file", "v",
	// kube-apiserver, as far as it has to do with the tunnel and with extension API servers
	"advertise-address", "allow-privileged", "anonymous-auth", "api-audiences", "authorization-mode", "client-ca-file", "disable-admission-plugins", "egress-selector-config-file",
	"enable-admission-plugins", "enable-aggregator-routing", "enable-bootstrap-token-auth", "enable-priority-and-fairness", "endpoint-reconciler-type", "etcd-cafile", "etcd-certfile", "etcd-keyfile",
	"kubelet-certificate-authority", "kubelet-client-certificate", "kubelet-client-key", "kubelet-preferred-address-types", "kubelet-timeout", "max-mutating-requests-inflight",
	"max-requests-inflight", "proxy-client-cert-file", "proxy-client-key-file", "requestheader-allowed-names", "requestheader-client-ca-file", "requestheader-extra-headers-prefix",
	"requestheader-group-headers", "requestheader-uid-headers", "requestheader-username-headers", "runtime-config", "service-account-issuer", "service-account-key-file",
	"service-account-signing-key-file", "service-cluster-ip-range", "service-node-port-range", "shutdown-delay-duration",
}

var (
	flagName = regexp.MustCompile(`^--?[A-Za-z][A-Za-z0-9._-]*$`)
	// program is the path of one, without anything behind it.
	program = regexp.MustCompile(`^[A-Za-z0-9._/-]+$`)
)

// safeArgs keeps the names of flags, the values of those on the list and, if the arguments begin with it, the program.
func safeArgs(args []string, command bool) []string {
	out := make([]string, 0, len(args))
	flag := "" // the last argument, if the next one may be its value
	for i, arg := range args {
		name, value, joined := strings.Cut(arg, "=")
		switch {
		case i == 0 && command && program.MatchString(arg):
			out = append(out, safe(arg))
		// A value may begin with one dash.
		case !flagName.MatchString(name), flag != "" && !known(flag) && !known(name) && !strings.HasPrefix(name, "--"):
			out, flag = append(out, safeValue(flag, arg)), ""
		case joined:
			out, flag = append(out, name+"="+safeValue(name, value)), ""
		default:
			out, flag = append(out, arg), name
		}
	}
	return out
}

func known(flag string) bool {
	return slices.Contains(Flags, strings.ReplaceAll(strings.TrimLeft(flag, "-"), "_", "-"))
}

func safeValue(flag, value string) string {
	if !known(flag) {
		return redact.Mark
	}
	return safe(value)
}

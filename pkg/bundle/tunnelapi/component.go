// SPDX-License-Identifier: Apache-2.0

package tunnelapi

import (
	"net"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	tunnelv1alpha1 "github.com/fairlead-dev/fairlead/pkg/apis/tunnel/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/bundle/apiservice"
	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
	"github.com/fairlead-dev/fairlead/pkg/bundle/konnectivity"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/settings"
)

const (
	// Binary is the base name of the program.
	Binary = "fairlead-apiserver"
	// PortAPI names the port on which the Pods serve the API.
	PortAPI = "https"

	nameLabel = "app.kubernetes.io/name"
	tlsDir    = "/var/run/secrets/" + v1alpha1.TunnelAPIName + "/tls"
	// stateDir has the token for the Konnectivity servers.
	stateDir   = "/var/run/secrets/" + v1alpha1.TunnelAPIName + "/state"
	stateToken = "token"
	// memoryPercent is the share of the memory limit that the program's heap may have.
	memoryPercent = 85

	// stopDelay and stopDrain are the program's defaults, and stopRest is the time for all that follows.
	stopDelay, stopDrain, stopRest = 3 * time.Second, 10 * time.Second, 20 * time.Second
)

// Enabled reports whether a bundle has the API server.
func Enabled(b *v1alpha1.Bundle) bool { return ptr.Deref(b.Defaulted().TunnelAPI.Enabled, false) }

// Connects reports whether the API server opens connections through agents.
func Connects(b *v1alpha1.Bundle) bool {
	return Enabled(b) && ptr.Deref(b.Defaulted().TunnelAPI.Connect, false)
}

// Labels select the API server's Pods.
func Labels() map[string]string { return map[string]string{nameLabel: v1alpha1.TunnelAPIName} }

// Request describes the API server to the aggregation layer.
func Request(b *v1alpha1.Bundle) apiservice.Request {
	group := tunnelv1alpha1.SchemeGroupVersion
	return apiservice.Request{
		Group: group.Group, Version: group.Version, Namespace: b.Defaulted().Namespace, Service: v1alpha1.TunnelAPIName,
	}.Defaulted()
}

// Component describes the API server.
func Component(b *v1alpha1.Bundle) component.Component {
	b = b.Defaulted()
	a := &b.TunnelAPI
	probe := component.Probe{Port: PortAPI, HTTPS: true}
	c := component.Component{
		Name: v1alpha1.TunnelAPIName, Namespace: b.Namespace, Binary: Binary,
		Labels: Labels(), Selector: Labels(), PodLabels: Labels(),
		ContainerName: "apiserver", Image: a.Image,
		Command:   []string{"/" + Binary},
		Flags:     Flags(b),
		Ports:     []component.Port{{Name: PortAPI, Number: a.Port}},
		Readiness: readiness(probe),
		Liveness:  &component.Probe{Port: PortAPI, HTTPS: true, Path: "/livez", Delay: 15, Timeout: 5},
		Volumes: []component.Volume{
			{Name: "tls", MountPath: tlsDir, ReadOnly: true, Secret: a.CertificateSecret},
			{Name: "api", MountPath: component.APIDir, ReadOnly: true, API: &component.API{TokenSeconds: component.TokenSeconds}},
			{Name: "state", MountPath: stateDir, ReadOnly: true, Token: &component.Token{
				Audience: settings.DefaultStateAudience, Path: stateToken, ExpirationSeconds: component.TokenSeconds,
			}},
		},
		ServiceAccount: v1alpha1.TunnelAPIName,
		PodSecurity:    component.RestrictedPod(), Security: component.RestrictedContainer(),
		// Without a replica, kube-apiserver deletes no namespace.
		PriorityClass: "system-cluster-critical",
		Replicas:      ptr.Deref(a.Replicas, 1),

		TerminationGraceSeconds: ptr.To(stopSeconds(a)),
		Affinity:                component.SpreadHosts(Labels()),
		Tolerations: []corev1.Toleration{
			{Key: "CriticalAddonsOnly", Operator: corev1.TolerationOpExists},
			{Key: v1alpha1.LabelControlPlane, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
		},
	}
	if a.Resources != nil {
		c.Resources = *a.Resources
	}
	if m := c.Resources.Limits.Memory(); !m.IsZero() {
		// The rest is for what the garbage collector does not count, such as the kernel's buffers of sockets.
		c.Env = []corev1.EnvVar{{Name: "GOMEMLIMIT", Value: strconv.FormatInt(m.Value()/100*memoryPercent+m.Value()%100*memoryPercent/100, 10)}}
	}
	return c
}

// readiness fails after 3 s in which a replica refuses connections, because kube-apiserver answers with errors for as long as
// such a replica is an endpoint. The threshold of other programs is for a brief loss of konnectivity-server, which does not
// make this one unready. A busy replica has as long as they have, because its probes have 2 s each.
func readiness(p component.Probe) *component.Probe {
	r := component.Readiness(p)
	r.Timeout, r.FailureThreshold = 2, 3
	return r
}

// stopSeconds is how long the program may take to stop: clients get the time of one flag to go elsewhere, then open
// connections that of another, and then watches and the last requests end.
func stopSeconds(a *v1alpha1.TunnelAPI) int64 {
	delay, drain := stopDelay, stopDrain
	for _, arg := range a.ExtraArgs {
		d, err := time.ParseDuration(arg.Value)
		switch name := strings.ReplaceAll(arg.Name, "_", "-"); {
		case err != nil:
		case name == "shutdown-delay-duration":
			delay = d
		case name == "connect-drain-timeout":
			drain = d
		}
	}
	return int64((delay + drain + stopRest).Seconds())
}

// Flags are all flags of the API server.
func Flags(b *v1alpha1.Bundle) []component.Flag {
	b = b.Defaulted()
	return append(OwnFlags(b), component.ExtraFlags(b.TunnelAPI.ExtraArgs)...)
}

// OwnFlags are the flags that the bundle sets and extraArgs may not.
func OwnFlags(b *v1alpha1.Bundle) []component.Flag {
	b = b.Defaulted()
	flags := []component.Flag{
		component.PortFlag("secure-port", PortAPI, b.TunnelAPI.Port),
		component.PathFlag("tls-cert-file", tlsDir+"/"+corev1.TLSCertKey),
		component.PathFlag("tls-private-key-file", tlsDir+"/"+corev1.TLSPrivateKeyKey),
		component.PlainFlag("konnectivity-server", StateURL(b)),
		component.PathFlag("konnectivity-server-ca-file", konnectivity.CAFile),
		component.PathFlag("konnectivity-server-token-file", stateDir+"/"+stateToken),
	}
	if Connects(b) {
		flags = append(flags, component.PlainFlag("connect", "true"))
	}
	return flags
}

// StateURL is where the Konnectivity servers show their state: at the host that agents dial, for which their certificate is.
func StateURL(b *v1alpha1.Bundle) string {
	b = b.Defaulted()
	return "https://" + net.JoinHostPort(b.Konnectivity.ServerHost, strconv.FormatInt(int64(b.TunnelAPI.StatePort), 10))
}

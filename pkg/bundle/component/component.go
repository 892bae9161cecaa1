// SPDX-License-Identifier: Apache-2.0

package component

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

// Component is one program and everything needed to run it.
type Component struct {
	// Name and Namespace of the object that runs it.
	Name, Namespace string
	// Binary is the base name of our own program, which local processes run.
	Binary string

	// Labels of the workload object and Selector of its Pods. PodLabels are the
	// Pods' labels and include Selector. PodAnnotations may be nil.
	Labels, Selector, PodLabels, PodAnnotations map[string]string

	// ContainerName, Image, Command describe the one container. Command is the
	// program's path in the image, and its subcommand if it has one, without flags.
	ContainerName, Image string
	Command              []string
	// Flags are passed in this order.
	Flags []Flag
	Ports []Port
	// Env is for values that only the Pod knows (the downward API).
	Env []corev1.EnvVar

	Liveness, Readiness *Probe
	Resources           corev1.ResourceRequirements
	Volumes             []Volume

	// ServiceAccount is the Pod's identity; empty for programs that bring a
	// kubeconfig, whose Pods get no token.
	ServiceAccount string
	PodSecurity    *corev1.PodSecurityContext
	Security       *corev1.SecurityContext

	HostNetwork bool
	// DNSPolicy may be empty. On the host network Kubernetes' default then means
	// the node's resolver, which knows no Services.
	DNSPolicy corev1.DNSPolicy
	// DNSConfig may be nil, for what DNSPolicy alone means.
	DNSConfig               *corev1.PodDNSConfig
	PriorityClass           string
	Tolerations             []corev1.Toleration
	NodeSelector            map[string]string
	Affinity                *corev1.Affinity
	TerminationGraceSeconds *int64

	// Replicas of the Deployment form.
	Replicas int32
	// Alone is for a Deployment whose Pods must not run at the same time: the old Pod
	// ends before the new one starts.
	Alone bool
	// MaxSurge and MaxUnavailable of the DaemonSet form's rolling update; nil means
	// Kubernetes' default.
	MaxSurge, MaxUnavailable *intstr.IntOrString
}

// Port is a port that the container listens on.
type Port struct {
	Name   string
	Number int32
	// Host also binds the port on the host; Pods of the host network only.
	Host bool
}

// Probe is an HTTP health check of a named port.
type Probe struct {
	Port, Path string
	// HTTPS probes with TLS, unverified as kubelets do.
	HTTPS bool
	// Host to probe; empty means the Pod's address.
	Host string
	// Delay before the first probe, Timeout of each, Period between two, all in
	// seconds; zero means Kubernetes' default.
	Delay, Timeout, Period int32
	// FailureThreshold in probes; zero means Kubernetes' default.
	FailureThreshold int32
}

// Readiness completes the readiness probe of any program here. They become ready
// within moments, when they are connected or their caches are filled. Rollouts,
// node by node, and bring-up would wait up to Kubernetes' default period of 10 s
// longer to notice, so the period is 1 s. With so short a period a brief loss of
// the server must not make the Pod unready, so the failure threshold is 6, twice
// Kubernetes' default of 3.
func Readiness(p Probe) *Probe {
	p.Path, p.Period, p.FailureThreshold = "/readyz", 1, 6
	return &p
}

// Volume is a volume and its mount. Exactly one source is set.
type Volume struct {
	Name, MountPath string
	ReadOnly        bool

	// HostPath is a path on the node of kind HostPathType.
	HostPath     string
	HostPathType corev1.HostPathType

	// ConfigMap is the name of one.
	ConfigMap string

	// Secret is the name of one.
	Secret string

	// Token is a projected service account token.
	Token *Token

	// API is what the Pod gets of its ServiceAccount. Kubernetes then mounts nothing
	// of it by itself.
	API *API
}

// API is a volume with ca.crt, which verifies kube-apiserver and whatever else has a
// certificate of the cluster's CA, and with a token for kube-apiserver if there is one.
type API struct {
	// TokenSeconds is how long a token is valid; the kubelet renews it in time. 0
	// means no token.
	TokenSeconds int64
}

// Token is a projected service account token.
type Token struct {
	// Audience that the token is good for, and Path of its file in the volume.
	Audience, Path string
	// ExpirationSeconds of the token; the kubelet renews it in time.
	ExpirationSeconds int64
}

// Kind says what the value of a flag is.
type Kind int

// The kinds of flags.
const (
	// Plain values mean the same everywhere.
	Plain Kind = iota
	// Path values are paths inside the container.
	Path
	// PortNumber values are numbers of the port named in Flag.Port.
	PortNumber
)

// Flag is one command line flag.
type Flag struct {
	// Name without dashes.
	Name, Value string
	Kind        Kind
	// Port is the name of the port, for kind PortNumber. It is the name that the
	// listening side gives it: the agent's --proxy-server-port names the server's
	// port "agentport".
	Port string
}

// String is the argument as programs get it.
func (f Flag) String() string { return "--" + f.Name + "=" + f.Value }

// PlainFlag makes a flag of kind Plain.
func PlainFlag(name, value string) Flag { return Flag{Name: name, Value: value} }

// BoolFlag makes a flag of kind Plain.
func BoolFlag(name string, value bool) Flag { return PlainFlag(name, strconv.FormatBool(value)) }

// IntFlag makes a flag of kind Plain.
func IntFlag(name string, value int32) Flag {
	return PlainFlag(name, strconv.FormatInt(int64(value), 10))
}

// PathFlag makes a flag of kind Path.
func PathFlag(name, value string) Flag { return Flag{Name: name, Value: value, Kind: Path} }

// PortFlag makes a flag of kind PortNumber for the port with that name.
func PortFlag(name, port string, number int32) Flag {
	return Flag{Name: name, Value: strconv.FormatInt(int64(number), 10), Kind: PortNumber, Port: port}
}

// ExtraFlags are the flags of a configuration's extraArgs.
func ExtraFlags(args []v1alpha1.Argument) []Flag {
	flags := make([]Flag, 0, len(args))
	for _, a := range args {
		flags = append(flags, PlainFlag(a.Name, a.Value))
	}
	return flags
}

// Args are flags as programs get them.
func Args(flags []Flag) []string {
	args := make([]string, 0, len(flags))
	for _, f := range flags {
		args = append(args, f.String())
	}
	return args
}

// Merge returns flags with extra put over them: a flag of the same name is
// replaced in place, every other one is appended.
func Merge(flags, extra []Flag) []Flag {
	out := append([]Flag(nil), flags...)
	for _, e := range extra {
		if i := index(out, e.Name); i >= 0 {
			out[i] = e
			continue
		}
		out = append(out, e)
	}
	return out
}

func index(flags []Flag, name string) int {
	for i, f := range flags {
		if f.Name == name {
			return i
		}
	}
	return -1
}

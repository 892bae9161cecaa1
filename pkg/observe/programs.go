// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"cmp"
	"maps"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/fairlead-dev/fairlead/pkg/check"
	"github.com/fairlead-dev/fairlead/pkg/check/incluster"
)

// Program is a running server, agent, scheduler or kube-apiserver: a Pod, or a process of a local cluster.
type Program struct {
	check.Program
	// Image and the fields below are of Pods.
	Image, Node, HostIP string
	Pod                 *corev1.Pod
	// Hosted means that it belongs to a control plane that runs as Pods in this cluster, for another one.
	Hosted bool
	// Container is the one that runs it: others of the Pod may run other programs.
	Container corev1.Container
}

// Key tells programs apart, also those of one Pod.
func (p Program) Key() string { return p.Name + "/" + p.Container.Name }

// Flag returns the last value of a flag, or what the program takes without it.
func (p Program) Flag(name, fallback string) string {
	value := fallback
	for i, arg := range p.Args {
		found, v, joined := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		if !strings.HasPrefix(arg, "-") || strings.ReplaceAll(found, "_", "-") != name {
			continue
		}
		switch {
		case joined:
			value = v
		case i+1 < len(p.Args) && !strings.HasPrefix(p.Args[i+1], "-"):
			value = p.Args[i+1]
		default:
			value = "true"
		}
	}
	return value
}

// Has reports whether the flag is set at all.
func (p Program) Has(name string) bool { return p.Flag(name, "\x00") != "\x00" }

// Of returns this cluster's programs of one role.
func Of(programs []Program, role check.Role) []Program {
	return slices.DeleteFunc(slices.Clone(programs), func(p Program) bool { return p.Role != role || p.Hosted })
}

// named are the programs that are recognized by their name, or that of their image if the container has no command.
var named = map[string]check.Role{
	"kube-apiserver": check.RoleAPIServer, "fairlead-operator": check.RoleOperator, "fairlead-apiserver": check.RoleTunnelAPI,
}

// roleOf recognizes a container by its program and flags.
func roleOf(c *corev1.Container, pod *corev1.Pod, names incluster.Names) check.Role {
	p := Program{Program: check.Program{Args: slices.Concat(c.Command, c.Args)}}
	program := ""
	if len(c.Command) > 0 {
		program = path.Base(c.Command[0])
	}
	image := imageName(c.Image)
	if role, ok := named[cmp.Or(program, image)]; ok {
		return role
	}
	switch {
	case cmp.Or(program, image) == "fairlead" && slices.Contains(p.Args, "socks5"):
		return check.RoleGateway
	case p.Has("proxy-server-host"), program == "proxy-agent", program == "konnectivity-agent":
		return check.RoleAgent
	case program == "proxy-server", program == "konnectivity-server", hasAny(image, "proxy-server", "konnectivity-server"), p.Has("agent-port") && p.Has("cluster-cert"):
		return check.RoleServer
	case hasAny(image, "proxy-agent", "konnectivity-agent"):
		return check.RoleAgent
	case program == "kube-scheduler" || hasAny(image, "scheduler") && p.Has("leader-elect"):
		if pod.Namespace == names.Namespace && selects(names.SchedulerPods, pod.Labels) {
			return check.RoleScheduler
		}
		return check.RoleOtherScheduler
	}
	return ""
}

func selects(selector string, set map[string]string) bool {
	s, err := labels.Parse(selector)
	return err == nil && selector != "" && s.Matches(labels.Set(set))
}

// imageName is the last part of an image's path, without tag and digest.
func imageName(image string) string {
	image, _, _ = strings.Cut(image, "@")
	image = image[strings.LastIndex(image, "/")+1:]
	name, _, _ := strings.Cut(image, ":")
	return name
}

// ImageTag is an image's tag, "" for none.
func ImageTag(image string) string {
	image, _, _ = strings.Cut(image, "@")
	_, tag, _ := strings.Cut(image[strings.LastIndex(image, "/")+1:], ":")
	return tag
}

// programsOf finds the programs among Pods. A Pod that has ended is none.
func programsOf(pods []corev1.Pod, names incluster.Names) []Program {
	var out []Program
	for i := range pods {
		pod := &pods[i]
		if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
			continue
		}
		for j := range pod.Spec.Containers {
			c := &pod.Spec.Containers[j]
			role := roleOf(c, pod, names)
			if role == "" {
				continue
			}
			p := Program{Program: check.Program{Role: role, Name: "Pod " + pod.Namespace + "/" + pod.Name, Args: slices.Concat(c.Command, c.Args)},
				Image: c.Image, Node: pod.Spec.NodeName, HostIP: pod.Status.HostIP, Pod: pod, Container: *c}
			p.state(c.Name)
			out = append(out, p)
		}
	}
	slices.SortStableFunc(out, func(a, b Program) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

func (p *Program) state(container string) {
	p.Problem = string(p.Pod.Status.Phase)
	for _, s := range p.Pod.Status.ContainerStatuses {
		if s.Name != container {
			continue
		}
		p.Ready, p.Restarts = s.Ready, int(s.RestartCount)
		switch {
		case s.State.Waiting != nil:
			p.Problem = strings.TrimSuffix(s.State.Waiting.Reason+": "+s.State.Waiting.Message, ": ")
		case s.State.Terminated != nil:
			p.Problem = strings.TrimSuffix("ended: "+s.State.Terminated.Reason+": "+s.State.Terminated.Message, ": ")
		case !s.Ready:
			p.Problem = "running, not ready"
		}
	}
	for _, c := range p.Pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			p.Problem = "not scheduled: " + c.Message
		}
	}
	if p.Ready {
		p.Problem = ""
	}
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

func sortedFloats(f []float64) []float64 { return slices.Sorted(slices.Values(f)) }

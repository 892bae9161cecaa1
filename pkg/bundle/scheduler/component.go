// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

const (
	// Binary is the base name of our own scheduler program.
	Binary = "fairlead-scheduler"
	// SecurePort names the port of health and metrics.
	SecurePort = "https"

	configHashAnnotation = "fairlead.dev/config-hash"
	nameLabel            = "app.kubernetes.io/name"
	configVolume         = "config-volume"
)

// ConfigPath is the scheduler's configuration file inside the container.
func ConfigPath(b *v1alpha1.Bundle) string {
	b = b.Defaulted()
	return configDir(b) + "/" + configKey(b)
}

func configDir(b *v1alpha1.Bundle) string { return "/etc/kubernetes/" + b.Scheduler.Name }
func configKey(b *v1alpha1.Bundle) string { return b.Scheduler.Name + "-config.yaml" }

// Component describes the second scheduler.
func Component(b *v1alpha1.Bundle) component.Component {
	b = b.Defaulted()
	s := &b.Scheduler
	c := component.Component{
		Name: s.Name, Namespace: b.Namespace, Binary: Binary,
		Labels: documentedLabels(), Selector: selector(b), PodLabels: podLabels(b),
		ContainerName: "kube-second-scheduler", Image: s.Image,
		Command: []string{"/usr/local/bin/kube-scheduler"},
		Flags:   Flags(b),
		Ports:   []component.Port{{Name: SecurePort, Number: s.SecurePort}},
		// Readiness says that caches are filled, not that the Lease is held: a
		// scheduler without the right to its Lease is ready and idle. Package check
		// looks at the Lease.
		Liveness:  &component.Probe{Port: SecurePort, Path: "/livez", HTTPS: true, Delay: 15},
		Readiness: component.Readiness(component.Probe{Port: SecurePort, HTTPS: true}),
		Volumes: []component.Volume{{
			Name: configVolume, MountPath: configDir(b), ReadOnly: true, ConfigMap: ConfigMapName(b),
		}},
		ServiceAccount: s.Name,
		PodSecurity:    component.RestrictedPod(), Security: component.RestrictedContainer(),
		PriorityClass: "system-cluster-critical",
		NodeSelector:  s.NodeSelector,
		Affinity:      component.SpreadHosts(instanceLabels(b)),
	}
	if s.Resources != nil {
		c.Resources = *s.Resources
	}
	if s.Replicas != nil {
		c.Replicas = *s.Replicas
	}
	c.Alone = !ptr.Deref(s.LeaderElection.LeaderElect, true)
	if s.Tolerations != nil {
		c.Tolerations = *s.Tolerations
	}
	return c
}

// documentedLabels are the labels of the Deployment in 'Configure Multiple
// Schedulers' in the Kubernetes documentation.
func documentedLabels() map[string]string {
	return map[string]string{"component": "scheduler", "tier": "control-plane"}
}

// selector has more labels than the documented selector. The documented labels
// are the same for all bundles in a namespace, so two Deployments would count and
// scale each other's Pods. A selector is immutable, so this cannot be fixed
// later.
func selector(b *v1alpha1.Bundle) map[string]string {
	labels := documentedLabels()
	maps.Copy(labels, instanceLabels(b))
	return labels
}

// instanceLabels tell the Pods of this scheduler from those of another bundle in
// the same namespace.
func instanceLabels(b *v1alpha1.Bundle) map[string]string {
	return map[string]string{nameLabel: b.Scheduler.Name}
}

func podLabels(b *v1alpha1.Bundle) map[string]string {
	labels := selector(b)
	labels["version"] = "second"
	return labels
}

// OwnFlags are the flags that the bundle sets, without extraArgs.
//
// The bundle sets CoordinatedLeaderElection=false although our program forces it
// off itself, because the image may be a stock kube-scheduler, and because a
// reader of the manifest should see it. With the gate on, kube-scheduler uses the
// Lease kube-scheduler whatever its configuration says.
func OwnFlags(b *v1alpha1.Bundle) []component.Flag {
	b = b.Defaulted()
	return []component.Flag{
		component.PathFlag("config", ConfigPath(b)),
		component.PortFlag("secure-port", SecurePort, b.Scheduler.SecurePort),
		component.PlainFlag("feature-gates", featureGates(b)),
	}
}

// Flags are all flags of the scheduler.
func Flags(b *v1alpha1.Bundle) []component.Flag {
	b = b.Defaulted()
	return append(OwnFlags(b), component.ExtraFlags(b.Scheduler.ExtraArgs)...)
}

// gatesOf returns all feature gates that the bundle passes to the scheduler.
func gatesOf(b *v1alpha1.Bundle) map[string]bool {
	gates := maps.Clone(b.Scheduler.FeatureGates)
	if gates == nil {
		gates = map[string]bool{}
	}
	gates[v1alpha1.GateCoordinatedLeaderElection] = false
	return gates
}

func featureGates(b *v1alpha1.Bundle) string {
	gates := gatesOf(b)
	var out []string
	for _, name := range slices.Sorted(maps.Keys(gates)) {
		out = append(out, fmt.Sprintf("%s=%t", name, gates[name]))
	}
	return strings.Join(out, ",")
}

// hash changes whenever the configuration does. On the Pod template it makes a
// changed ConfigMap roll out; kube-scheduler reads its file only once.
func hash(config []byte) string {
	sum := sha256.Sum256(config)
	return hex.EncodeToString(sum[:8])
}

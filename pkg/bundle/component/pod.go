// SPDX-License-Identifier: Apache-2.0

package component

import (
	"errors"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

// ErrNotStatic is returned for a component that cannot be a static Pod: the kubelet
// rejects static Pods that refer to API objects.
var ErrNotStatic = errors.New("cannot be a static Pod")

// StaticPod renders c as a static Pod, or fails with [ErrNotStatic].
func StaticPod(c Component) (*corev1.Pod, error) {
	if c.ServiceAccount != "" {
		return nil, fmt.Errorf("%s %w: it uses ServiceAccount %s; give it a kubeconfig from a hostPath instead",
			c.Name, ErrNotStatic, c.ServiceAccount)
	}
	for _, v := range c.Volumes {
		if v.HostPath == "" {
			return nil, fmt.Errorf("%s %w: volume %s comes from the API; put its content on the node and use a hostPath",
				c.Name, ErrNotStatic, v.Name)
		}
	}
	return &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: podMeta(c, metav1.ObjectMeta{Name: c.Name, Namespace: c.Namespace}),
		Spec:       podSpec(c),
	}, nil
}

// DaemonSet renders c as a DaemonSet.
func DaemonSet(c Component) *appsv1.DaemonSet {
	ds := &appsv1.DaemonSet{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "DaemonSet"},
		ObjectMeta: metav1.ObjectMeta{Name: c.Name, Namespace: c.Namespace, Labels: c.Labels},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: c.Selector},
			Template: template(c),
		},
	}
	if c.MaxSurge != nil || c.MaxUnavailable != nil {
		ds.Spec.UpdateStrategy = appsv1.DaemonSetUpdateStrategy{
			Type: appsv1.RollingUpdateDaemonSetStrategyType,
			RollingUpdate: &appsv1.RollingUpdateDaemonSet{
				MaxSurge: c.MaxSurge, MaxUnavailable: c.MaxUnavailable,
			},
		}
	}
	return ds
}

// Deployment renders c as a Deployment. It keeps the old Pods until new ones
// are ready, unless they must not run together.
func Deployment(c Component) *appsv1.Deployment {
	return &appsv1.Deployment{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
		ObjectMeta: metav1.ObjectMeta{Name: c.Name, Namespace: c.Namespace, Labels: c.Labels},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To(c.Replicas),
			Selector: &metav1.LabelSelector{MatchLabels: c.Selector},
			Template: template(c),
			Strategy: strategy(c),
		},
	}
}

func strategy(c Component) appsv1.DeploymentStrategy {
	if c.Alone {
		return appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}
	}
	return appsv1.DeploymentStrategy{
		Type: appsv1.RollingUpdateDeploymentStrategyType,
		RollingUpdate: &appsv1.RollingUpdateDeployment{
			MaxSurge: ptr.To(intstr.FromInt32(1)), MaxUnavailable: ptr.To(intstr.FromInt32(0)),
		},
	}
}

func template(c Component) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{ObjectMeta: podMeta(c, metav1.ObjectMeta{}), Spec: podSpec(c)}
}

func podMeta(c Component, m metav1.ObjectMeta) metav1.ObjectMeta {
	m.Labels, m.Annotations = c.PodLabels, c.PodAnnotations
	return m
}

func podSpec(c Component) corev1.PodSpec {
	spec := corev1.PodSpec{
		Containers:                    []corev1.Container{container(c)},
		ServiceAccountName:            c.ServiceAccount,
		SecurityContext:               c.PodSecurity,
		HostNetwork:                   c.HostNetwork,
		DNSPolicy:                     c.DNSPolicy,
		DNSConfig:                     c.DNSConfig,
		PriorityClassName:             c.PriorityClass,
		Tolerations:                   c.Tolerations,
		NodeSelector:                  c.NodeSelector,
		Affinity:                      c.Affinity,
		TerminationGracePeriodSeconds: c.TerminationGraceSeconds,
	}
	mountsAPI := slices.ContainsFunc(c.Volumes, func(v Volume) bool { return v.API != nil })
	if c.ServiceAccount == "" || mountsAPI {
		spec.AutomountServiceAccountToken = ptr.To(false)
	}
	for _, v := range c.Volumes {
		spec.Volumes = append(spec.Volumes, corev1.Volume{Name: v.Name, VolumeSource: volumeSource(v)})
	}
	return spec
}

func container(c Component) corev1.Container {
	ct := corev1.Container{
		Name: c.ContainerName, Image: c.Image, ImagePullPolicy: corev1.PullIfNotPresent,
		Command: c.Command, Args: Args(c.Flags), Env: c.Env,
		LivenessProbe: c.probe(c.Liveness), ReadinessProbe: c.probe(c.Readiness),
		Resources: c.Resources, SecurityContext: c.Security,
	}
	for _, p := range c.Ports {
		cp := corev1.ContainerPort{Name: p.Name, ContainerPort: p.Number, Protocol: corev1.ProtocolTCP}
		if p.Host {
			cp.HostPort = p.Number
		}
		ct.Ports = append(ct.Ports, cp)
	}
	for _, v := range c.Volumes {
		ct.VolumeMounts = append(ct.VolumeMounts,
			corev1.VolumeMount{Name: v.Name, MountPath: v.MountPath, ReadOnly: v.ReadOnly})
	}
	return ct
}

// probe uses the port's number, not its name, as in the Kubernetes
// documentation. A reader need not look it up.
func (c Component) probe(p *Probe) *corev1.Probe {
	if p == nil {
		return nil
	}
	scheme := corev1.URISchemeHTTP
	if p.HTTPS {
		scheme = corev1.URISchemeHTTPS
	}
	return &corev1.Probe{
		ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{
			Path: p.Path, Port: intstr.FromInt32(c.PortNumber(p.Port)), Host: p.Host, Scheme: scheme,
		}},
		InitialDelaySeconds: p.Delay, TimeoutSeconds: p.Timeout,
		PeriodSeconds: p.Period, FailureThreshold: p.FailureThreshold,
	}
}

// PortNumber is the number of the component's port with that name, 0 if it has
// none.
func (c Component) PortNumber(name string) int32 {
	for _, p := range c.Ports {
		if p.Name == name {
			return p.Number
		}
	}
	return 0
}

// certificateItems are what Pods get of the Secret of a certificate: not a CA's key that it may hold, nor anything of a Secret of another kind.
func certificateItems() []corev1.KeyToPath {
	return []corev1.KeyToPath{
		{Key: corev1.TLSCertKey, Path: corev1.TLSCertKey}, {Key: corev1.TLSPrivateKeyKey, Path: corev1.TLSPrivateKeyKey},
	}
}

func volumeSource(v Volume) corev1.VolumeSource {
	switch {
	case v.ConfigMap != "":
		return corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: v.ConfigMap}}}
	case v.Secret != "":
		return corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: v.Secret, Items: certificateItems()}}
	case v.Token != nil:
		return corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
			Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{
				Audience: v.Token.Audience, Path: v.Token.Path,
				ExpirationSeconds: ptr.To(v.Token.ExpirationSeconds)}}}}}
	case v.API != nil:
		return corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: apiSources(v.API)}}
	default:
		source := &corev1.HostPathVolumeSource{Path: v.HostPath}
		if v.HostPathType != "" {
			source.Type = ptr.To(v.HostPathType)
		}
		return corev1.VolumeSource{HostPath: source}
	}
}

// apiSources are named as in the volume that Kubernetes mounts by itself, so that clients
// find them. kube-controller-manager puts the ConfigMap into each namespace.
func apiSources(a *API) []corev1.VolumeProjection {
	sources := []corev1.VolumeProjection{{ConfigMap: &corev1.ConfigMapProjection{
		LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"},
		Items:                []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}},
	}}}
	if a.TokenSeconds == 0 {
		return sources
	}
	return append(sources, corev1.VolumeProjection{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{
		Path: "token", ExpirationSeconds: ptr.To(a.TokenSeconds)}})
}

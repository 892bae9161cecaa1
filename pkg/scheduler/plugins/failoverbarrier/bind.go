// SPDX-License-Identifier: Apache-2.0

package failoverbarrier

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	"k8s.io/kubernetes/pkg/scheduler/util"
)

// profile is the part of a framework that fwk.Handle does not have.
type profile interface {
	ListPlugins() *config.Plugins
	WillWaitOnPermit(ctx context.Context, pod *corev1.Pod) bool
}

var _ profile = framework.Framework(nil)

// PreBindPreFlight implements fwk.PreBindPlugin. For pods that no other plugin prepares anything for, it is the last
// check before the binding: if it reported work to do, the scheduler would first write the nominated node into the pod's
// status, with one request for each pod. If other plugins may take time, the scheduler writes that anyway, and PreBind
// checks again after them.
func (p *Plugin) PreBindPreFlight(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, node string) (*fwk.PreBindPreFlightResult, *fwk.Status) {
	if status := p.PreBind(ctx, state, pod, node); !status.IsSuccess() {
		return nil, status
	}
	if p.takesTime(ctx, pod) {
		return nil, nil
	}
	return nil, fwk.NewStatus(fwk.Skip)
}

// PreBind rejects a pod whose node was chosen before a suspension.
func (p *Plugin) PreBind(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, _ string) *fwk.Status {
	before, err := state.Read(stateKey)
	if err != nil || before == stamp(p.pulse.look()) {
		return nil // without PreFilter in the profile there is nothing to compare with
	}
	p.putBack(ctx, pod)
	return fwk.NewStatus(fwk.Error, suspended)
}

// takesTime says whether anything may be done for the pod between the choice of its node and its binding: a Permit
// plugin makes it wait, or a PreBind plugin has something to prepare.
func (p *Plugin) takesTime(ctx context.Context, pod *corev1.Pod) bool {
	if p.othersPrepare() || len(pod.Spec.ResourceClaims) > 0 || slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
		return v.PersistentVolumeClaim != nil || v.Ephemeral != nil
	}) {
		return true
	}
	own, ok := p.handle.(profile)
	return !ok || own.WillWaitOnPermit(ctx, pod) || p.allocates(pod)
}

// allocates says whether DynamicResources makes a claim for the pod that it does not name: for extended resources that
// a DeviceClass stands for.
func (p *Plugin) allocates(pod *corev1.Pod) bool {
	manager := p.handle.SharedDRAManager()
	if manager == nil {
		return false
	}
	asks := func(c corev1.Container) bool {
		for name, quantity := range c.Resources.Requests {
			if util.IsDRAExtendedResourceName(name) && !quantity.IsZero() && manager.DeviceClassResolver().GetDeviceClass(name) != nil {
				return true
			}
		}
		return false
	}
	return slices.ContainsFunc(pod.Spec.Containers, asks) || slices.ContainsFunc(pod.Spec.InitContainers, asks)
}

// prepareOthers says whether the profile has PreBind plugins for which takesTime cannot tell whether they have work for
// a pod. The plugin calls it after all plugins are created.
func (p *Plugin) prepareOthers() bool {
	own, ok := p.handle.(profile)
	if !ok {
		return true
	}
	var order []string
	for _, plugin := range own.ListPlugins().PreBind.Enabled {
		order = append(order, plugin.Name)
	}
	if behind := order[slices.Index(order, Name)+1:]; len(behind) > 0 {
		klog.FromContext(p.ctx).Error(nil, "PreBind plugins run behind the barrier's, which does not look again after them: "+
			"enable them under multiPoint ahead of "+Name, "profile", p.handle.ProfileName(), "plugins", strings.Join(behind, ", "))
	}
	return slices.ContainsFunc(order, func(name string) bool {
		return name != Name && name != names.VolumeBinding && name != names.DynamicResources
	})
}

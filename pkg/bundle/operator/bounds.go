// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

// Names of the operator's flags that set [Bounds].
const (
	FlagAllowHostAccess        = "allow-host-access"
	FlagAllowedImages          = "allowed-images"
	FlagAllowedExtraArgs       = "allowed-extra-args"
	FlagAllowedResources       = "allowed-resources"
	FlagAllowedSecrets         = "allowed-secrets"
	FlagAllowedServiceAccounts = "allowed-service-accounts"
)

// Bounds are what objects of the API may ask the operator for. A file on an administrator's disk has none: who may write a
// Bundle need not be an administrator. The zero value allows nothing beyond the defaults of a Bundle, and is the default.
type Bounds struct {
	// HostAccess allows servers as a DaemonSet, which mounts paths of control plane nodes and runs as root; static Pods, whose fields
	// name such paths; and Pods in the network of the node.
	HostAccess bool
	// Images are allowed besides those of this release: a repository, or a prefix that ends with "/". A repository is allowed with
	// every tag and digest.
	Images []string
	// ExtraArgs are names of flags that extraArgs may have besides v and vmodule, without dashes.
	ExtraArgs []string
	// Resources are names that resources may have besides cpu, memory and ephemeral-storage.
	Resources []string
	// Secrets may be named as certificateSecret besides the defaults.
	Secrets []string
	// ServiceAccounts may be named as agentServiceAccount besides the default.
	ServiceAccounts []string
}

// lists are the flags with several values.
func (o *Bounds) lists() map[string]*[]string {
	return map[string]*[]string{
		FlagAllowedImages: &o.Images, FlagAllowedExtraArgs: &o.ExtraArgs, FlagAllowedResources: &o.Resources,
		FlagAllowedSecrets: &o.Secrets, FlagAllowedServiceAccounts: &o.ServiceAccounts,
	}
}

// BoundsUsage says what each flag of [Bounds] does.
var BoundsUsage = map[string]string{
	FlagAllowHostAccess:        "let Bundles and TunnelPools use control plane nodes and nodes' networks: servers as a DaemonSet, static Pods, hostNetwork. A user who may change Bundles can then become root on these nodes",
	FlagAllowedImages:          `images that Bundles and TunnelPools may name besides those of this release: repositories, or prefixes that end with "/"`,
	FlagAllowedExtraArgs:       "flags that Bundles may set with extraArgs besides v and vmodule, without dashes",
	FlagAllowedResources:       "resources that Bundles and TunnelPools may ask for besides cpu, memory and ephemeral-storage",
	FlagAllowedSecrets:         "Secrets that Bundles may name as certificateSecret besides the defaults",
	FlagAllowedServiceAccounts: "ServiceAccounts that Bundles may name as agentServiceAccount besides the default",
}

// harmlessArgs set how much a program logs.
var harmlessArgs = []string{"v", "vmodule"}

// FlagSet is what AddFlags needs of a pflag.FlagSet.
type FlagSet interface {
	BoolVar(p *bool, name string, value bool, usage string)
	StringSliceVar(p *[]string, name string, value []string, usage string)
}

// AddFlags binds the flags. Their names begin with prefix.
func (o *Bounds) AddFlags(f FlagSet, prefix string) {
	f.BoolVar(&o.HostAccess, prefix+FlagAllowHostAccess, o.HostAccess, BoundsUsage[FlagAllowHostAccess])
	for name, list := range o.lists() {
		f.StringSliceVar(list, prefix+name, *list, BoundsUsage[name])
	}
}

// flags are those of the program that are not the default, sorted.
func (o Bounds) flags() []component.Flag {
	var out []component.Flag
	if o.HostAccess {
		out = append(out, component.BoolFlag(FlagAllowHostAccess, true))
	}
	for name, list := range o.lists() {
		if len(*list) > 0 {
			out = append(out, component.PlainFlag(name, strings.Join(*list, ",")))
		}
	}
	slices.SortFunc(out, func(a, b component.Flag) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// Validate refuses values that would allow everything, or nothing.
func (o Bounds) Validate() error {
	lists := o.lists()
	for _, name := range slices.Sorted(maps.Keys(lists)) {
		for _, v := range *lists[name] {
			if strings.Trim(v, "/") == "" || strings.ContainsAny(v, " \t\n,*") {
				return fmt.Errorf("--%s: %q is no name: give names without blanks, commas and wildcards, or leave the flag out", name, v)
			}
			if name == FlagAllowedExtraArgs && strings.HasPrefix(v, "-") {
				return fmt.Errorf("--%s: %q: leave out the dashes", name, v)
			}
		}
	}
	return nil
}

// Check returns what a Bundle asks for and the bounds do not allow, by its fields and with the flag that would allow it.
func (o Bounds) Check(b *v1alpha1.Bundle) field.ErrorList {
	b = b.Defaulted()
	spec := field.NewPath("spec")
	errs := append(o.checkHostAccess(b, spec), o.checkNames(b, spec)...)
	k, scheduler, server, agent := &b.Konnectivity, spec.Child("scheduler"), spec.Child("konnectivity", "server"), spec.Child("konnectivity", "agent")
	for _, c := range []struct {
		at        *field.Path
		image     string
		resources *corev1.ResourceRequirements
		args      []v1alpha1.Argument
	}{
		{scheduler, b.Scheduler.Image, b.Scheduler.Resources, b.Scheduler.ExtraArgs},
		{server, k.Server.Image, k.Server.Resources, k.Server.ExtraArgs},
		{agent, k.Agent.Image, k.Agent.Resources, k.Agent.ExtraArgs},
		{spec.Child("gateway"), b.Gateway.Image, b.Gateway.Resources, b.Gateway.ExtraArgs},
		{spec.Child("tunnelAPI"), b.TunnelAPI.Image, b.TunnelAPI.Resources, b.TunnelAPI.ExtraArgs},
	} {
		if c.image != "" && !o.allowsImage(c.image) {
			errs = append(errs, forbidden(c.at.Child("image"), FlagAllowedImages, c.image))
		}
		errs = append(errs, o.checkResources(c.resources, c.at.Child("resources"))...)
		for i, a := range c.args {
			if !slices.Contains(harmlessArgs, a.Name) && !slices.Contains(o.ExtraArgs, a.Name) {
				errs = append(errs, forbidden(c.at.Child("extraArgs").Index(i).Child("name"), FlagAllowedExtraArgs, a.Name))
			}
		}
	}
	return errs
}

func (o Bounds) checkHostAccess(b *v1alpha1.Bundle, spec *field.Path) (errs field.ErrorList) {
	if o.HostAccess {
		return nil
	}
	refuse := func(is bool, at *field.Path, value any) {
		if is {
			errs = append(errs, forbidden(at, FlagAllowHostAccess, value))
		}
	}
	k := b.Konnectivity
	refuse(k.Server.Form == v1alpha1.FormDaemonSet, spec.Child("konnectivity", "server", "form"), k.Server.Form)
	refuse(ptr.Deref(k.Agent.HostNetwork, false), spec.Child("konnectivity", "agent", "hostNetwork"), true)
	refuse(b.Scheduler.Form == v1alpha1.FormStaticPod, spec.Child("scheduler", "form"), b.Scheduler.Form)
	refuse(b.Gateway.Form == v1alpha1.FormStaticPod, spec.Child("gateway", "form"), b.Gateway.Form)
	return errs
}

// checkNames looks at the names of objects that Pods get.
func (o Bounds) checkNames(b *v1alpha1.Bundle, spec *field.Path) (errs field.ErrorList) {
	for _, c := range []struct {
		at          *field.Path
		name, usual string
		allowed     []string
		flag        string
	}{
		{spec.Child("konnectivity", "agentServiceAccount"), b.Konnectivity.AgentServiceAccount, v1alpha1.New().Defaulted().Konnectivity.AgentServiceAccount, o.ServiceAccounts, FlagAllowedServiceAccounts},
		{spec.Child("gateway", "certificateSecret"), b.Gateway.CertificateSecret, v1alpha1.DefaultGatewaySecret, o.Secrets, FlagAllowedSecrets},
		{spec.Child("tunnelAPI", "certificateSecret"), b.TunnelAPI.CertificateSecret, v1alpha1.DefaultTunnelAPISecret, o.Secrets, FlagAllowedSecrets},
	} {
		if c.name != "" && c.name != c.usual && !slices.Contains(c.allowed, c.name) {
			errs = append(errs, forbidden(c.at, c.flag, c.name))
		}
	}
	return errs
}

func (o Bounds) checkResources(r *corev1.ResourceRequirements, at *field.Path) (errs field.ErrorList) {
	if r == nil {
		return nil
	}
	for _, which := range []string{"limits", "requests"} {
		list := r.Limits
		if which == "requests" {
			list = r.Requests
		}
		for _, name := range slices.Sorted(maps.Keys(list)) { // in one order, or the condition would change with each look
			usual := name == corev1.ResourceCPU || name == corev1.ResourceMemory || name == corev1.ResourceEphemeralStorage
			if !usual && !slices.Contains(o.Resources, string(name)) {
				errs = append(errs, forbidden(at.Child(which).Key(string(name)), FlagAllowedResources, name))
			}
		}
	}
	for i, c := range r.Claims {
		errs = append(errs, field.Forbidden(at.Child("claims").Index(i), fmt.Sprintf("the operator gives no Pod a resource claim, here %q: remove it", c.Name)))
	}
	return errs
}

// allowsImage reports whether an image is of an allowed repository.
func (o Bounds) allowsImage(image string) bool {
	repository := image
	if at := strings.IndexByte(repository, '@'); at >= 0 {
		repository = repository[:at]
	}
	if colon := strings.LastIndexByte(repository, ':'); colon > strings.LastIndexByte(repository, '/') {
		repository = repository[:colon]
	}
	for _, own := range []string{v1alpha1.DefaultSchedulerImage, v1alpha1.DefaultServerImage, v1alpha1.DefaultAgentImage, v1alpha1.DefaultGatewayImage, v1alpha1.DefaultTunnelAPIImage} {
		if image == own {
			return true
		}
	}
	return slices.ContainsFunc(o.Images, func(allowed string) bool {
		return repository == allowed || strings.HasSuffix(allowed, "/") && strings.HasPrefix(repository, allowed) && !strings.Contains(repository, "..")
	})
}

func forbidden(at *field.Path, flag string, value any) *field.Error {
	allow := fmt.Sprintf("--%s=%v", flag, value)
	return field.Forbidden(at, fmt.Sprintf("the operator does not allow %v: remove the field, or have an administrator start the operator with %s", value, allow))
}

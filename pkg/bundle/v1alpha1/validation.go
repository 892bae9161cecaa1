// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
)

// Validate checks a defaulted bundle. Every error names the field, its value and
// what to do. A part that is not enabled is not checked.
func Validate(b *Bundle) field.ErrorList {
	spec := field.NewPath("spec")
	errs := dnsLabel(b.Namespace, spec.Child("namespace"))
	errs = append(errs, validateAggregation(&b.Aggregation, spec.Child("aggregation"))...)
	errs = append(errs, validatePKI(&b.PKI, spec.Child("pki"))...)
	errs = append(errs, validateControlPlane(&b.ControlPlane, spec.Child("controlPlane"))...)
	if ptr.Deref(b.Scheduler.Enabled, true) {
		errs = append(errs, validateScheduler(&b.Scheduler, spec.Child("scheduler"))...)
	}
	if ptr.Deref(b.Konnectivity.Enabled, true) {
		errs = append(errs, validateKonnectivity(b, spec.Child("konnectivity"))...)
	}
	if ptr.Deref(b.Gateway.Enabled, false) {
		errs = append(errs, validateGateway(b, field.NewPath("gateway"))...)
	}
	if ptr.Deref(b.TunnelAPI.Enabled, false) {
		errs = append(errs, validateTunnelAPI(b, spec.Child("tunnelAPI"))...)
	}
	return append(errs, validateNames(b)...)
}

// validateNames refuses two parts that would render objects of one name.
func validateNames(b *Bundle) field.ErrorList {
	if ptr.Deref(b.Gateway.Enabled, false) && ptr.Deref(b.Scheduler.Enabled, true) && b.Scheduler.Name == GatewayName {
		return field.ErrorList{field.Invalid(field.NewPath("scheduler", "name"), b.Scheduler.Name, "is the name of the gateway's objects; choose another")}
	}
	if ptr.Deref(b.TunnelAPI.Enabled, false) && ptr.Deref(b.Scheduler.Enabled, true) && b.Scheduler.Name == TunnelAPIName {
		return field.ErrorList{field.Invalid(field.NewPath("spec", "scheduler", "name"), b.Scheduler.Name, "is the name of the objects of the tunnel's API server; choose another")}
	}
	if !ptr.Deref(b.Scheduler.Enabled, true) || !ptr.Deref(b.Konnectivity.Enabled, true) {
		return nil
	}
	taken := []string{DefaultAgentServiceAccount, DefaultServerService, b.Konnectivity.AgentServiceAccount}
	if slices.Contains(taken, b.Scheduler.Name) {
		return field.ErrorList{field.Invalid(field.NewPath("spec", "scheduler", "name"), b.Scheduler.Name,
			"is the name of an object of the Konnectivity part; choose another")}
	}
	return nil
}

func validateAggregation(a *Aggregation, p *field.Path) field.ErrorList {
	var errs field.ErrorList
	names := p.Child("allowedNames")
	if len(a.AllowedNames) == 0 {
		errs = append(errs, field.Required(names,
			"an empty list would accept every certificate of the front proxy CA; remove the field for the default"))
	}
	for i, name := range a.AllowedNames {
		switch {
		case strings.TrimSpace(name) == "" || strings.Contains(name, ","):
			errs = append(errs, field.Invalid(names.Index(i), name, "must be one common name, not blank and without a comma"))
		case slices.Contains(a.AllowedNames[:i], name):
			errs = append(errs, field.Duplicate(names.Index(i), name))
		}
	}
	return errs
}

func validatePKI(c *PKI, p *field.Path) field.ErrorList {
	var errs field.ErrorList
	if algorithms := []KeyAlgorithm{KeyRSA2048, KeyECDSAP256}; !slices.Contains(algorithms, c.Algorithm) {
		errs = append(errs, field.NotSupported(p.Child("algorithm"), c.Algorithm, algorithms))
	}
	errs = append(errs, positive(c.Validity, p.Child("validity"))...)
	return append(errs, positive(c.CAValidity, p.Child("caValidity"))...)
}

func positive(d *metav1.Duration, p *field.Path) field.ErrorList {
	if d != nil && d.Duration > 0 {
		return nil
	}
	return field.ErrorList{field.Invalid(p, duration(d), "must be greater than zero, such as 9000h")}
}

func duration(d *metav1.Duration) string {
	return ptr.Deref(d, metav1.Duration{}).Round(time.Millisecond).String()
}

func validateControlPlane(c *ControlPlane, p *field.Path) field.ErrorList {
	errs := absolute(c.PKIDir, p.Child("pkiDir"))
	errs = append(errs, absolute(c.ManifestsDir, p.Child("manifestsDir"))...)
	file := p.Child("egressSelectorFile")
	if e := absolute(c.EgressSelectorFile, file); len(e) > 0 {
		return append(errs, e...)
	}
	return append(errs, ownDirectory(c.EgressSelectorFile, c, file)...)
}

// absolute wants a clean absolute path without what separates fields in mounts.
func absolute(name string, p *field.Path) field.ErrorList {
	if !path.IsAbs(name) || path.Clean(name) != name || name == "/" || strings.ContainsAny(name, ":\n") {
		return field.ErrorList{field.Invalid(p, name,
			"must be an absolute path without .., trailing slash or colon, such as "+DefaultPKIDir)}
	}
	return nil
}

// sharedDirectories hold other things too: mounting one of them into
// kube-apiserver would show it more than it needs, and hide what it has there.
var sharedDirectories = []string{"/", "/etc", "/etc/kubernetes", "/run", "/var", "/var/run", "/var/lib", "/tmp", "/usr", "/opt", "/root", "/home"}

// ownDirectory wants a file in a separate directory, since that directory is
// mounted.
func ownDirectory(name string, c *ControlPlane, p *field.Path) field.ErrorList {
	dir := path.Dir(name)
	if slices.Contains(sharedDirectories, dir) || dir == c.PKIDir || dir == c.ManifestsDir {
		return field.ErrorList{field.Invalid(p, name,
			fmt.Sprintf("its directory %s is mounted and holds other things too; use a separate directory below it", dir))}
	}
	return nil
}

// below wants a file in a directory that is mounted already.
func below(name, dir string, p *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(p, "give the file's path")}
	}
	if errs := absolute(name, p); len(errs) > 0 {
		return errs
	}
	if !strings.HasPrefix(name, dir+"/") {
		return field.ErrorList{field.Invalid(p, name,
			fmt.Sprintf("must be below controlPlane.pkiDir (%s), which is what is mounted; move the file there", dir))}
	}
	return nil
}

func dnsLabel(name string, p *field.Path) field.ErrorList {
	return invalidFor(p, name, validation.IsDNS1123Label(name))
}

func dnsSubdomain(name string, p *field.Path) field.ErrorList {
	return invalidFor(p, name, validation.IsDNS1123Subdomain(name))
}

func invalidFor(p *field.Path, value string, problems []string) field.ErrorList {
	var errs field.ErrorList
	for _, problem := range problems {
		errs = append(errs, field.Invalid(p, value, problem))
	}
	return errs
}

func image(name string, p *field.Path) field.ErrorList {
	if strings.ContainsAny(name, " \t\n") {
		return field.ErrorList{field.Invalid(p, name, "must be an image name without blanks, such as "+DefaultServerImage)}
	}
	return nil
}

func atLeastOne(n *int32, p *field.Path, hint string) field.ErrorList {
	if v := ptr.Deref(n, 0); v < 1 {
		return field.ErrorList{field.Invalid(p, v, "must be at least 1; "+hint)}
	}
	return nil
}

func port(n int32, p *field.Path) field.ErrorList {
	if n < MinPort || n > MaxPort {
		return field.ErrorList{field.Invalid(p, n,
			fmt.Sprintf("must be between %d and %d: below are reserved ports, above are ephemeral ones", MinPort, MaxPort))}
	}
	return nil
}

func nodeSelector(labels map[string]string, p *field.Path) field.ErrorList {
	return metav1validation.ValidateLabels(labels, p)
}

func tolerations(list *Tolerations, p *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, t := range ptr.Deref(list, nil) {
		switch t.Operator {
		case corev1.TolerationOpExists:
			if t.Value != "" {
				errs = append(errs, field.Invalid(p.Index(i).Child("value"), t.Value, "must be empty with operator Exists"))
			}
		case corev1.TolerationOpEqual, "":
			if t.Key == "" {
				errs = append(errs, field.Required(p.Index(i).Child("key"), "only operator Exists may leave it out"))
			}
		default:
			errs = append(errs, field.NotSupported(p.Index(i).Child("operator"), t.Operator,
				[]corev1.TolerationOperator{corev1.TolerationOpExists, corev1.TolerationOpEqual}))
		}
		effects := []corev1.TaintEffect{"", corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute}
		if !slices.Contains(effects, t.Effect) {
			errs = append(errs, field.NotSupported(p.Index(i).Child("effect"), t.Effect, effects[1:]))
		}
	}
	return errs
}

func resources(r *corev1.ResourceRequirements, p *field.Path) field.ErrorList {
	var errs field.ErrorList
	if r == nil {
		return nil
	}
	for name, request := range r.Requests {
		at := p.Child("requests").Key(string(name))
		if request.Sign() < 0 {
			errs = append(errs, field.Invalid(at, request.String(), "must not be negative"))
		}
		if limit, ok := r.Limits[name]; ok && limit.Cmp(request) < 0 {
			errs = append(errs, field.Invalid(at, request.String(), "must not exceed the limit "+limit.String()))
		}
	}
	return errs
}

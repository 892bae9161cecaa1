// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/internal/testutil"
	"github.com/fairlead-dev/fairlead/pkg/apis/fairlead/v1beta1"
	operatorbundle "github.com/fairlead-dev/fairlead/pkg/bundle/operator"
	config "github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
	"github.com/fairlead-dev/fairlead/pkg/operator"
)

// auditPolicy logs the requests of the operator.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: Metadata, users: ["system:serviceaccount:fairlead-system:fairlead-operator"]}
- level: None
`

// right is what one rule of a role allows: one verb for one resource, in all namespaces or in one, for all names or for one.
type right struct{ namespace, verb, group, resource, name string }

func (r right) String() string {
	text := r.verb + " " + r.resource
	if r.group != "" {
		text += "." + r.group
	}
	if r.namespace != "" {
		text += " in " + r.namespace
	}
	if r.name != "" {
		text += " named " + r.name
	}
	return text
}

// covers reports whether the right allows another one.
func (r right) covers(other right) bool {
	return r.verb == other.verb && r.group == other.group && r.resource == other.resource &&
		(r.namespace == "" || r.namespace == other.namespace) && (r.name == "" || r.name == other.name)
}

func rightsOf(namespace string, rules []rbacv1.PolicyRule) (out []right) {
	for _, rule := range rules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					for _, name := range append(slices.Clone(rule.ResourceNames), make([]string, 1)...)[:max(1, len(rule.ResourceNames))] {
						out = append(out, right{namespace, verb, group, resource, name})
					}
				}
			}
		}
	}
	return out
}

// audited are the requests in an audit log: what was allowed and what was refused.
type audited struct{ allowed, refused map[right]bool }

// readAudit reads the log so far.
func readAudit(t *testing.T, file string) audited {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	a := audited{map[right]bool{}, map[right]bool{}}
	for line := range bytes.Lines(data) {
		var event auditv1.Event
		if err := json.Unmarshal(line, &event); err != nil {
			continue // the last line is being written
		}
		o := event.ObjectRef
		if o == nil {
			continue // discovery, which all users may read
		}
		r := right{o.Namespace, event.Verb, o.APIGroup, strings.TrimSuffix(o.Resource+"/"+o.Subresource, "/"), o.Name}
		if event.Annotations["authorization.k8s.io/decision"] != "allow" || event.ResponseStatus != nil && event.ResponseStatus.Code == http.StatusForbidden {
			a.refused[r] = true
			continue
		}
		a.allowed[r] = true
		// Server-side apply of an object that is not there takes the right to create it as well, for its name.
		if r.verb == "patch" && event.ResponseStatus != nil && event.ResponseStatus.Code == http.StatusCreated {
			r.verb = "create"
			a.allowed[r] = true
		}
	}
	return a
}

// unused are the rights of the operator that no request of TestLeastRights needs, and why it has them nevertheless.
var unused = map[string]string{
	"get bundles.fairlead.dev":     readAgain,
	"get tunnelpools.fairlead.dev": readAgain,
	"list customresourcedefinitions.apiextensions.k8s.io named bundles.fairlead.dev":           noWatchList,
	"list customresourcedefinitions.apiextensions.k8s.io named schedulerprofiles.fairlead.dev": noWatchList,
	"list customresourcedefinitions.apiextensions.k8s.io named tunnelpools.fairlead.dev":       noWatchList,
	"list daemonsets.apps":  noWatchList,
	"list deployments.apps": noWatchList,
	"list secrets in fairlead-system named fairlead-operator-webhook":                        noWatchList,
	"patch bundles/status.fairlead.dev":                                                      asPools,
	"patch customresourcedefinitions/status.apiextensions.k8s.io named bundles.fairlead.dev": asPools,
	"patch events in fairlead-system":                                                        repeated,
	"patch events.events.k8s.io":                                                             repeated,
}

// Reasons in unused.
const (
	readAgain   = "a migration reads an object again that another client has written meanwhile"
	noWatchList = "a watch begins with a list if the API server does not send the objects with the watch, as older ones do not"
	asPools     = "a migration of Bundles needs what the migration of TunnelPools has used"
	repeated    = "an event that repeats is patched"
)

// declined are the requests that the operator sends although it has no right to them.
var declined = map[string]string{
	"list namespaces": "asks whether the API server still applies admission policies, and waits a fixed time if it may not",
}

// TestLeastRights: an operator that does all it can do has, by the API server's audit log, no request refused, and has used all
// its rights, but for those that Kubernetes wants to see before it lets a user grant them.
func TestLeastRights(t *testing.T) {
	testutil.Full(t, "audits all that the operator does; TestInstalled shows that no right is missing")
	daemontest.Beside(t)
	dir := t.TempDir()
	policy, log := filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "audit.log")
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
		t.Fatal(err)
	}
	metrics := "127.0.0.1:" + daemontest.Ports(t, 1)[0]
	e, _ := installedIn(start(t, "--audit-policy-file="+policy, "--audit-log-path="+log), func(o *operator.Options) {
		o.MetricsAddress, o.WebhookService = metrics, operatorbundle.Name
	})
	rights := e.operatorRights()
	t.Run("metrics", func(t *testing.T) { testMetrics(t, e, metrics) })
	t.Run("migrated", func(t *testing.T) { e.T = t; testMigrated(e) })
	t.Run("refused", func(t *testing.T) { e.T = t; testRefused(e) })
	e.T = t
	e.applyEverything()
	granted := e.granted(readAudit(t, log))
	e.renewed()
	e.delete()
	e.gone()
	e.nothingLeft()
	seen := readAudit(t, log)

	left := map[string]bool{}
	for _, r := range rights {
		used := func(other right) bool { return r.covers(other) }
		if !slices.ContainsFunc(slices.Collect(maps.Keys(seen.allowed)), used) && !slices.ContainsFunc(granted, used) {
			left[r.String()] = true
		}
	}
	compare(t, "no request has used the right to", left, unused)
	refused := map[string]bool{}
	for r := range seen.refused {
		refused[r.String()] = true
	}
	compare(t, "the API server has refused to", refused, declined)
	if len(seen.allowed) < 100 {
		t.Errorf("the log has %d requests only", len(seen.allowed))
	}
}

// compare reports what was found without an exception, and exceptions that were not found.
func compare(t *testing.T, what string, found map[string]bool, exceptions map[string]string) {
	t.Helper()
	for _, text := range slices.Sorted(maps.Keys(found)) {
		if exceptions[text] == "" {
			t.Errorf("%s %s", what, text)
		}
	}
	for text := range exceptions {
		if !found[text] {
			t.Errorf("remove the exception %q: nothing needs it", text)
		}
	}
}

// operatorRights are those of all roles that the operator has.
func (e *env) operatorRights() (rights []right) {
	e.Helper()
	cluster, err := e.client.RbacV1().ClusterRoles().Get(e.Context(), operatorbundle.Name, metav1.GetOptions{})
	if err != nil {
		e.Fatal(err)
	}
	rights = rightsOf("", cluster.Rules)
	for _, namespace := range []string{metav1.NamespaceSystem, operatorbundle.DefaultNamespace} {
		role, err := e.client.RbacV1().Roles(namespace).Get(e.Context(), operatorbundle.Name, metav1.GetOptions{})
		if err != nil {
			e.Fatal(err)
		}
		rights = append(rights, rightsOf(namespace, role.Rules)...)
	}
	return rights
}

// granted are the rights that the roles have which the operator has created, and those to bind roles that others have created.
func (e *env) granted(a audited) (rights []right) {
	e.Helper()
	created := func(resource string) (list []right) {
		for r := range a.allowed {
			if r.verb == "create" && r.group == rbacv1.GroupName && r.resource == resource {
				list = append(list, r)
			}
		}
		return list
	}
	client, own := e.client.RbacV1(), map[rbacv1.RoleRef]bool{}
	add := func(kind, namespace, name string, rules []rbacv1.PolicyRule) {
		own[rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: name}] = true
		for _, r := range rightsOf(namespace, rules) {
			r.name = "" // the operator's roles leave out these names, which depend on the Bundle
			rights = append(rights, r)
		}
	}
	for _, r := range created("clusterroles") {
		role, err := client.ClusterRoles().Get(e.Context(), r.name, metav1.GetOptions{})
		if err != nil {
			e.Fatal(err)
		}
		add("ClusterRole", "", role.Name, role.Rules)
	}
	for _, r := range created("roles") {
		role, err := client.Roles(r.namespace).Get(e.Context(), r.name, metav1.GetOptions{})
		if err != nil {
			e.Fatal(err)
		}
		add("Role", r.namespace, role.Name, role.Rules)
	}
	bind := func(namespace string, ref rbacv1.RoleRef) {
		if !own[ref] {
			rights = append(rights, right{namespace, "bind", rbacv1.GroupName, strings.ToLower(ref.Kind) + "s", ref.Name})
		}
	}
	for _, r := range created("clusterrolebindings") {
		binding, err := client.ClusterRoleBindings().Get(e.Context(), r.name, metav1.GetOptions{})
		if err != nil {
			e.Fatal(err)
		}
		bind("", binding.RoleRef)
	}
	for _, r := range created("rolebindings") {
		binding, err := client.RoleBindings(r.namespace).Get(e.Context(), r.name, metav1.GetOptions{})
		if err != nil {
			e.Fatal(err)
		}
		bind(r.namespace, binding.RoleRef)
	}
	return rights
}

// applyEverything has the operator apply a Bundle with all parts, with a profile and a pool, and changes it.
func (e *env) applyEverything() {
	e.Helper()
	e.patch(`{"spec": {"managementPolicy": "Enforce", "deletionPolicy": "Delete", "gateway": {"enabled": true}, "tunnelAPI": {"enabled": true},
		"konnectivity": {"leaseCounting": true, "server": {"proxyStrategies": ["destHost", "default"]}, "agent": {"identifiers": [{"type": "Host", "value": "$(NODE_NAME)"}]}},
		"scheduler": {"plugins": {"tunnelReach": {"enabled": true}}, "assignments": [{"schedulerName": "batch", "podSelector": {"matchLabels": {"batch": "true"}}}]}}}`)
	profiles, pools := e.kind("schedulerprofiles"), e.kind("tunnelpools").Namespace(metav1.NamespaceSystem)
	if _, err := profiles.Create(e.Context(), object("SchedulerProfile", "", "batch", map[string]any{"schedulerName": "batch", "strategy": "Batch"}), metav1.CreateOptions{}); err != nil {
		e.Fatal(err)
	}
	if _, err := pools.Create(e.Context(), object("TunnelPool", metav1.NamespaceSystem, "more", map[string]any{}), metav1.CreateOptions{}); err != nil {
		e.Fatal(err)
	}
	e.reconciled(v1beta1.ReasonAsWanted)
	e.condition(profiles, "batch", v1beta1.ProfileAccepted, v1beta1.ReasonAccepted)
	e.condition(pools, "more", v1beta1.PoolAccepted, v1beta1.ReasonAccepted)
	e.apiServes()
	if _, err := pools.Patch(e.Context(), "more", types.MergePatchType, []byte(`{"spec": {"replicas": 3}}`), metav1.PatchOptions{}); err != nil {
		e.Fatal(err)
	}
	e.condition(pools, "more", v1beta1.PoolAccepted, v1beta1.ReasonAccepted)
	e.patch(`{"spec": {"scheduler": {"replicas": 3}}}`)
	e.reconciled(v1beta1.ReasonAsWanted)
}

// renewed has the operator write another certificate, for another name.
func (e *env) renewed() {
	e.Helper()
	secrets := e.client.CoreV1().Secrets(operatorbundle.DefaultNamespace)
	before, err := secrets.Get(e.Context(), operatorbundle.WebhookSecret, metav1.GetOptions{})
	if err != nil {
		e.Fatal(err)
	}
	e.stop()
	runWith(e, e.operator, func(o *operator.Options) { o.WebhookNames = append(o.WebhookNames, "localhost") })
	testutil.Eventually(e.T, bound, func() error {
		after, err := secrets.Get(e.Context(), operatorbundle.WebhookSecret, metav1.GetOptions{})
		if err == nil && after.ResourceVersion == before.ResourceVersion {
			err = errors.New("the certificate is the old one")
		}
		return err
	})
}

// apiServes has an answer from the extension API server, as if its Pods ran, and waits until the operator has registered it.
func (e *env) apiServes() {
	e.Helper()
	status := []byte(`{"status": {"observedGeneration": 1, "replicas": 2, "updatedReplicas": 2, "readyReplicas": 2, "availableReplicas": 2}}`)
	deployments := e.client.AppsV1().Deployments(metav1.NamespaceSystem)
	if _, err := deployments.Patch(e.Context(), config.TunnelAPIName, types.MergePatchType, status, metav1.PatchOptions{}, "status"); err != nil {
		e.Fatal(err)
	}
	if _, err := e.client.DiscoveryV1().EndpointSlices(metav1.NamespaceSystem).Create(e.Context(), &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: config.TunnelAPIName, Labels: map[string]string{discoveryv1.LabelServiceName: config.TunnelAPIName}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"192.0.2.1"}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)}}},
	}, metav1.CreateOptions{}); err != nil {
		e.Fatal(err)
	}
	testutil.Eventually(e.T, bound, func() error {
		if _, err := e.client.Discovery().RESTClient().Get().AbsPath("/apis/apiregistration.k8s.io/v1/apiservices/v1alpha1.tunnel.fairlead.dev").DoRaw(e.Context()); err != nil {
			return fmt.Errorf("the APIService is not registered: %w", err)
		}
		return nil
	})
}

// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"cmp"
	"fmt"
	"slices"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/bundle/scheduler"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/check"
	"github.com/fairlead-dev/fairlead/pkg/observe"
)

const (
	groupScheduler = "Second scheduler"
	replicasRun    = "FL-SCH-001"
	leads          = "FL-SCH-002"
)

func schedulerRules() []Rule {
	needs := []string{reach}
	return []Rule{
		{ID: replicasRun, Group: groupScheduler, Phase: After, Needs: needs, Title: "Replicas of the second scheduler are ready", run: replicas,
			Why: "Without a ready replica, Pods that name the scheduler stay Pending.",
			Fix: "kubectl -n kube-system logs -l app.kubernetes.io/name=my-scheduler --tail 20"},
		{ID: leads, Group: groupScheduler, Phase: After, Needs: []string{reach, replicasRun}, Title: "A replica leads and renews its Lease", run: leaseHeld,
			Why: "Only the leader binds Pods. Health endpoints of replicas without a leader say that all is well.",
			Fix: "kubectl -n kube-system describe lease my-scheduler"},
		{ID: "FL-SCH-003", Group: groupScheduler, Phase: After, Needs: []string{reach, replicasRun, leads}, Title: "The leader is a replica of this scheduler", run: holderIsOurs,
			Why: "Another scheduler with the same Lease keeps this one idle.",
			Fix: "scheduler.leaderElection.leaseName: <another name>"},
		{ID: "FL-SCH-004", Group: groupScheduler, Phase: Always, Needs: needs, Title: "No other scheduler is configured with this Lease", run: leaseClash,
			Why: "Two schedulers with one Lease take turns, and the Pods of one wait.",
			Fix: "scheduler.leaderElection.leaseName: <another name>"},
		{ID: "FL-SCH-005", Group: groupScheduler, Phase: Always, Needs: needs, Title: "No other scheduler is configured with these profile names", run: nameClash,
			Why: "Both schedulers bind the same Pods, and disagree about where.",
			Fix: "Rename a profile, or delete the other scheduler."},
		{ID: "FL-SCH-006", Group: groupScheduler, Phase: After, Needs: []string{reach, replicasRun}, Title: "The default scheduler's Lease is the default scheduler's", run: stockLease,
			Why: "A second scheduler that holds it stops all Pods that name no scheduler.",
			Fix: "scheduler.featureGates: {CoordinatedLeaderElection: false}   # and a separate Lease"},
		{ID: "FL-SCH-007", Group: groupScheduler, Phase: After, Needs: []string{reach}, Title: "The second scheduler has the rights it needs", run: reviewed(func(r observe.Review) bool { return r.Role == string(check.RoleScheduler) }),
			Why: "A missing right makes the scheduler wait for its caches for ever, or fail to bind.",
			Fix: "fairlead install -f bundle.yaml"},
		{ID: "FL-SCH-008", Group: groupScheduler, Phase: After, Needs: needs, Title: "There is a standby replica", run: standby,
			Why: "With one replica nothing is scheduled while its node is drained or lost.",
			Fix: "scheduler.replicas: 2"},
		{ID: "FL-SCH-009", Group: groupScheduler, Phase: After, Needs: needs, Title: "A PodDisruptionBudget keeps a replica", run: budget,
			Why: "Without one, drains of two nodes at once stop the scheduler.",
			Fix: "fairlead install -f bundle.yaml"},
		{ID: "FL-SCH-010", Group: groupScheduler, Phase: Always, Needs: needs, Title: "Every scheduler that Pods name exists", run: ignoredPods,
			Why: "A Pod that names a scheduler which does not run stays Pending, without an event.",
			Fix: "kubectl get pods -A --field-selector spec.nodeName= -o custom-columns=NS:.metadata.namespace,NAME:.metadata.name,SCHEDULER:.spec.schedulerName"},
		{ID: "FL-SCH-011", Group: groupScheduler, Phase: After, Needs: []string{reach, replicasRun}, Title: "Pods of the second scheduler do not wait long", run: waiting,
			Why: "Pods that fit on no node wait. So do those of a leader that hangs.",
			Fix: "kubectl -n <namespace> describe pod <name>"},
		{ID: "FL-SCH-012", Group: groupScheduler, Phase: After, Needs: needs, Title: "The nodes match the scheduler's partition", run: partition,
			Why: "Without nodes in the partition all Pods stay Pending; without its taint other schedulers use the nodes.",
			Fix: "kubectl label node <name> <label>"},
		{ID: "FL-SCH-013", Group: groupScheduler, Phase: After, Needs: needs, Title: "Scheduler configurations can be read", run: readable,
			Why: "A scheduler whose configuration does not parse does not start.",
			Fix: "fairlead render -f bundle.yaml"},
		{ID: "FL-SCH-014", Group: groupScheduler, Phase: After, Needs: needs, Title: "Requests of the second scheduler are not of low priority", run: flowLevel,
			Why: "In level workload-low, a busy controller delays every binding.",
			Fix: "namespace: kube-system   # or a FlowSchema of your own for the scheduler's ServiceAccount"},
		{ID: "FL-SCH-015", Group: groupScheduler, Phase: After, Needs: needs, Title: "The second scheduler is of a version that this API server supports", run: schedulerSkew,
			Why: "A scheduler must not be newer than the API server, nor more than one minor version older.",
			Fix: "scheduler.image: <image of the API server's minor version>"},
		{ID: "FL-SCH-016", Group: groupScheduler, Phase: After, Needs: []string{reach, replicasRun}, Title: "Replicas are on different nodes", run: apart,
			Why: "Replicas on one node fail together.",
			Fix: "kubectl -n kube-system delete pod <one of them>"},
	}
}

// second returns the replicas, and skips where the scheduler is not installed.
func second(s *observe.Snapshot) ([]observe.Program, error) {
	programs, err := s.Programs.Get()
	if err != nil {
		return nil, err
	}
	replicas := observe.Of(programs, check.RoleScheduler)
	if len(replicas) == 0 && deployment(s) == nil {
		return nil, check.Skip("there is no second scheduler (Deployment %s/%s) in this cluster: set its bundle with -f if it has another name", s.Names.Namespace, s.Names.Scheduler)
	}
	return replicas, nil
}

// deployment returns the scheduler's Deployment as an index into the snapshot; nil if it does not exist.
func deployment(s *observe.Snapshot) *int {
	for i := range s.Deployments.Value {
		if d := &s.Deployments.Value[i]; d.Namespace == s.Names.Namespace && d.Name == s.Names.Scheduler {
			return &i
		}
	}
	return nil
}

func replicas(s *observe.Snapshot) ([]Finding, error) {
	all, err := second(s)
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		name := s.Names.Namespace + "/" + s.Names.Scheduler
		message := "it has no Pod"
		for _, w := range s.Workloads(check.RoleScheduler) {
			if w.Refusal != "" {
				message += ": " + w.Refusal
			}
		}
		return one("Deployment "+name, message, "kubectl -n "+s.Names.Namespace+" describe deployment "+s.Names.Scheduler), nil
	}
	var out []Finding
	for _, p := range all {
		if !p.Ready {
			out = append(out, Finding{Object: p.Name, Message: "it is not ready: " + p.Problem, Fix: logsOf(p)})
		}
	}
	if len(out) < len(all) {
		for i := range out {
			out[i].Warning = true
		}
	}
	return out, nil
}

func standby(s *observe.Snapshot) ([]Finding, error) {
	all, err := second(s)
	if err != nil {
		return nil, err
	}
	if s.Bundle.Scheduler.Form == v1alpha1.FormStaticPod {
		return nil, check.Skip("static Pods have one replica on each control plane node")
	}
	want := len(all)
	if i := deployment(s); i != nil {
		want = int(ptr.Deref(s.Deployments.Value[*i].Spec.Replicas, 1))
	}
	if want < 2 {
		return warn("Deployment "+s.Names.Namespace+"/"+s.Names.Scheduler, "it has 1 replica", ""), nil
	}
	return nil, nil
}

func budget(s *observe.Snapshot) ([]Finding, error) {
	all, err := second(s)
	if err != nil {
		return nil, err
	}
	pdbs, err := s.PDBs.Get()
	if err != nil {
		return nil, err
	}
	if len(all) < 2 || all[0].Pod == nil || s.Bundle.Scheduler.Form == v1alpha1.FormStaticPod {
		return nil, check.Skip("there are no two Pods to keep one of")
	}
	pod := all[0].Pod
	for _, p := range pdbs {
		if sel, err := metav1.LabelSelectorAsSelector(p.Spec.Selector); err == nil && p.Namespace == pod.Namespace && sel.Matches(labels.Set(pod.Labels)) {
			return nil, nil
		}
	}
	return warn("Deployment "+s.Names.Namespace+"/"+s.Names.Scheduler, "no PodDisruptionBudget selects its Pods", ""), nil
}

func partition(s *observe.Snapshot) ([]Finding, error) {
	if s.Bundle.Scheduler.Partition == nil {
		return nil, check.Skip("the bundle has no scheduler.partition")
	}
	nodes, err := s.Nodes.Get()
	if err != nil {
		return nil, err
	}
	if problem, hint := scheduler.NodesOf(s.Bundle.Scheduler.Partition, nodes).Problem(); problem != "" {
		return one("", problem, hint), nil
	}
	return nil, nil
}

func readable(s *observe.Snapshot) ([]Finding, error) {
	all, err := s.Configurations.Get()
	if err != nil {
		return nil, err
	}
	var out []Finding
	for _, c := range all {
		if c.Err != nil {
			out = append(out, Finding{Object: c.Where(), Message: c.Err.Error(), Warning: true, Fix: fmt.Sprintf("kubectl -n %s get configmap %s -o yaml", c.ConfigMap.Namespace, c.ConfigMap.Name)})
		}
	}
	return out, nil
}

// low is the priority level of ordinary controllers.
const low = "workload-low"

func flowLevel(s *observe.Snapshot) ([]Finding, error) {
	all, err := second(s)
	if err != nil {
		return nil, err
	}
	schemas, err := s.FlowSchemas.Get()
	if err != nil {
		return nil, err
	}
	namespace, account := s.Bundle.Namespace, s.Bundle.Scheduler.Name
	if len(all) > 0 && all[0].Pod != nil {
		namespace, account = all[0].Pod.Namespace, all[0].Pod.Spec.ServiceAccountName
	}
	var first *flowcontrolv1.FlowSchema
	for i := range schemas {
		if f := &schemas[i]; schemaMatches(f, namespace, account) && (first == nil || f.Spec.MatchingPrecedence < first.Spec.MatchingPrecedence) {
			first = f
		}
	}
	if first == nil {
		return nil, fmt.Errorf("no FlowSchema matches ServiceAccount %s/%s", namespace, account)
	}
	switch level := first.Spec.PriorityLevelConfiguration.Name; level {
	case low, "global-default", "catch-all":
		return warn("ServiceAccount "+namespace+"/"+account, fmt.Sprintf("FlowSchema %s puts its requests into priority level %s", first.Name, level), ""), nil
	}
	return nil, nil
}

// schemaMatches reports whether a FlowSchema takes a binding that a ServiceAccount makes.
func schemaMatches(f *flowcontrolv1.FlowSchema, namespace, account string) bool {
	groups := []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated", "*"}
	for _, rule := range f.Spec.Rules {
		subject := slices.ContainsFunc(rule.Subjects, func(sub flowcontrolv1.Subject) bool {
			switch {
			case sub.ServiceAccount != nil:
				return sub.ServiceAccount.Namespace == namespace && (sub.ServiceAccount.Name == "*" || sub.ServiceAccount.Name == account)
			case sub.Group != nil:
				return slices.Contains(groups, sub.Group.Name)
			case sub.User != nil:
				return sub.User.Name == "*" || sub.User.Name == "system:serviceaccount:"+namespace+":"+account
			}
			return false
		})
		resource := slices.ContainsFunc(rule.ResourceRules, func(r flowcontrolv1.ResourcePolicyRule) bool {
			return anyOf(r.Verbs, "create") && anyOf(r.APIGroups, "") && anyOf(r.Resources, "pods/binding")
		})
		if subject && resource {
			return true
		}
	}
	return false
}

func anyOf(list []string, want string) bool {
	return slices.Contains(list, want) || slices.Contains(list, "*")
}

func schedulerSkew(s *observe.Snapshot) ([]Finding, error) {
	all, err := second(s)
	if err != nil {
		return nil, err
	}
	info, err := s.Version.Get()
	if err != nil {
		return nil, err
	}
	server, err := version.ParseGeneric(info.GitVersion)
	if err != nil {
		return nil, fmt.Errorf("the API server's version: %w", err)
	}
	built := schedulerVersion(s)
	if len(all) > 0 && all[0].Image != "" {
		built = scheduler.KubernetesVersion(all[0].Image)
	}
	if built == "" {
		return nil, fmt.Errorf("image %s has no version in its tag", cmp.Or(imageOf(all), s.Bundle.Scheduler.Image))
	}
	v, err := version.ParseGeneric(built)
	if err != nil {
		return nil, err
	}
	if v.Minor() > server.Minor() || v.Minor()+1 < server.Minor() {
		return one("Deployment "+s.Names.Namespace+"/"+s.Names.Scheduler, fmt.Sprintf("it is of Kubernetes %d.%d, the API server of %d.%d", v.Major(), v.Minor(), server.Major(), server.Minor()), ""), nil
	}
	return nil, nil
}

func imageOf(all []observe.Program) string {
	if len(all) == 0 {
		return ""
	}
	return all[0].Image
}

func apart(s *observe.Snapshot) ([]Finding, error) {
	all, err := second(s)
	if err != nil {
		return nil, err
	}
	nodes := map[string]bool{}
	for _, p := range all {
		if p.Pod == nil {
			return nil, check.Skip("replicas are processes of this machine")
		}
		nodes[p.Node] = true
	}
	if len(all) > 1 && len(nodes) == 1 && len(s.Nodes.Value) > 1 {
		return warn("Deployment "+s.Names.Namespace+"/"+s.Names.Scheduler, "all its Pods are on Node "+all[0].Node,
			"kubectl -n "+s.Names.Namespace+" delete pod "+all[0].Pod.Name), nil
	}
	return nil, nil
}

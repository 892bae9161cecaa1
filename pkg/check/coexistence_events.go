// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
)

const (
	// eventAge is how old events may be: a scheduler that was removed an hour ago is no finding.
	eventAge = 15 * time.Minute
	// eventPage and eventPages bound what is read in a cluster that schedules a lot.
	eventPage, eventPages = 500, 20
)

// noForeignBindings looks at who has bound pods under our names of late. Every scheduler signs its events with its profile's name and the name of its
// host, so this also finds a scheduler that no ConfigMap configures: one in a static Pod, configured by flags, or outside of the cluster.
func (s *Scope) noForeignBindings(ctx context.Context) error {
	if s.OwnsIdentity == nil {
		s.Detail("bindings", unknownReplicas)
		return nil
	}
	if s.IdentityLimit != "" {
		s.Detail("bindings", "%s", s.IdentityLimit)
	}
	for _, name := range s.Coexistence.SchedulerNames {
		hosts, err := s.bindingHosts(ctx, name)
		if err != nil {
			return fmt.Errorf("list events of scheduler %s: %w", name, err)
		}
		for _, host := range slices.Sorted(maps.Keys(hosts)) {
			ours, err := s.ours(ctx, host, hosts[host].at)
			if err != nil {
				return fmt.Errorf("find the owner of the scheduler on host %s: %w", host, err)
			}
			if !ours {
				return WithHint(fmt.Errorf("a scheduler on host %q bound pod %s as %q, which is our profile, but is not a replica of this bundle's scheduler", host, hosts[host].pod, name),
					"two schedulers bind the same pods: find the other one on that host (a pod of that name in another namespace, a static Pod, a flag, a file outside of the cluster) and give it another name")
			}
		}
	}
	return nil
}

// lastBinding is a host's, as its event tells it.
type lastBinding struct {
	pod string
	at  time.Time
}

// bindingHosts are the hosts from which pods were bound under a scheduler's name, each with the last of the bindings.
func (s *Scope) bindingHosts(ctx context.Context, scheduler string) (map[string]lastBinding, error) {
	hosts := map[string]lastBinding{}
	options := metav1.ListOptions{Limit: eventPage, FieldSelector: fields.Set{"reason": "Scheduled", "reportingComponent": scheduler}.String()}
	for range eventPages {
		list, err := s.Client.CoreV1().Events(metav1.NamespaceAll).List(ctx, options)
		if err != nil {
			return nil, err
		}
		for i := range list.Items {
			e := &list.Items[i]
			// Servers and fakes that do not know the selector answer with all events.
			host, signed := strings.CutPrefix(e.ReportingInstance, scheduler+"-")
			at := eventTime(e)
			if e.Reason == "Scheduled" && e.ReportingController == scheduler && signed && time.Since(at) < eventAge && at.After(hosts[host].at) {
				hosts[host] = lastBinding{e.InvolvedObject.Namespace + "/" + e.InvolvedObject.Name, at}
			}
		}
		if options.Continue = list.Continue; options.Continue == "" {
			break
		}
	}
	return hosts, nil
}

func eventTime(e *corev1.Event) time.Time {
	if e.EventTime.IsZero() {
		return e.CreationTimestamp.Time
	}
	return e.EventTime.Time
}

// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metatable "k8s.io/apimachinery/pkg/api/meta/table"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/fairlead-dev/fairlead/pkg/apis/tunnel/v1alpha1"
)

// convertor makes tables of objects of type T.
type convertor[T runtime.Object] struct {
	columns []metav1.TableColumnDefinition
	cells   func(T) []any
}

// column is a column; one with priority 1 is shown by "-o wide" only.
func column(name, kind string, priority int32, description string) metav1.TableColumnDefinition {
	return metav1.TableColumnDefinition{Name: name, Type: kind, Priority: priority, Description: description}
}

var (
	nameColumn = metav1.TableColumnDefinition{Name: "Name", Type: "string", Format: "name", Description: "Name of the object."}
	ageColumn  = column("Age", "string", 0, "Time since the first link, the start of the server, or the begin of the connection.")
)

// ConvertToTable implements rest.TableConvertor.
func (c convertor[T]) ConvertToTable(_ context.Context, obj, options runtime.Object) (*metav1.Table, error) {
	table := &metav1.Table{}
	if opts, ok := options.(*metav1.TableOptions); !ok || !opts.NoHeaders {
		table.ColumnDefinitions = c.columns
	}
	if list, err := meta.ListAccessor(obj); err == nil {
		table.ResourceVersion, table.Continue, table.RemainingItemCount = list.GetResourceVersion(), list.GetContinue(), list.GetRemainingItemCount()
	} else if one, err := meta.CommonAccessor(obj); err == nil {
		table.ResourceVersion = one.GetResourceVersion()
	}
	var err error
	table.Rows, err = metatable.MetaToTableRow(obj, func(o runtime.Object, _ metav1.Object, _, _ string) ([]any, error) {
		t, ok := o.(T)
		if !ok {
			return nil, fmt.Errorf("no table for a %T", o)
		}
		return c.cells(t), nil
	})
	return table, err
}

func age(t metav1.Time) string {
	if t.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(time.Since(t.Time))
}

var agentTable rest.TableConvertor = convertor[*v1alpha1.TunnelAgent]{
	columns: []metav1.TableColumnDefinition{
		nameColumn,
		column("Node", "string", 0, "Node of the agent."),
		column("Connected", "string", 0, "Whether a konnectivity-server has a link to the agent."),
		column("Servers", "integer", 0, "Number of konnectivity-servers that the agent is connected to, without those that have stopped to show their state."),
		column("RTT", "string", 0, "Longest of the shortest round trips to the servers."),
		column("Open", "integer", 0, "Connections that the agent carries."),
		column("Fails", "integer", 0, "Dials that failed."),
		ageColumn,
		column("Draining", "string", 1, "Whether all links end when their connections have ended."),
		column("Dials", "integer", 1, "Dials that the servers gave to the agent."),
		column("Sent", "integer", 1, "Bytes to the agent."),
		column("Received", "integer", 1, "Bytes from the agent."),
		column("Version", "string", 1, "Version of the agent's program."),
		column("Agent ID", "string", 1, "ID that the agent chose."),
		column("Pod", "string", 1, "Pod of the agent."),
	},
	cells: func(a *v1alpha1.TunnelAgent) []any {
		var sum v1alpha1.AgentServer
		live := int64(0)
		for _, s := range a.Status.Servers {
			if !s.Stale {
				live++
				sum.RTTMicroseconds = max(sum.RTTMicroseconds, s.RTTMicroseconds)
			}
			sum.OpenConnections += s.OpenConnections
			sum.DialFailures += s.DialFailures
			sum.DialsTotal += s.DialsTotal
			sum.BytesToAgent += s.BytesToAgent
			sum.BytesFromAgent += s.BytesFromAgent
		}
		rtt := "<none>"
		if sum.RTTMicroseconds > 0 {
			rtt = fmt.Sprintf("%.1fms", float64(sum.RTTMicroseconds)/1000)
		}
		return []any{a.Name, cmp.Or(a.Status.NodeName, "<none>"), statusOf(a.Status.Conditions, v1alpha1.ConditionConnected), live, rtt,
			sum.OpenConnections, sum.DialFailures, age(a.CreationTimestamp), statusOf(a.Status.Conditions, v1alpha1.ConditionDraining),
			sum.DialsTotal, sum.BytesToAgent, sum.BytesFromAgent, cmp.Or(a.Status.Version, "<none>"), a.Status.AgentID, cmp.Or(a.Status.PodName, "<none>")}
	},
}

var serverTable rest.TableConvertor = convertor[*v1alpha1.TunnelServer]{
	columns: []metav1.TableColumnDefinition{
		nameColumn,
		column("Host", "string", 0, "Machine of the server."),
		column("Reachable", "string", 0, "Whether the server shows its state."),
		column("Ready", "string", 0, "Whether an agent takes new dials."),
		column("Agents", "integer", 0, "Connected agents."),
		column("Pending", "integer", 0, "Dials without an answer."),
		column("Open", "integer", 0, "Connections through agents."),
		column("Cert-Expires", "string", 0, "Time until the certificate expires that agents see."),
		ageColumn,
		column("Observed", "string", 1, "Time since the server last showed its state."),
		column("Mode", "string", 1, "Protocol with kube-apiserver."),
		column("Count", "string", 1, "How agents learn the number of servers, and that number."),
		column("Version", "string", 1, "Version of the server's program."),
		column("Address", "string", 1, "Where the server is asked for its state."),
	},
	cells: func(s *v1alpha1.TunnelServer) []any {
		st := &s.Status
		expires, observed, count := "<unknown>", "<never>", "<unknown>"
		if st.CertificateExpirationTime != nil {
			if left := time.Until(st.CertificateExpirationTime.Time); left > 0 {
				expires = duration.HumanDuration(left)
			} else {
				expires = "expired"
			}
		}
		if st.ObservedTime != nil {
			observed = age(*st.ObservedTime)
		}
		if st.CountMode != "" {
			count = fmt.Sprintf("%s=%d", st.CountMode, st.Count)
		}
		return []any{s.Name, cmp.Or(st.Host, "<none>"), statusOf(st.Conditions, v1alpha1.ConditionReachable), statusOf(st.Conditions, v1alpha1.ConditionReady),
			int64(st.Agents), st.PendingDials, st.OpenConnections, expires, age(s.CreationTimestamp), observed, cmp.Or(st.Mode, "<none>"), count,
			cmp.Or(st.Version, "<none>"), st.Address}
	},
}

var connectionTable rest.TableConvertor = convertor[*v1alpha1.TunnelConnection]{
	columns: []metav1.TableColumnDefinition{
		nameColumn,
		column("Destination", "string", 0, "Address that the connection leads to."),
		column("Agent", "string", 0, "ID of the agent that carries the connection."),
		column("Node", "string", 0, "Node of the agent."),
		column("Sent", "integer", 0, "Bytes for the destination."),
		column("Received", "integer", 0, "Bytes from the destination."),
		ageColumn,
		column("Server", "string", 1, "ID of the server that carries the connection."),
	},
	cells: func(c *v1alpha1.TunnelConnection) []any {
		st := &c.Status
		return []any{c.Name, st.Destination, cmp.Or(st.AgentID, "<server>"), cmp.Or(st.NodeName, "<none>"), st.BytesToAgent, st.BytesFromAgent,
			age(st.Since), st.ServerID}
	},
}

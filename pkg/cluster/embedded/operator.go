// SPDX-License-Identifier: Apache-2.0

package embedded

import (
	"context"
	"net"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/apis/fairlead/conversion"
	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
	"github.com/fairlead-dev/fairlead/pkg/bundle/operator"
	"github.com/fairlead-dev/fairlead/pkg/cluster"
	"github.com/fairlead-dev/fairlead/pkg/cluster/process"
	"github.com/fairlead-dev/fairlead/pkg/install"
)

// operatorOptions are those of the cluster's operator.
var operatorOptions = operator.Options{Replicas: ptr.To(int32(1))}

// operatorPorts lists the names of the operator's ports; none without an operator.
func (p *plan) operatorPorts() []string {
	if !p.state.Operator {
		return nil
	}
	return []string{portOperator, portOperatorHealth, portOperatorMetrics}
}

// operator returns the operator. kube-apiserver calls its webhook by a Service, through the
// tunnel, or by a URL if the machine has no address that a Service can have as its endpoint.
func (p *plan) operator() process.Spec {
	webhook := net.JoinHostPort(p.state.HostIP, p.port(portOperator))
	extra := []component.Flag{
		component.PlainFlag("kubeconfig", p.Kubeconfig(progOperator)),
		component.PlainFlag("webhook-bind-address", webhook),
		component.PlainFlag("metrics-bind-address", net.JoinHostPort(loopback, p.port(portOperatorMetrics))),
		component.PlainFlag("health-probe-bind-address", net.JoinHostPort(loopback, p.port(portOperatorHealth))),
	}
	// The second scheduler runs as processes here, so the holder of its Lease is no Pod of its Deployment.
	extra = append(extra, component.PlainFlag("ignore-preflight-errors", install.FindingLease))
	if !p.state.hasNetwork() {
		extra = append(extra, component.PlainFlag("webhook-url", "https://"+webhook+conversion.WebhookPath), component.PlainFlag("webhook-names", loopback))
	}
	proc := component.LocalProcess(operator.Component(operatorOptions), component.LocalOptions{Path: p.localPath(progOperator), Extra: extra})
	spec := p.bundlePart(progOperator, proc, &process.Probe{URL: p.url("http", portOperatorHealth, "/readyz")}, progAPIServer)
	spec.NeedsFiles = []string{p.Token(progOperator)}
	return spec
}

// writeOperatorFiles writes the operator's kubeconfig.
func (p *plan) writeOperatorFiles(authorities, time.Time) error {
	if !p.state.Operator {
		return nil
	}
	kubeconfig, err := p.tokenKubeconfig(progOperator, p.Token(progOperator))
	if err != nil {
		return err
	}
	return writeFile(p.Kubeconfig(progOperator), kubeconfig, 0o600)
}

// operatorObjects are the definitions, the operator's rights, and a Service with the process as
// its endpoint; none without an operator.
func (p *plan) operatorObjects() ([]component.Object, error) {
	if !p.state.Operator {
		return nil, nil
	}
	objects, err := operator.Objects(operatorOptions)
	if err != nil {
		return nil, err
	}
	objects = slices.DeleteFunc(objects, isWorkload)
	if !p.state.hasNetwork() {
		for _, o := range objects {
			if d, ok := o.(*apiextensionsv1.CustomResourceDefinition); ok {
				d.Spec.Conversion = nil // the operator adds the URL
			}
		}
		return objects, nil
	}
	c := operator.Component(operatorOptions)
	port := corev1.ServicePort{Name: operator.PortWebhook, Protocol: corev1.ProtocolTCP, Port: operator.ServicePort}
	return append(objects, p.processService(metav1.ObjectMeta{Name: c.Name, Namespace: c.Namespace, Labels: operator.Labels()}, port, portOperator)...), nil
}

// installForOperator installs the bundle's objects as `fairlead install` does, because the
// operator adopts no others. It leaves them alone once there is a Bundle, which the operator
// applies with its workloads.
func (p *plan) installForOperator(ctx context.Context, config *rest.Config, objects, further []component.Object) error {
	own, err := p.operatorObjects()
	if err != nil {
		return err
	}
	if _, err = install.Apply(ctx, config, append(own, further...), install.Options{Party: install.Provider, Force: true}); err != nil {
		return err
	}
	if managed, err := cluster.HasBundle(ctx, config); err != nil || managed {
		return err
	}
	// What the operator has applied, or "fairlead install", stays.
	_, err = install.Apply(ctx, config, objects, install.Options{Force: true, KeepOthers: true})
	return err
}

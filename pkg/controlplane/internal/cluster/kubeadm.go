// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	"github.com/fairlead-dev/fairlead/pkg/bundle/apiserver"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/journal"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/manifests"
)

// The ConfigMap of kubeadm.
const (
	configMap = manifests.KubeadmConfigMap
	configKey = manifests.KubeadmKey
)

var errKubeadmConfig = errors.New("kubeadm's stored configuration cannot be changed, so the next \"kubeadm upgrade\" would take the tunnel away again: " +
	"leave it alone with --kubeadm-config=false")

const beforeUpgrade = "do that before the next \"kubeadm upgrade\" on this node, which would bring the flag back, and kube-apiserver would not start"

// KubeadmConfig reads kubeadm's stored ClusterConfiguration.
func (a API) KubeadmConfig(ctx context.Context) (string, error) {
	if a.Client == nil {
		return "", a.Err
	}
	cm, err := a.Client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, configMap, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	text, ok := cm.Data[configKey]
	if !ok {
		return "", fmt.Errorf("ConfigMap %s holds no %s", configMap, configKey)
	}
	return text, nil
}

// SetKubeadmConfig replaces the stored text from with to. It fails if the
// stored text is neither.
func (a API) SetKubeadmConfig(ctx context.Context, from, to string) error {
	return a.setKubeadmConfig(ctx, from, to, metav1.UpdateOptions{FieldManager: "fairlead"})
}

func (a API) setKubeadmConfig(ctx context.Context, from, to string, options metav1.UpdateOptions) error {
	if a.Client == nil {
		return a.Err
	}
	configMaps := a.Client.CoreV1().ConfigMaps(metav1.NamespaceSystem)
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		cm, err := configMaps.Get(ctx, configMap, metav1.GetOptions{})
		if err != nil {
			return err
		}
		switch cm.Data[configKey] {
		case to:
			return nil
		case from:
		default:
			return fmt.Errorf("ConfigMap %s %w", configMap, journal.ErrEdited)
		}
		cm.Data[configKey] = to
		_, err = configMaps.Update(ctx, cm, options)
		return err
	})
}

// AddTunnel plans to add the tunnel to kubeadm's stored configuration. The argument k is what an
// earlier installation added, or nil. It returns the change, or nil if none is needed, and what to
// record.
func (a API) AddTunnel(ctx context.Context, k *journal.KubeadmState) (*journal.KubeadmChange, *journal.KubeadmState, error) {
	before, err := a.KubeadmConfig(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", errKubeadmConfig, err)
	}
	after, k, err := a.withTunnel(ctx, before, k)
	if err != nil || after == before {
		return nil, k, err
	}
	if err := a.setKubeadmConfig(ctx, before, after, metav1.UpdateOptions{FieldManager: "fairlead", DryRun: []string{metav1.DryRunAll}}); err != nil {
		return nil, nil, fmt.Errorf("%w: %w", errKubeadmConfig, err)
	}
	return &journal.KubeadmChange{Before: before, After: after}, k, nil
}

// withTunnel returns the stored configuration with the bundle's part and without what
// earlier installations added for other bundles, and what to record.
func (a API) withTunnel(ctx context.Context, text string, k *journal.KubeadmState) (after string, record *journal.KubeadmState, err error) {
	_, all, err := manifests.AddToCluster("{}", a.Bundle)
	if err != nil {
		return "", nil, err
	}
	_, missing, missingErr := manifests.AddToCluster(text, a.Bundle)
	switch {
	case k == nil:
		return a.firstTunnel(ctx, text, all)
	case text == k.After && !k.Shared && missingErr == nil && len(missing) == 0 && all.Has(k.Additions):
		return text, k, nil // everything needed is there, and nothing else
	case text == k.After && !k.Shared:
		// This node was the last to change it: k.Before is byte for byte the text from
		// before the first installation.
		after, added, err := manifests.AddToCluster(k.Before, a.Bundle)
		return after, &journal.KubeadmState{KubeadmChange: journal.KubeadmChange{Before: k.Before, After: after}, Additions: added}, err
	}
	// Another node may have stored this bundle's part already: keep it, and remove only
	// what the bundle does not need any more.
	base := text
	if obsolete := k.Additions.Without(all); len(obsolete) > 0 {
		if base, err = manifests.RemoveFromCluster(text, obsolete); err != nil {
			return "", nil, err
		}
	}
	after, added, err := manifests.AddToCluster(base, a.Bundle)
	if err != nil {
		return "", nil, err
	}
	record, err = a.recordOf(k, base, after, added, all)
	return after, record, err
}

// firstTunnel is withTunnel for a node that has recorded nothing.
func (a API) firstTunnel(ctx context.Context, text string, all manifests.ClusterAdditions) (string, *journal.KubeadmState, error) {
	after, added, err := manifests.AddToCluster(text, a.Bundle)
	if err != nil {
		return "", nil, err
	}
	if len(added) > 0 {
		return after, &journal.KubeadmState{KubeadmChange: journal.KubeadmChange{Before: text, After: after}, Additions: added}, nil
	}
	// If other nodes run servers, the installation of one of them added it;
	// otherwise a person did.
	if others, err := a.otherServers(ctx); err == nil && len(others) > 0 {
		return text, &journal.KubeadmState{Additions: all, Shared: true}, nil
	}
	return text, nil, nil
}

// recordOf returns what to record of a configuration that another node or a person has
// changed since k was recorded. The argument base is the text before the additions.
func (a API) recordOf(k *journal.KubeadmState, base, after string, added, all manifests.ClusterAdditions) (*journal.KubeadmState, error) {
	shared := &journal.KubeadmState{Additions: all, Shared: true}
	if k.Shared {
		return shared, nil
	}
	// What was not there before this node's first installation is of the bundle,
	// whichever node has added it.
	whole, own, err := manifests.AddToCluster(k.Before, a.Bundle)
	switch {
	case err != nil:
		return shared, nil //nolint:nilerr // the stored text fits, if not the one from before
	case own.Has(k.Additions) && k.Additions.Has(own) && base == after:
		return k, nil
	case whole == after:
		base = k.Before
	case !added.Has(own):
		if base, err = manifests.RemoveFromCluster(after, own); err != nil {
			return nil, err
		}
	}
	return &journal.KubeadmState{KubeadmChange: journal.KubeadmChange{Before: base, After: after}, Additions: own}, nil
}

// RemoveTunnel plans to remove additions from kubeadm's stored configuration, once no other
// kube-apiserver uses the tunnel. It returns the change, or nil if none is needed, and the reason
// if the configuration, or a part of the tunnel in it, must stay.
func (a API) RemoveTunnel(ctx context.Context, k *journal.KubeadmState) (change *journal.KubeadmChange, reason string, err error) {
	now, err := a.KubeadmConfig(ctx)
	if err != nil {
		return nil, "", fmt.Errorf("%w: %w", errKubeadmConfig, err)
	}
	others, err := a.OtherTunnels(ctx)
	if err != nil {
		return nil, "", err
	}
	if len(others) > 0 {
		return nil, fmt.Sprintf("%v still has the tunnel; the last \"fairlead controlplane uninstall\" takes it out: %s", others, beforeUpgrade), nil
	}
	after := k.Before
	if now != k.After || k.Shared {
		if after, err = manifests.RemoveFromCluster(now, k.Additions); err != nil {
			return nil, "", err
		}
	}
	if after != now {
		change = &journal.KubeadmChange{Before: now, After: after}
	}
	if file := manifests.ClusterEgress(after); file != "" {
		reason = fmt.Sprintf("it keeps --%s=%s, which this node did not add: remove that; %s", apiserver.ConfigFlag, file, beforeUpgrade)
	}
	return change, reason, nil
}

// TunnelOfOthers returns a message if kubeadm's stored configuration has the
// tunnel and this node did not add it.
func (a API) TunnelOfOthers(ctx context.Context) string {
	text, err := a.KubeadmConfig(ctx)
	if err != nil {
		return ""
	}
	if _, missing, err := manifests.AddToCluster(text, a.Bundle); err != nil || len(missing["extraArgs"]) > 0 {
		return ""
	}
	return "it has the tunnel, but not from this node; remove it where it was added: " + beforeUpgrade
}

// CheckTunnel fails if kubeadm's stored configuration lacks a part of the tunnel.
func (a API) CheckTunnel(ctx context.Context) error {
	text, err := a.KubeadmConfig(ctx)
	if err != nil {
		return fmt.Errorf("ConfigMap %s could not be compared: %w", configMap, err)
	}
	_, missing, err := manifests.AddToCluster(text, a.Bundle)
	if err == nil && len(missing) > 0 {
		err = fmt.Errorf("ConfigMap %s lacks the tunnel's part in apiServer.%s, so the next \"kubeadm upgrade\" would take the tunnel away: "+
			"run \"fairlead controlplane install\" again", configMap, strings.Join(slices.Sorted(maps.Keys(missing)), ", "))
	}
	return err
}

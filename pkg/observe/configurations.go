// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"
)

// configMapsPage is how many ConfigMaps are in memory at the same time: each may have 1 MiB.
const configMapsPage = 100

// configurations keeps those ConfigMaps that hold a scheduler's configuration, and drops all others at once. It reads the data of every ConfigMap of
// the cluster, so an overview does without.
func (c *collector) configurations(ctx context.Context) ([]Configuration, error) {
	var out []Configuration
	options := metav1.ListOptions{Limit: configMapsPage}
	for {
		l, err := c.client.CoreV1().ConfigMaps("").List(ctx, options)
		if err != nil {
			return nil, fmt.Errorf("list ConfigMaps, which hold schedulers' configurations: %w", err)
		}
		for i := range l.Items {
			out = append(out, configurationsIn(&l.Items[i])...)
		}
		if options.Continue = l.Continue; l.Continue == "" {
			return out, nil
		}
	}
}

func configurationsIn(m *corev1.ConfigMap) []Configuration {
	var out []Configuration
	for key, text := range m.Data {
		if !strings.Contains(text, "KubeSchedulerConfiguration") {
			continue
		}
		found := Configuration{ConfigMap: types.NamespacedName{Namespace: m.Namespace, Name: m.Name}, Key: key, Text: text}
		found.Err = yaml.Unmarshal([]byte(text), &found.Config)
		if found.Err == nil && found.Config.Kind != "KubeSchedulerConfiguration" {
			continue // it quotes one, as another object's annotation may
		}
		out = append(out, found)
	}
	return out
}

// SPDX-License-Identifier: Apache-2.0

package kubeconfig

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// TestOverlapping: however many runs add entries to a file, and in whatever order they end, the file means what it did before
// after the last, and is gone if there was none. No copy of its secrets is in a mark, which kubectl config view shows. The current context is never an entry that is gone: if a user chose one, the former one is again.
func TestOverlapping(t *testing.T) {
	names := []string{"one", "two", "three"}
	for _, content := range []string{users, ""} {
		for _, order := range [][]int{{0, 1}, {1, 0}, {0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
			for _, current := range []string{"", "one", "two"} { // whose context the user chooses while all are there
				what := fmt.Sprintf("%q, runs end in the order %v, current %q", strings.SplitN(content, "\n", 2)[0], order, current)
				path := write(t, content)
				var added []*Added
				for i := range order {
					added = append(added, add(t, path, names[i]))
				}
				if current != "" {
					config := load(t, path)
					config.CurrentContext = current
					if err := clientcmd.WriteToFile(*config, path); err != nil {
						t.Fatal(err)
					}
				}
				for _, i := range order[:len(order)-1] {
					remove(t, added[i])
					now := load(t, path)
					if has(now, names[i]) {
						t.Errorf("%s: %s stays", what, names[i])
					}
					for _, c := range now.Clusters {
						if raw, ok := c.Extensions[extension].(*runtime.Unknown); ok && len(raw.Raw) > 400 {
							t.Errorf("%s: a mark is %s", what, raw.Raw)
						}
					}
					if c := now.CurrentContext; c != "" && now.Contexts[c] == nil {
						t.Errorf("%s: the current context %s is gone", what, c)
					}
				}
				remove(t, added[order[len(order)-1]])
				if content == "" {
					if _, err := os.Stat(path); !os.IsNotExist(err) {
						t.Errorf("%s: the file stays: %v", what, err)
					}
					continue
				}
				if now, before := canonical(t, load(t, path)), canonical(t, load(t, write(t, content))); now != before {
					t.Errorf("%s: the file is now\n%s", what, now)
				}
			}
		}
	}
}

// TestOverlappingChanged: what the user changes while several runs have entries stays after the last, whichever that is.
func TestOverlappingChanged(t *testing.T) {
	for _, order := range [][]int{{0, 1}, {1, 0}} {
		for _, after := range []int{0, 1} { // how many have ended by then
			path := write(t, users)
			added := []*Added{add(t, path, "one"), add(t, path, "two")}
			for n, i := range order {
				if n == after {
					config := load(t, path)
					config.AuthInfos["me"].Token = "changed"
					config.Contexts["new"], config.CurrentContext = &clientcmdapi.Context{Cluster: "work"}, "new"
					if err := clientcmd.WriteToFile(*config, path); err != nil {
						t.Fatal(err)
					}
				}
				remove(t, added[i])
			}
			now := load(t, path)
			if has(now, "one") || has(now, "two") || now.AuthInfos["me"].Token != "changed" || now.CurrentContext != "new" || now.Contexts["new"] == nil {
				t.Errorf("order %v, changed after %d: %+v", order, after, now)
			}
			if data, err := os.ReadFile(path); err != nil || strings.Contains(string(data), extension) {
				t.Errorf("order %v, changed after %d: a mark stays, %v\n%s", order, after, err, data)
			}
		}
	}
}

func canonical(t *testing.T, config *clientcmdapi.Config) string {
	t.Helper()
	data, err := clientcmd.Write(*config)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// SPDX-License-Identifier: Apache-2.0

package proxy_test

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/fairlead-dev/fairlead/pkg/cli/proxy"
)

// rows returns the cells of the table in docs/proxy.md that has this head.
func rows(t *testing.T, head string) (table [][]string) {
	t.Helper()
	page, err := os.ReadFile("../../../docs/proxy.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(page), head+"\n")
	if !ok {
		t.Fatalf("docs/proxy.md has no table %s", head)
	}
	for line := range strings.SplitSeq(rest, "\n") {
		line, ok := strings.CutPrefix(line, "|")
		if !ok {
			break
		}
		if strings.HasPrefix(line, "---") {
			continue
		}
		var cells []string
		for cell := range strings.SplitSeq(strings.TrimSuffix(line, "|"), "|") {
			cells = append(cells, strings.TrimSpace(cell))
		}
		table = append(table, cells)
	}
	return table
}

// code returns the texts of a cell that are between backquotes.
func code(cell string) (texts []string) {
	for _, m := range regexp.MustCompile("`([^`]*)`").FindAllStringSubmatch(cell, -1) {
		texts = append(texts, m[1])
	}
	return texts
}

// TestFlagTable: each flag of kubectl proxy has the shorthand and the default that the page has,
// which are kubectl's.
// It observes HTTP-07 of docs/requirements.md.
func TestFlagTable(t *testing.T) {
	flags := proxy.NewCommand(genericiooptions.NewTestIOStreamsDiscard()).Flags()
	table := rows(t, "| flag | shorthand | default |")
	if len(table) != 13 {
		t.Errorf("the table has %d flags of kubectl proxy, which has 13", len(table))
	}
	for _, row := range table {
		name := strings.TrimPrefix(code(row[0])[0], "--")
		f := flags.Lookup(name)
		if f == nil {
			t.Errorf("there is no flag --%s", name)
			continue
		}
		shorthand, value := "", ""
		if texts := code(row[1]); len(texts) > 0 {
			shorthand = strings.TrimPrefix(texts[0], "-")
		}
		if texts := code(row[2]); len(texts) > 0 {
			value = texts[0]
		}
		if f.Shorthand != shorthand || f.DefValue != value {
			t.Errorf("--%s has the shorthand %q and the default %q, the page has %q and %q", name, f.Shorthand, f.DefValue, shorthand, value)
		}
	}
}

// TestFilterTable: the real program answers each request of the page's table as the page says.
// It observes HTTP-07 of docs/requirements.md.
func TestFilterTable(t *testing.T) {
	kubeconfig, dir := fakeAPIServer(t), t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "page"), []byte("a page"), 0o600); err != nil {
		t.Fatal(err)
	}
	table := rows(t, "| flags | request | host | answer |")
	if len(table) < 20 {
		t.Fatalf("the table has %d rows", len(table))
	}
	running := map[string]*process{}
	for _, row := range table {
		p := running[row[0]]
		if p == nil {
			p = start(t, kubeconfigOfRow(t, kubeconfig, row[0]), append(flagsOfRow(row[0], dir), "--port", "0")...)
			running[row[0]] = p
		}
		method, path, _ := strings.Cut(code(row[1])[0], " ")
		req, err := http.NewRequestWithContext(t.Context(), method, "http://"+p.address+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = code(row[2])[0]
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		want := row[3]
		switch {
		case strings.HasPrefix(want, "forwarded as"):
			if resp.StatusCode != http.StatusOK || !strings.Contains(string(body), fmt.Sprintf(`"path":%q`, code(want)[0])) {
				t.Errorf("%q: status %d, %s", row, resp.StatusCode, body)
			}
		case strings.HasPrefix(want, "the file"):
			if resp.StatusCode != http.StatusOK || string(body) != "a page" {
				t.Errorf("%q: status %d, %s", row, resp.StatusCode, body)
			}
		default:
			if fmt.Sprint(resp.StatusCode) != want || strings.Contains(string(body), `"path"`) {
				t.Errorf("%q: status %d, %s", row, resp.StatusCode, body)
			}
		}
	}
}

// flagsOfRow are the flags that a cell names.
func flagsOfRow(cell, dir string) (flags []string) {
	for _, text := range code(cell) {
		if strings.HasPrefix(text, "--") {
			flags = append(flags, strings.Fields(strings.ReplaceAll(text, "DIR", dir))...)
		}
	}
	return flags
}

// kubeconfigOfRow gives the server of the kubeconfig the path that a cell names.
func kubeconfigOfRow(t *testing.T, kubeconfig, cell string) string {
	t.Helper()
	for _, text := range code(cell) {
		path, ok := strings.CutPrefix(text, "https://SERVER")
		if !ok {
			continue
		}
		config, err := clientcmd.LoadFromFile(kubeconfig)
		if err != nil {
			t.Fatal(err)
		}
		config.Clusters["test"].Server += path
		kubeconfig = filepath.Join(t.TempDir(), "config")
		if err := clientcmd.WriteToFile(*config, kubeconfig); err != nil {
			t.Fatal(err)
		}
	}
	return kubeconfig
}

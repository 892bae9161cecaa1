// SPDX-License-Identifier: Apache-2.0

package bundle_test

import (
	"errors"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// effectful are packages that can start programs, serve, connect, read files or take signals, and those below them. They add
// to [forbidden], which is for the sources of this repository.
var effectful = []string{
	"os", "net", "syscall", "plugin", "log/syslog", "database/sql", "expvar", "runtime/pprof", "runtime/trace", "testing", "crypto/tls", "golang.org/x/net/http2",
	"golang.org/x/sys", "golang.org/x/term", "google.golang.org/grpc", "go.etcd.io", "k8s.io/apiserver/pkg/server", "k8s.io/apiserver/pkg/storage",
	"k8s.io/client-go/transport", "k8s.io/client-go/informers", "k8s.io/client-go/listers", "k8s.io/kubectl", "sigs.k8s.io/kind", "go.opentelemetry.io/otel/sdk",
	"github.com/spf13/cobra",
}

// linkedByOthers are the packages with effects that libraries of the bundle link, and one library that does. The bundle needs
// that library for types, schemes or validation.
var linkedByOthers = map[string]string{
	"crypto/rand":                  "pkg/bundle/pki",
	"crypto/tls":                   "net/http",
	"database/sql":                 "github.com/prometheus/client_golang/prometheus/collectors",
	"database/sql/driver":          "github.com/blang/semver/v4",
	"expvar":                       "github.com/prometheus/client_golang/prometheus",
	"golang.org/x/net/http2":       "k8s.io/apimachinery/pkg/util/net",
	"golang.org/x/net/http2/hpack": "golang.org/x/net/http2",
	"golang.org/x/sys/unix":        "github.com/prometheus/procfs",
	"io/ioutil":                    "github.com/modern-go/concurrent",
	"math/rand":                    "k8s.io/apimachinery/pkg/apis/meta/v1",
	"math/rand/v2":                 "database/sql",
	"net":                          "k8s.io/apimachinery/pkg/util/validation, and the bundle for net.ParseIP",
	"net/http":                     "k8s.io/apimachinery/pkg/util/runtime, for its handlers of panics",
	"net/http/httptrace":           "net/http",
	"net/netip":                    "the bundle: addresses are values",
	"net/textproto":                "net/http",
	"net/url":                      "the bundle: URLs are values",
	"os":                           "fmt",
	"os/user":                      "k8s.io/klog/v2, for the name of its log file",
	"path/filepath":                "os and its callers",
	"syscall":                      "os",
	"unsafe":                       "the standard library",
}

// hasEffects reports whether a package, or one above it, is effectful or forbidden.
func hasEffects(path string) bool {
	return isForbidden(path) || slices.ContainsFunc(effectful, func(e string) bool { return path == e || strings.HasPrefix(path, e+"/") })
}

// unexpected lists the packages with effects among deps that linkedByOthers does not name. The standard library's internal
// packages are reached only through its others.
func unexpected(deps []string) (found []string) {
	for _, dep := range deps {
		inner := strings.HasPrefix(dep, "vendor/") || strings.HasPrefix(dep, "internal/") || strings.Contains(dep, "/internal/") || strings.HasSuffix(dep, "/internal")
		if !inner && hasEffects(dep) && linkedByOthers[dep] == "" {
			found = append(found, dep)
		}
	}
	return found
}

// TestClosure looks at all packages that the bundle links, also those of others: none can start a program, take signals, serve
// gRPC or talk to an API server, and the packages with effects are those that linkedByOthers names, no more and no fewer.
//
// It cannot see whether a library of others calls what it links. Kubernetes' API machinery links net/http and os, and its init
// functions run: klog asks for the user's name, and the metrics of component-base register themselves. [TestPure] sees calls in
// the sources of this repository.
func TestClosure(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "./...").Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		t.Fatalf("go list: %s", exit.Stderr)
	} else if err != nil {
		t.Fatal(err)
	}
	deps := strings.Fields(string(out))
	for _, dep := range unexpected(deps) {
		t.Errorf("the bundle links %s, which can have effects: do without, or say in linkedByOthers which library needs it", dep)
	}
	for dep := range linkedByOthers {
		if !slices.Contains(deps, dep) {
			t.Errorf("the bundle no longer links %s: remove it from linkedByOthers", dep)
		}
	}
}

// TestUnexpected proves that TestClosure would see packages with effects that the bundle does not link now.
func TestUnexpected(t *testing.T) {
	for _, path := range []string{
		"os/exec", "os/signal", "plugin", "net/rpc", "net/http/httputil", "net/http/pprof", "google.golang.org/grpc", "k8s.io/client-go/rest",
		"k8s.io/client-go/kubernetes", "k8s.io/apiserver/pkg/server", "sigs.k8s.io/controller-runtime/pkg/client", "golang.org/x/term", "testing",
	} {
		if len(unexpected([]string{path})) != 1 {
			t.Errorf("%s could be linked unnoticed", path)
		}
	}
	if got := unexpected([]string{"strings", "os", "net/http/internal/ascii", "k8s.io/client-go/tools/clientcmd/api/v1", "k8s.io/api/core/v1"}); len(got) != 0 {
		t.Errorf("%q are no reason to fail", got)
	}
}
